// The client: open, ping, close.

package dlease

// #include <dlease.h>
import "C"

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"time"
)

// How many calls of one client are in C at the same time, each on an OS thread
// of its own, which stays.
const (
	beginningPlaces = 8  // acquires that are being begun; waiting takes none
	keepingPlaces   = 16 // renewals, releases and pings
)

const pingLimit = 5 * time.Second

// A Client is a client of one database: connections, and whatever was acquired
// through them. One for a process is enough. All its methods may be called from
// any goroutines at the same time.
type Client struct {
	// closing is done as soon as Close was called.
	closing context.Context
	close   context.CancelFunc
	once    sync.Once

	// calls is held shared by every call that is in C with handle, and in full
	// to take handle away.
	calls   sync.RWMutex
	handle  *C.dl_client
	cleanup runtime.Cleanup

	events             *events
	beginning, keeping places
}

// Open opens a client. It talks to no server and does not block: a wrong
// address, password or schema shows at the first call that needs it.
//
// The URL is mysql://user:password@host:port,host2:port2/database?option=value
// with percent-encoding. Of several hosts the first that can be reached and
// takes writes is used. Its options: application, namespace, table_prefix,
// connect_timeout_ms, io_timeout_ms, default_ttl_ms, max_connections,
// max_waiting_connections, fairness_ms, create_schema=yes|no, socket=/path,
// tls=off|preferred|required|verify_ca|verify_identity, tls_ca=FILE.
//
// Errors: [ErrInvalidArgument]; [ErrConfig] if the library is not of the header
// that this package was compiled with.
func Open(url string, opts ...Option) (*Client, error) {
	if library := C.dl_abi_version(); library != C.DL_ABI_VERSION {
		return nil, &Error{Status: StatusConfig, text: fmt.Sprintf(
			"libdlease %s has ABI version %d, and this program was compiled for %d",
			C.GoString(C.dl_version()), library, C.DL_ABI_VERSION)}
	}
	var o clientOptions
	withoutNUL(&o.err, "URL", url)
	for _, option := range opts {
		option(&o)
	}
	if o.err != nil {
		return nil, o.err
	}
	var memory texts
	defer memory.free()
	options := C.dl_client_options{
		size:                    C.sizeof_dl_client_options,
		application:             memory.add(o.application),
		name_space:              memory.add(o.namespace),
		table_prefix:            memory.add(o.tablePrefix),
		connect_timeout_ms:      C.uint64_t(o.connectTimeoutMs),
		io_timeout_ms:           C.uint64_t(o.ioTimeoutMs),
		default_ttl_ms:          C.uint64_t(o.defaultTTLMs),
		max_connections:         C.uint32_t(o.maxConnections),
		max_waiting_connections: C.uint32_t(o.maxWaiting),
		fairness_ms:             C.uint32_t(o.fairnessMs),
		create_schema:           C.int32_t(o.createSchema),
	}
	var handle *C.dl_client
	var detail *C.dl_error
	if status := C.dl_client_open(memory.add(&url), &options, &handle, &detail); status != 0 {
		return nil, failure(status, detail)
	}
	c := &Client{
		handle:    handle,
		events:    newEvents(handle),
		beginning: make(places, beginningPlaces),
		keeping:   make(places, keepingPlaces),
	}
	c.closing, c.close = context.WithCancel(context.Background())
	// For a client that was forgotten. On a goroutine of its own, since closing
	// may take its time and clean-ups share one.
	c.cleanup = runtime.AddCleanup(c, func(e *events) { go e.close() }, c.events)
	return c, nil
}

// Ping makes one round trip to the server. It blocks until that is done, for
// 5 s at most, or until the context ends.
//
// Errors: [ErrUnavailable] if the server was not reached in time (with
// context.DeadlineExceeded if that was the context's); [ErrConfig] if it does
// not let us in, is too old, or its tables are not ours; [ErrServer],
// [ErrClosed], [ErrForked]; context.Canceled.
func (c *Client) Ping(ctx context.Context) error {
	if ctx.Err() != nil {
		return ended(ctx)
	}
	limit := pingLimit
	if deadline, ok := ctx.Deadline(); ok {
		limit = min(limit, time.Until(deadline))
	}
	return c.await(ctx, func() error {
		handle, err := c.enter()
		if err != nil {
			return err
		}
		defer c.leave()
		var detail *C.dl_error
		status := C.dl_client_ping(handle, wholeMillis(limit), &detail)
		if status == 0 {
			return nil
		}
		failed := failure(status, detail)
		if failed.Status == StatusUnavailable && deadlineHasPassed(ctx) {
			return late(failed)
		}
		return failed
	})
}

// Close releases what the client holds, ends its calls with [ErrClosed] and
// frees it. Its locks are lost from here on. It blocks for 2 s at most, and
// longer only for a Ping in progress; called again, until the first is done.
// It never fails: the error is there for io.Closer.
func (c *Client) Close() error {
	c.once.Do(func() {
		c.close()
		// No call may be in C with the handle when it is freed.
		c.calls.Lock()
		c.handle = nil
		c.calls.Unlock()
		c.cleanup.Stop()
		c.events.close()
	})
	return nil
}

// enter gives the handle for one call, which ends by leave.
func (c *Client) enter() (*C.dl_client, error) {
	// Asked first, since the mutex is not to be had while Close waits for it.
	if c.closing.Err() != nil {
		return nil, closed()
	}
	c.calls.RLock()
	if c.handle == nil {
		c.calls.RUnlock()
		return nil, closed()
	}
	return c.handle, nil
}

func (c *Client) leave() {
	c.calls.RUnlock()
	runtime.KeepAlive(c)
}

// await runs a call that blocks in C for a bounded time. It leaves the call to
// itself when the context ends before.
func (c *Client) await(ctx context.Context, call func() error) error {
	run := func() error {
		c.keeping <- struct{}{}
		defer c.keeping.leave()
		return call()
	}
	if ctx.Done() == nil {
		return run()
	}
	result := make(chan error, 1)
	go func() { result <- run() }()
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
		return ended(ctx)
	}
}

// places bounds how many calls of one sort are in C at the same time. First
// come, first served.
type places chan struct{}

func (p places) leave() { <-p }

// deadlineHasPassed may be true a moment before ctx.Err() tells.
func deadlineHasPassed(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ok && !time.Now().Before(deadline)
}

// wholeMillis is the time that is left in C's milliseconds, rounded up: the
// library is not to give up before the context does.
func wholeMillis(left time.Duration) C.uint64_t {
	return C.uint64_t(max(left, 0)/time.Millisecond) + 1
}
