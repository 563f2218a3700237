// Events: outcomes of acquires that wait in the library without a thread, and
// the one goroutine a client that hands them to those who wait in Go.

package dlease

// #include <dlease.h>
import "C"

import (
	"context"
	"os"
	"sync"
	"syscall"
)

// An outcome of an acquire: a lock of C's, or why there is none.
type outcome struct {
	lock   *C.dl_lock
	loss   *loss
	status C.dl_status
	detail *C.dl_error
}

// A loss is told to whoever holds a lock. It does not know the Lock, which may
// be collected.
type loss struct {
	tag     uint64
	lost    chan struct{}   // closed when the lock is lost
	held    context.Context // until it is lost or released
	endHeld context.CancelCauseFunc
}

func newLoss(tag uint64) *loss {
	held, end := context.WithCancelCause(context.Background())
	return &loss{tag: tag, lost: make(chan struct{}), held: held, endHeld: end}
}

// tell is called once at most, by whoever has taken the loss out of its map.
func (l *loss) tell() {
	l.endHeld(ErrLost)
	close(l.lost)
}

// events hands each outcome to the acquire of its tag. It knows the handle of
// C's and not the Client, which may be collected while this goroutine waits.
type events struct {
	handle *C.dl_client

	mu      sync.Mutex
	next    uint64
	pending map[uint64]chan outcome // acquires, by their tags
	held    map[uint64]*loss        // and what they acquired

	ready *os.File // a copy of the library's descriptor, for Go's poller
	done  chan struct{}
}

func newEvents(handle *C.dl_client) *events {
	return &events{handle: handle, pending: make(map[uint64]chan outcome), held: make(map[uint64]*loss)}
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
		tag := uint64(event.tag)
		if event._type == C.DL_EVENT_LOST {
			if lost := e.release(tag); lost != nil {
				lost.tell()
			}
			continue
		}
		got := outcome{lock: event.lock, status: event.status, detail: event.error}
		e.mu.Lock()
		came := e.pending[tag]
		delete(e.pending, tag)
		if got.lock != nil {
			got.loss = newLoss(tag)
			e.held[tag] = got.loss
		}
		e.mu.Unlock()
		came <- got
	}
}

// release takes out what was acquired with this tag: no loss of it is told any
// more. Nil if it is out already.
func (e *events) release(tag uint64) *loss {
	e.mu.Lock()
	defer e.mu.Unlock()
	held := e.held[tag]
	delete(e.held, tag)
	return held
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
	// Its locks are lost with it.
	e.mu.Lock()
	held := e.held
	e.held = make(map[uint64]*loss)
	e.mu.Unlock()
	for _, lost := range held {
		lost.tell()
	}
}
