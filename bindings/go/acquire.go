// Acquiring: a context's end on one side, one blocking call of C's on the other.

package dlease

/*
#include <stdlib.h>
#include <dlease.h>
*/
import "C"

import (
	"context"
	"errors"
	"sync"
	"time"
)

// Acquire acquires the lock of this key, 1 to 255 bytes, any but NUL, compared
// byte for byte. It blocks until the lock is there or the context ends; without
// a deadline it waits for ever.
//
// Errors: [ErrTimeout] with context.DeadlineExceeded if someone else had the
// lock until the context's deadline; [ErrUnavailable] with the same if the
// server was not reached until then; context.Canceled; at once
// [ErrInvalidArgument], [ErrConfig], [ErrUnsupported]; [ErrServer] if the
// server refused; [ErrClosed], [ErrForked]. Never a lock together with an
// error.
func (c *Client) Acquire(ctx context.Context, key string, opts ...AcquireOption) (*Lock, error) {
	r, err := newRequest(key, opts)
	if err != nil {
		return nil, err
	}
	select {
	case c.waiting <- struct{}{}:
	default:
		// All places are taken by those who wait, for other keys perhaps. A try
		// needs none; only who finds the lock held has to wait.
		lock, err := c.try(ctx, r)
		if !errors.Is(err, ErrNotAcquired) && !errors.Is(err, ErrUnavailable) {
			return lock, err
		}
		r.seenHeld = errors.Is(err, ErrNotAcquired)
		if !c.waiting.enter(ctx, c.closing) {
			return nil, c.why(ctx, r)
		}
	}
	defer c.waiting.leave()
	return c.acquire(ctx, r, true)
}

// TryAcquire makes one try. It blocks for the lesser of the client's I/O
// timeout and the TTL at most, and until the context ends.
//
// Errors: [ErrNotAcquired] if someone else has the lock; [ErrUnavailable] if the
// server was not reached (with context.DeadlineExceeded if the context ended
// it); the others as from [Client.Acquire].
func (c *Client) TryAcquire(ctx context.Context, key string, opts ...AcquireOption) (*Lock, error) {
	r, err := newRequest(key, opts)
	if err != nil {
		return nil, err
	}
	return c.try(ctx, r)
}

func (c *Client) try(ctx context.Context, r *request) (*Lock, error) {
	if !c.trying.enter(ctx, c.closing) {
		return nil, c.why(ctx, r)
	}
	defer c.trying.leave()
	return c.acquire(ctx, r, false)
}

// A request is what an acquire asks for.
type request struct {
	key      string
	options  acquireOptions
	seenHeld bool // someone else was seen to have the lock
}

func newRequest(key string, opts []AcquireOption) (*request, error) {
	r := &request{key: key}
	withoutNUL(&r.options.err, "key", key)
	for _, option := range opts {
		option(&r.options)
	}
	return r, r.options.err
}

// acquire makes the call of C's, with the context's deadline for its own if it
// is one that waits.
func (c *Client) acquire(ctx context.Context, r *request, waits bool) (*Lock, error) {
	if ctx.Err() != nil {
		return nil, c.why(ctx, r)
	}
	wait, bounded := C.uint64_t(0), false
	if waits {
		wait = C.DL_WAIT_FOREVER
		if deadline, ok := ctx.Deadline(); ok {
			wait, bounded = wholeMillis(time.Until(deadline)), true
		}
	}

	client, err := c.enter()
	if err != nil {
		return nil, err
	}
	defer c.leave()
	cancel := newCancel()
	defer cancel.free()
	defer context.AfterFunc(c.closing, cancel.fire)()
	defer context.AfterFunc(ctx, func() {
		// A deadline that the library knows is left to it: it alone can tell
		// whether the lock was held until then.
		if !(bounded && errors.Is(ctx.Err(), context.DeadlineExceeded)) {
			cancel.fire()
		}
	})()

	var memory texts
	defer memory.free()
	options := C.dl_acquire_options{
		size:        C.sizeof_dl_acquire_options,
		wait_ms:     wait,
		ttl_ms:      C.uint64_t(r.options.ttlMs),
		max_hold_ms: C.uint64_t(r.options.maxHoldMs),
		owner:       memory.add(r.options.owner),
		note:        memory.add(r.options.note),
		cancel:      cancel.handle,
		kind:        C.int32_t(r.options.kind),
		flags:       C.uint32_t(r.options.flags),
	}
	var handle *C.dl_lock
	var detail *C.dl_error
	status := C.dl_acquire(client, memory.add(&r.key), &options, &handle, &detail)
	switch {
	case cancel.fired():
		// The lock may have been granted in the same moment. Freeing it leaves
		// its release to the library's own thread, and does not block.
		C.dl_lock_free(handle)
		C.dl_error_free(detail)
		return nil, c.why(ctx, r)
	case status == 0:
		return newLock(c, handle, r.key), nil
	}
	failed := failure(status, detail)
	atEnd := failed.Status == StatusTimedOut || failed.Status == StatusUnavailable
	switch {
	case !atEnd || !deadlineHasPassed(ctx):
		return nil, failed
	case r.seenHeld: // by the try, if not by this call
		return nil, late(&Error{Status: StatusTimedOut})
	default:
		return nil, late(failed)
	}
}

// why tells what ended a call before it was done: its client or its context.
func (c *Client) why(ctx context.Context, r *request) error {
	if c.closing.Err() != nil {
		return closed()
	}
	return ended(ctx, r.seenHeld)
}

// A cancel is a token of C's. Its mutex lets fire come at any time, also when
// the call is over and the token freed.
type cancel struct {
	mu     sync.Mutex
	handle *C.dl_cancel
	done   bool
}

func newCancel() *cancel { return &cancel{handle: C.dl_cancel_new()} }

func (t *cancel) fire() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.done = true
	C.dl_cancel_fire(t.handle)
}

func (t *cancel) fired() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.done
}

func (t *cancel) free() {
	t.mu.Lock()
	defer t.mu.Unlock()
	C.dl_cancel_free(t.handle)
	t.handle = nil
}
