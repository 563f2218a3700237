// Acquiring: a context's end on one side, an acquire begun in C on the other.

package dlease

/*
#include <stdlib.h>
#include <dlease.h>
*/
import "C"

import (
	"context"
	"errors"
	"time"
)

// Acquire acquires the lock of this key, 1 to 255 bytes, any but NUL, compared
// byte for byte. It blocks until the lock is there or the context ends; without
// a deadline it waits for ever. Those who wait are served first come, first
// served, and take no OS thread.
//
// Errors: [ErrTimeout] with context.DeadlineExceeded if someone else had the
// lock until the context's deadline; [ErrUnavailable] with the same if the
// server was not reached until then; context.Canceled; at once
// [ErrInvalidArgument], [ErrConfig], [ErrUnsupported]; [ErrServer] if the
// server refused; [ErrClosed], [ErrForked]. Never a lock together with an
// error.
func (c *Client) Acquire(ctx context.Context, key string, opts ...AcquireOption) (*Lock, error) {
	return c.acquire(ctx, key, true, opts)
}

// TryAcquire makes one try. It blocks for the lesser of the client's I/O
// timeout and the TTL at most, and until the context ends.
//
// Errors: [ErrNotAcquired] if someone else has the lock; [ErrUnavailable] if the
// server was not reached (with context.DeadlineExceeded if the context ended
// it); the others as from [Client.Acquire].
func (c *Client) TryAcquire(ctx context.Context, key string, opts ...AcquireOption) (*Lock, error) {
	return c.acquire(ctx, key, false, opts)
}

// acquire begins an acquire in C, with the context's deadline for its own if it
// is one that waits, and waits for its outcome in Go.
func (c *Client) acquire(ctx context.Context, key string, waits bool, opts []AcquireOption) (*Lock, error) {
	var o acquireOptions
	withoutNUL(&o.err, "key", key)
	for _, option := range opts {
		option(&o)
	}
	if o.err != nil {
		return nil, o.err
	}
	if ctx.Err() != nil {
		return nil, c.why(ctx)
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
	cancel := C.dl_cancel_new()
	defer C.dl_cancel_free(cancel)
	came, err := c.begin(client, key, &o, wait, cancel)
	if err != nil {
		return nil, err
	}
	ends := ctx.Done()
	for {
		select {
		case got := <-came:
			return c.outcome(ctx, key, got)
		case <-c.closing.Done():
		case <-ends:
			// A deadline that the library knows is left to it: it alone can tell
			// whether the lock was held until then.
			if bounded && errors.Is(ctx.Err(), context.DeadlineExceeded) {
				ends = nil
				continue
			}
		}
		// The outcome is there when this returns, if it was not before.
		C.dl_cancel_fire(cancel)
		got := <-came
		// The lock may have been granted in the same moment. Freeing it leaves
		// its release to the library's own thread, and does not block.
		if got.loss != nil {
			c.events.release(got.loss.tag)
		}
		C.dl_lock_free(got.lock)
		C.dl_error_free(got.detail)
		return nil, c.why(ctx)
	}
}

// begin begins the acquire. That does not block, but takes an OS thread for a
// moment: only some at a time.
func (c *Client) begin(client *C.dl_client, key string, o *acquireOptions, wait C.uint64_t,
	cancel *C.dl_cancel) (chan outcome, error) {
	c.beginning <- struct{}{}
	defer c.beginning.leave()
	tag, came, err := c.events.expect()
	if err != nil {
		return nil, err
	}
	var memory texts
	defer memory.free()
	options := C.dl_acquire_options{
		size:        C.sizeof_dl_acquire_options,
		wait_ms:     wait,
		ttl_ms:      C.uint64_t(o.ttlMs),
		max_hold_ms: C.uint64_t(o.maxHoldMs),
		owner:       memory.add(o.owner),
		note:        memory.add(o.note),
		cancel:      cancel,
		kind:        C.int32_t(o.kind),
		flags:       C.uint32_t(o.flags),
	}
	var detail *C.dl_error
	status := C.dl_acquire_async(client, memory.add(&key), &options, C.uint64_t(tag), &detail)
	if status != 0 {
		c.events.forget(tag)
		return nil, failure(status, detail)
	}
	return came, nil
}

// outcome is what an acquire returns that has come to its end.
func (c *Client) outcome(ctx context.Context, key string, got outcome) (*Lock, error) {
	if got.status == 0 {
		return newLock(c, got, key), nil
	}
	failed := failure(got.status, got.detail)
	atEnd := failed.Status == StatusTimedOut || failed.Status == StatusUnavailable
	if atEnd && deadlineHasPassed(ctx) {
		return nil, late(failed)
	}
	return nil, failed
}

// why tells what ended a call before it was done: its client or its context.
func (c *Client) why(ctx context.Context) error {
	if c.closing.Err() != nil {
		return closed()
	}
	return ended(ctx)
}
