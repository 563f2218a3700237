package dlease_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"example.com/dlease"
)

func TestDo(t *testing.T) {
	forEachServer(t, func(t *testing.T, url string) {
		client, other, key := open(t, url), open(t, url), newKey(t)
		failed := errors.New("the work failed")
		for _, want := range []error{nil, failed} {
			err := client.Do(background, key, func(ctx context.Context) error {
				wantHeld(t, other, key)
				if ctx.Err() != nil {
					t.Error(ctx.Err())
				}
				return want
			})
			if err != want {
				t.Errorf("got %v, want %v", err, want)
			}
			wantFree(t, other, key, time.Second)
		}
		// Not acquired: not run.
		lock := acquire(t, other, key)
		err := client.Do(within(t, 200*time.Millisecond), key, func(context.Context) error {
			t.Error("run without the lock")
			return nil
		})
		wantErr(t, err, dlease.ErrTimeout, context.DeadlineExceeded)
		release(t, lock)
		// The end of the caller's context is passed on, and the lock released.
		ctx, cancel := context.WithCancel(background)
		err = client.Do(ctx, key, func(ctx context.Context) error {
			cancel()
			<-ctx.Done()
			return context.Cause(ctx)
		})
		if err != context.Canceled {
			t.Errorf("got %v", err)
		}
		wantFree(t, other, key, time.Second)
	})
}

func TestDoTellsOfALoss(t *testing.T) {
	forEachServer(t, func(t *testing.T, url string) {
		client, key := open(t, url), newKey(t)
		failed := errors.New("the work failed")
		start := time.Now()
		err := client.Do(background, key, func(ctx context.Context) error {
			<-ctx.Done()
			wantErr(t, context.Cause(ctx), dlease.ErrLost)
			return failed
		}, dlease.WithTTL(500*time.Millisecond), dlease.WithManualRenew())
		wantErr(t, err, failed, dlease.ErrLost)
		wantWithin(t, start, 2*time.Second)

		// By the closing of the client, long before the lease's end.
		start = time.Now()
		err = client.Do(background, key, func(ctx context.Context) error {
			go client.Close()
			<-ctx.Done()
			return nil
		})
		wantErr(t, err, dlease.ErrLost)
		wantWithin(t, start, 5*time.Second)
	})
}

func TestAPanicReleasesTheLockOfDo(t *testing.T) {
	forEachServer(t, func(t *testing.T, url string) {
		client, key := open(t, url), newKey(t)
		func() {
			defer func() {
				if got := recover(); got != "planted" {
					t.Errorf("recovered %v", got)
				}
			}()
			client.Do(background, key, func(context.Context) error { panic("planted") })
		}()
		wantFree(t, client, key, time.Second)
	})
}

func TestLocker(t *testing.T) {
	forEachServer(t, func(t *testing.T, url string) {
		one, other, key := open(t, url), open(t, url), newKey(t)
		lockers := []sync.Locker{one.Locker(key), one.Locker(key), other.Locker(key)}
		inside, sum := 0, 0 // unprotected, for the race detector to see
		var wg sync.WaitGroup
		for i := range 6 {
			wg.Add(1)
			go func() {
				defer wg.Done()
				for range 10 {
					locker := lockers[i%3]
					locker.Lock()
					if inside++; inside != 1 {
						t.Error("two inside")
					}
					sum++
					inside--
					locker.Unlock()
				}
			}()
		}
		wg.Wait()
		if sum != 60 {
			t.Errorf("%d of 60 turns", sum)
		}
	})
}

func TestALockerPanicsWithItsErrors(t *testing.T) {
	forEachServer(t, func(t *testing.T, url string) {
		client := open(t, url, dlease.WithDefaultTTL(200*time.Millisecond))
		key := newKey(t)
		locker := client.Locker(key)
		panics := func(call func(), want error) {
			t.Helper()
			defer func() {
				err, _ := recover().(error)
				wantErr(t, err, want)
			}()
			call()
		}
		panics(locker.Unlock, dlease.ErrNotHeld)
		locker.Lock()
		must(t, client.ForceRelease(background, key))
		panics(locker.Unlock, dlease.ErrLost)
		locker.Lock() // and goes on working
		locker.Unlock()
		client.Close()
		panics(locker.Lock, dlease.ErrClosed)
		panics(client.Locker("").Lock, dlease.ErrClosed)
	})
}
