// Deadlines and cancels.

package dlease_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"example.com/dlease"
)

func TestTheDeadlineOfAContext(t *testing.T) {
	forEachServer(t, func(t *testing.T, url string) {
		client, key := open(t, url), newKey(t)
		lock := acquire(t, client, key)
		start := time.Now()
		_, err := client.Acquire(within(t, 500*time.Millisecond), key)
		wantErr(t, err, dlease.ErrTimeout, context.DeadlineExceeded)
		if time.Since(start) < 500*time.Millisecond {
			t.Error("gave up early")
		}
		wantWithin(t, start, time.Second)

		// One that has passed: nothing is seen, and nothing is taken.
		release(t, lock)
		past, cancel := context.WithDeadline(background, time.Now().Add(-time.Second))
		defer cancel()
		for _, err := range []error{
			second(client.Acquire(past, key)), second(client.TryAcquire(past, key)), client.Ping(past),
		} {
			wantErr(t, err, dlease.ErrUnavailable, context.DeadlineExceeded)
		}
		wantFree(t, client, key, 2*time.Second)
	})
}

func TestADeadlineWithoutAServer(t *testing.T) {
	client := openDead(t)
	start := time.Now()
	_, err := client.Acquire(within(t, 300*time.Millisecond), "key")
	wantErr(t, err, dlease.ErrUnavailable, context.DeadlineExceeded)
	var detail *dlease.Error
	if !errors.As(err, &detail) || !detail.Retriable() {
		t.Errorf("not to be tried again: %v", err)
	}
	wantErr(t, client.Ping(within(t, 300*time.Millisecond)), dlease.ErrUnavailable)
	wantWithin(t, start, 2*time.Second)
	_, err = client.TryAcquire(within(t, 300*time.Millisecond), "key")
	wantErr(t, err, dlease.ErrUnavailable)
	wantWithin(t, start, 3*time.Second)
}

// A server that takes the connection and says nothing.
func TestASilentServer(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	client := open(t, fmt.Sprintf("mysql://user:secret@%s/database", listener.Addr()))
	for name, call := range map[string]func(context.Context) error{
		"Acquire":    func(ctx context.Context) error { return second(client.Acquire(ctx, "key")) },
		"TryAcquire": func(ctx context.Context) error { return second(client.TryAcquire(ctx, "key")) },
		"Ping":       client.Ping,
	} {
		start := time.Now()
		ctx, cancel := context.WithTimeout(background, 300*time.Millisecond)
		defer cancel()
		wantErr(t, call(ctx), dlease.ErrUnavailable, context.DeadlineExceeded)
		ctx, cancel = context.WithCancel(background)
		time.AfterFunc(200*time.Millisecond, cancel)
		wantErr(t, call(ctx), context.Canceled)
		if took := time.Since(start); took > 1500*time.Millisecond {
			t.Errorf("%s took %v", name, took)
		}
	}
	start := time.Now()
	client.Close()
	wantWithin(t, start, 8*time.Second) // the Ping that was left to itself takes 5
}

func TestACancelEndsAWaitAtOnce(t *testing.T) {
	forEachServer(t, func(t *testing.T, url string) {
		client, key := open(t, url), newKey(t)
		lock := acquire(t, client, key)
		for _, limit := range []time.Duration{0, time.Hour} { // without and with a deadline
			ctx, cancel := context.WithCancel(background)
			if limit > 0 {
				ctx, cancel = context.WithTimeout(background, limit)
			}
			time.AfterFunc(200*time.Millisecond, cancel)
			start := time.Now()
			_, err := client.Acquire(ctx, key)
			wantErr(t, err, context.Canceled)
			if errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
			wantWithin(t, start, time.Second)
			for _, err := range []error{
				second(client.Acquire(ctx, key)), second(client.TryAcquire(ctx, key)), client.Ping(ctx),
			} {
				wantErr(t, err, context.Canceled)
			}
		}
		release(t, lock)
	})
}

func TestAnInterruptedAcquireLeavesNothingHeld(t *testing.T) {
	forEachServer(t, func(t *testing.T, url string) {
		client, other, key := open(t, url), open(t, url), newKey(t)
		got, rounds := 0, times(300, 500)
		for range rounds {
			ctx, cancel := context.WithCancel(background)
			time.AfterFunc(rand.N(5*time.Millisecond), cancel)
			lock, err := client.Acquire(ctx, key)
			switch {
			case err == nil:
				got++
				release(t, lock)
			case lock != nil:
				t.Fatal("a lock and an error")
			default:
				wantErr(t, err, context.Canceled)
			}
			wantFree(t, other, key, 2*time.Second)
		}
		t.Logf("%d of %d acquired", got, rounds)
	})
}

func TestInterruptedCallsDoNotSpoilLaterOnes(t *testing.T) {
	forEachServer(t, func(t *testing.T, url string) {
		client, key := open(t, url), newKey(t)
		var wg sync.WaitGroup
		for i := range 200 {
			wg.Add(1)
			go func() {
				defer wg.Done()
				ctx, cancel := context.WithTimeout(background, rand.N(20*time.Millisecond))
				defer cancel()
				if lock, err := client.TryAcquire(ctx, fmt.Sprint(key, " ", i)); err == nil {
					lock.Release(background)
				}
			}()
		}
		wg.Wait()
		for i := range times(100, 200) {
			lock, err := client.TryAcquire(background, fmt.Sprint(key, " normal ", i))
			if err != nil {
				t.Fatalf("normal call %d: %v", i, err)
			}
			release(t, lock)
		}
	})
}

func TestCancelsHitNoInnocentCall(t *testing.T) {
	forEachServer(t, func(t *testing.T, url string) {
		client, key := open(t, url), newKey(t)
		held := acquire(t, client, key, dlease.WithTTL(time.Minute))
		var wg sync.WaitGroup
		for range times(200, 1000) {
			wg.Add(1)
			go func() {
				defer wg.Done()
				ctx, cancel := context.WithCancel(background)
				var fired time.Time
				timer := time.AfterFunc(rand.N(2*time.Second), func() { fired = time.Now(); cancel() })
				defer timer.Stop()
				_, err := client.Acquire(ctx, key)
				if !errors.Is(err, context.Canceled) {
					t.Errorf("got %v", err)
				} else if late := time.Since(fired); late > 500*time.Millisecond {
					t.Errorf("ended %v after its cancel", late)
				}
			}()
		}
		normal := 0
		for start := time.Now(); time.Since(start) < 2*time.Second; normal++ {
			lock, err := client.Acquire(within(t, 10*time.Second), fmt.Sprint(key, " normal"))
			if err != nil {
				t.Fatal("a normal call: ", err)
			}
			if err := lock.Renew(background, 0); err != nil {
				t.Fatal("a normal call: ", err)
			}
			release(t, lock)
		}
		wg.Wait()
		t.Logf("%d normal calls", normal)
		release(t, held)
		wantFree(t, client, key, 2*time.Second)
	})
}

func second(_ *dlease.Lock, err error) error { return err }
