// Do and Locker: the lock around a piece of work, without a handle on it.

package dlease

import (
	"context"
	"errors"
	"sync"
	"time"
)

// Do acquires a lock as [Client.Acquire] does, runs work, and releases the lock
// again, also when work panics. The context that work gets is derived from ctx
// and is cancelled, with [ErrLost] as its cause, when the lock is lost; work
// should end then. The release does not depend on ctx and takes 5 s at most.
// The lease is renewed meanwhile, unless [WithManualRenew] says otherwise.
//
// Errors: those of Acquire, with work not run; else what work returned, joined
// with ErrLost if the lock was lost by the end of it, or with the error of a
// release that failed otherwise.
func (c *Client) Do(ctx context.Context, key string, work func(context.Context) error,
	opts ...AcquireOption) (err error) {
	lock, err := c.Acquire(ctx, key, opts...)
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		lost := !lock.Held() || c.closing.Err() != nil // which ends its locks
		failed := lock.Release(ctx)
		if lost && !errors.Is(failed, ErrLost) {
			failed = errors.Join(ErrLost, failed) // with its client, which was closed
		}
		if failed != nil {
			err = errors.Join(err, failed)
		}
	}()
	ctx, stop := lock.whileHeld(ctx)
	defer stop()
	return work(ctx)
}

// Locker gives the lock of this key as a sync.Locker, with the client's default
// TTL, and renewed while it is locked. Lock waits for ever. It and Unlock panic
// with any error: Unlock also if the lock was lost meanwhile.
//
// The goroutines that share one Locker exclude each other by a mutex of its
// own: who unlocks late, with the lease ended, never releases another's. Keep
// it reachable while it is locked, like a Lock.
func (c *Client) Locker(key string) sync.Locker { return &locker{client: c, key: key} }

type locker struct {
	client *Client
	key    string
	mu     sync.Mutex // held from Lock to Unlock
	lock   *Lock
}

func (l *locker) Lock() {
	l.mu.Lock()
	lock, err := l.client.Acquire(context.Background(), l.key)
	if err != nil {
		l.mu.Unlock()
		panic(err)
	}
	l.lock = lock
}

func (l *locker) Unlock() {
	lock := l.lock
	if lock == nil {
		panic(&Error{Status: StatusNotHeld})
	}
	l.lock = nil
	err := lock.Release(context.Background())
	l.mu.Unlock()
	if err != nil {
		panic(err)
	}
}
