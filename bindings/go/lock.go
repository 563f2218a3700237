// The lock: what a holder asks, renews and releases.

package dlease

// #include <dlease.h>
import "C"

import (
	"context"
	"database/sql"
	"errors"
	"math"
	"runtime"
	"time"
)

// A Lock is a lock that was acquired. All its methods may be called from any
// goroutines at the same time. Keep it reachable for as long as it is to be
// held: one that is garbage collected is released.
type Lock struct {
	client *Client // kept open by its locks, and has places for their calls
	handle *C.dl_lock
	key    string
	token  uint64
	loss   *loss
}

func newLock(c *Client, got outcome, key string) *Lock {
	l := &Lock{client: c, handle: got.lock, key: key, token: uint64(C.dl_lock_token(got.lock)), loss: got.loss}
	// The handle is freed by this alone, so that no method can find it gone.
	events := c.events
	runtime.AddCleanup(l, func(got outcome) {
		if events.release(got.loss.tag) != nil {
			got.loss.endHeld(nil)
		}
		C.dl_lock_free(got.lock)
	}, got)
	return l
}

// Key is the lock's key. Does not block.
func (l *Lock) Key() string { return l.key }

// Token is the fencing token: greater than that of every earlier grant of the
// key. It stays when the lock has ended. Does not block.
func (l *Lock) Token() uint64 { return l.token }

// Held tells whether the lock is held, exactly and at any moment. Needs no
// network, and does not block.
func (l *Lock) Held() bool {
	held := C.dl_lock_state(l.handle) == C.DL_STATUS_OK
	runtime.KeepAlive(l)
	return held
}

// Remaining is how much of the lease is left by the server's clock at least, in
// whole milliseconds; 0 once the lock is not held. Needs no network, and does
// not block.
func (l *Lock) Remaining() time.Duration {
	ms := uint64(C.dl_lock_remaining_ms(l.handle))
	runtime.KeepAlive(l)
	// Kinds without an end say so by the greatest number.
	return time.Duration(min(ms, math.MaxInt64/uint64(time.Millisecond))) * time.Millisecond
}

// Lost gives a channel that is closed when the lock is lost: at its own deadline
// at the latest, whatever the network does, and earlier when a renewal shows it.
// It stays open when the lock is released. Does not block.
func (l *Lock) Lost() <-chan struct{} { return l.loss.lost }

// Context gives a context that is cancelled when the lock is lost, with [ErrLost]
// as its cause, and when it is released. Does not block.
func (l *Lock) Context() context.Context { return l.loss.held }

// GuardSQL gives the text of the guard: one locking read, for a transaction of
// the caller's own on any driver, first thing in it. One row comes back if this
// lock is still the last grant of its key, and until that transaction ends no
// later grant can be made. No row: roll back at once, the lock is lost. It does
// not reach autocommit, XA, Galera and groups with several primaries, and is gone
// after DDL, a second BEGIN, or a deadlock that was caught. Needs no network, and
// does not block.
//
// Errors: [ErrLost], [ErrNotHeld], [ErrForked].
func (l *Lock) GuardSQL() (string, error) {
	var length C.size_t
	C.dl_lock_guard_sql(l.handle, nil, 0, &length, nil)
	text := make([]C.char, length+1)
	var detail *C.dl_error
	status := C.dl_lock_guard_sql(l.handle, &text[0], length+1, &length, &detail)
	if err := l.result(status, detail); err != nil {
		return "", err
	}
	return C.GoStringN(&text[0], C.int(length)), nil
}

// Guard runs the guard in tx, as its first statement: see [Lock.GuardSQL]. With an
// error the transaction is to be rolled back at once. It blocks for a round trip,
// and while a later grant is being made.
//
// Errors: [ErrLost] if the lock is lost; [ErrNotHeld] if it was released; those of
// the driver, of which the server's 1205, 1213 and 1020 mean "begin again".
func (l *Lock) Guard(ctx context.Context, tx *sql.Tx) error {
	text, err := l.GuardSQL()
	if err != nil {
		return err
	}
	var token uint64
	err = tx.QueryRowContext(ctx, text).Scan(&token)
	if errors.Is(err, sql.ErrNoRows) {
		return &Error{Status: StatusNotHeld, lost: true, text: "the lock is lost: the guard found a later grant, or a server that takes no writes"}
	}
	return err
}

