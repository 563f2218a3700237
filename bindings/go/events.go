// Events: outcomes of acquires that wait in the library without a thread, and
// the one goroutine a client that hands them to those who wait in Go.

package dlease

// #include <dlease.h>
import "C"

import (
	"os"
	"sync"
	"syscall"
)

// An outcome of an acquire: a lock of C's, or why there is none.
type outcome struct {
	lock   *C.dl_lock
	status C.dl_status
	detail *C.dl_error
}

// events hands each outcome to the acquire of its tag. It knows the handle of
// C's and not the Client, which may be collected while this goroutine waits.
type events struct {
	handle *C.dl_client

	mu      sync.Mutex
	next    uint64
	pending map[uint64]chan outcome

	ready *os.File // a copy of the library's descriptor, for Go's poller
	done  chan struct{}
}

func newEvents(handle *C.dl_client) *events {
	return &events{handle: handle, pending: make(map[uint64]chan outcome)}
}

// expect gives a tag, and where its outcome will come. The first starts the
// goroutine.
func (e *events) expect() (uint64, chan outcome, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ready == nil {
		if err := e.start(); err != nil {
			return 0, nil, err
		}
	}
	e.next++
	came := make(chan outcome, 1)
	e.pending[e.next] = came
	return e.next, came, nil
}

// forget takes back a tag whose acquire was not begun.
func (e *events) forget(tag uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.pending, tag)
}

func (e *events) start() error {
	// A copy, since Go closes what it polls. It is nonblocking like the original.
	original := C.dl_client_event_fd(e.handle)
	if original < 0 {
		return noDescriptor(syscall.EMFILE)
	}
	fd, _, errno := syscall.Syscall(syscall.SYS_FCNTL, uintptr(original), syscall.F_DUPFD_CLOEXEC, 0)
	if errno != 0 {
		return noDescriptor(errno)
	}
	e.ready = os.NewFile(fd, "dlease events")
	raw, err := e.ready.SyscallConn()
	if err != nil {
		return noDescriptor(err)
	}
	e.done = make(chan struct{})
	go func() {
		defer close(e.done)
		// Not read from: Go's poller only tells when it has become readable
		// again, and what came is taken from the library. Ends with the file.
		_ = raw.Read(func(uintptr) bool { e.takeAll(); return false })
	}()
	return nil
}

func noDescriptor(why error) error {
	return &Error{Status: StatusUnavailable, retriable: true, text: "cannot wait: no descriptor: " + why.Error()}
}

func (e *events) takeAll() {
	for {
		event := C.dl_event{size: C.sizeof_dl_event}
		if C.dl_client_next_event(e.handle, 0, &event) != C.DL_STATUS_OK {
			return
		}
		e.mu.Lock()
		came := e.pending[uint64(event.tag)]
		delete(e.pending, uint64(event.tag))
		e.mu.Unlock()
		came <- outcome{lock: event.lock, status: event.status, detail: event.error}
	}
}

// close ends the goroutine, and then the client. Nobody may wait any more.
func (e *events) close() {
	e.mu.Lock()
	ready, done := e.ready, e.done
	e.mu.Unlock()
	if ready != nil {
		_ = ready.Close()
	}
	if done != nil {
		<-done
	}
	C.dl_client_close(e.handle)
}