// Renew has the lease run for ttl from now: 10 ms to 366 days, in whole
// milliseconds (a fraction is cut off); 0 means the TTL that it was acquired
// with. One with an owner text is never shortened. It blocks for a round trip,
// for the client's I/O timeout and the lease at most, and until the context
// ends; with a context that has ended before, it does nothing.
//
// Errors: [ErrLost] if the lock was lost, [ErrNotHeld] if it was released;
// [ErrUnavailable] if the server was not reached, with the lease as it was;
// [ErrInvalidArgument], [ErrServer], [ErrConfig], [ErrClosed], [ErrForked]. At
// the context's end context.Canceled, or [ErrUnavailable] with
// context.DeadlineExceeded; the renewal may take place all the same.
func (l *Lock) Renew(ctx context.Context, ttl time.Duration) error {
	var ttlMs uint64
	if ttl != 0 {
		var err error
		if ttlMs = millis(&err, "TTL", ttl); err != nil {
			return err
		}
	}
	if ctx.Err() != nil {
		return ended(ctx)
	}
	return l.client.await(ctx, func() error {
		var detail *C.dl_error
		status := C.dl_renew(l.handle, C.uint64_t(ttlMs), &detail)
		return l.result(status, detail)
	})
}

// Release releases the lock, whatever becomes of the context, which only bounds
// how long the answer is waited for. It blocks for a round trip, for the
// client's I/O timeout at most, and until the context ends.
//
// Errors: [ErrNotHeld] if the lock was released before, [ErrLost] if it had
// been lost; both without effect on whoever holds it now. [ErrUnavailable] if
// the server was not reached: Release may be called again. [ErrServer],
// [ErrConfig], [ErrClosed], [ErrForked]. At the context's end context.Canceled,
// or [ErrUnavailable] with context.DeadlineExceeded; the release goes on by
// itself, but not beyond the end of the process.
func (l *Lock) Release(ctx context.Context) error {
	return l.client.await(ctx, func() error {
		var detail *C.dl_error
		status := C.dl_release(l.handle, &detail)
		err := l.result(status, detail)
		if err == nil && l.client.events.release(l.loss.tag) != nil {
			l.loss.endHeld(nil)
		}
		return err
	})
}

// result makes an error of what a call on the lock returned.
func (l *Lock) result(status C.dl_status, detail *C.dl_error) error {
	defer runtime.KeepAlive(l)
	if status == 0 {
		return nil
	}
	err := failure(status, detail)
	if cause := C.dl_lock_lost_cause(l.handle); status == C.DL_STATUS_NOT_HELD && cause != C.DL_LOST_NOT {
		err.lost, err.text = true, "the lock is lost: "+causes[cause]
	}
	return err
}

var causes = map[C.int32_t]string{
	C.DL_LOST_EXPIRED:     "expired",
	C.DL_LOST_UNREACHABLE: "unreachable",
	C.DL_LOST_TAKEN:       "taken",
	C.DL_LOST_FORCED:      "forced",
	C.DL_LOST_ROW_GONE:    "row gone",
	C.DL_LOST_CONNECTION:  "connection",
	C.DL_LOST_FORKED:      "forked",
	C.DL_LOST_CLOSED:      "closed",
	C.DL_LOST_MAX_HOLD:    "max hold",
}

// whileHeld derives a context that is cancelled when the lock is lost, with
// ErrLost as its cause. To be ended by stop.
func (l *Lock) whileHeld(ctx context.Context) (held context.Context, stop context.CancelFunc) {
	held, cancel := context.WithCancelCause(ctx)
	unwatch := context.AfterFunc(l.loss.held, func() { cancel(context.Cause(l.loss.held)) })
	return held, func() { unwatch(); cancel(nil) }
}
