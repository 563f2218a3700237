// Closing, and many callers at a time.

package dlease_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"sync"
	"testing"
	"time"

	"example.com/dlease"
)

func TestPing(t *testing.T) {
	forEachServer(t, func(t *testing.T, url string) {
		client := open(t, url)
		for _, ctx := range []context.Context{background, within(t, time.Minute)} {
			if err := client.Ping(ctx); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestAClosedClient(t *testing.T) {
	forEachServer(t, func(t *testing.T, url string) {
		client, other, key := open(t, url), open(t, url), newKey(t)
		lock := acquire(t, client, key, dlease.WithTTL(time.Hour))
		var wg sync.WaitGroup
		for range 4 {
			wg.Add(1)
			go func() { defer wg.Done(); client.Close() }()
		}
		wg.Wait()
		if err := client.Close(); err != nil {
			t.Fatal(err)
		}
		for _, err := range []error{
			second(client.Acquire(background, key)), second(client.TryAcquire(background, key)),
			client.Ping(background), lock.Renew(background, 0), lock.Release(background),
			client.Do(background, key, func(context.Context) error { return nil }),
		} {
			wantErr(t, err, dlease.ErrClosed)
		}
		if lock.Held() || lock.Remaining() != 0 || lock.Token() == 0 || lock.Key() != key {
			t.Error("the lock of a closed client")
		}
		wantFree(t, other, key, 2*time.Second)
	})
}

func TestCloseEndsThoseWhoWait(t *testing.T) {
	forEachServer(t, func(t *testing.T, url string) {
		client, other, key := open(t, url), open(t, url), newKey(t)
		lock := acquire(t, other, key)
		results := make(chan error, 200) // more than have a place in C
		for range cap(results) {
			go func() { results <- second(client.Acquire(background, key)) }()
		}
		time.Sleep(500 * time.Millisecond)
		start := time.Now()
		client.Close()
		for range cap(results) {
			wantErr(t, <-results, dlease.ErrClosed)
		}
		wantWithin(t, start, 5*time.Second)
		release(t, lock)
	})
}

func TestClosingWhileCallsBegin(t *testing.T) {
	forEachServer(t, func(t *testing.T, url string) {
		key := newKey(t)
		for round := range 10 {
			client := open(t, url)
			var wg sync.WaitGroup
			for range 8 {
				wg.Add(1)
				go func() {
					defer wg.Done()
					for {
						lock, err := client.Acquire(background, key)
						if err == nil {
							client.Ping(background)
							err = lock.Release(background)
						}
						if err != nil {
							if !errors.Is(err, dlease.ErrClosed) {
								t.Error(err)
							}
							return
						}
					}
				}()
			}
			time.Sleep(time.Duration(round) * 5 * time.Millisecond)
			client.Close()
			wg.Wait()
		}
		wantFree(t, open(t, url), key, 5*time.Second)
	})
}

func TestManyWaitingGoroutinesTakeFewThreads(t *testing.T) {
	forEachServer(t, func(t *testing.T, url string) {
		client, key := open(t, url), newKey(t)
		lock := acquire(t, client, key, dlease.WithTTL(time.Minute))
		wait := times(6*time.Second, 20*time.Second)
		type result struct {
			err  error
			late time.Duration
		}
		results := make(chan result, times(2000, 12_000))
		for range cap(results) {
			go func() {
				ctx, cancel := context.WithTimeout(background, wait)
				defer cancel()
				_, err := client.Acquire(ctx, key)
				deadline, _ := ctx.Deadline()
				results <- result{err, time.Since(deadline)}
			}()
		}
		time.Sleep(wait / 3)
		if n := threads(t); n > 64 {
			t.Errorf("%d threads", n)
		}
		// Other keys, renewals and releases do not wait for those who wait.
		release(t, acquire(t, client, key+" free"))
		if err := lock.Renew(background, 0); err != nil {
			t.Error(err)
		}
		if n := len(results); n > 0 {
			t.Errorf("held up: %d of %d have left", n, cap(results))
		}
		for range cap(results) {
			r := <-results
			wantErr(t, r.err, dlease.ErrTimeout, context.DeadlineExceeded)
			if r.late < 0 || r.late > 5*time.Second { // the race detector is slow
				t.Fatalf("returned %v after the deadline", r.late)
			}
		}
		release(t, lock)
	})
}

func threads(t *testing.T) int {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`Threads:\s+(\d+)`).FindSubmatch(status)
	n, err := strconv.Atoi(string(found[1]))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestStatsCountWhatWasDone(t *testing.T) {
	forEachServer(t, func(t *testing.T, url string) {
		client, key := open(t, url), newKey(t)
		lock := acquire(t, client, key)
		_, err := client.Acquire(within(t, 100*time.Millisecond), key)
		wantErr(t, err, dlease.ErrTimeout)
		release(t, lock)
		s := client.Stats()
		if s.Grants != 1 || s.Waits != 1 || s.TimeOuts != 1 || s.Releases != 1 || s.Waiting != 0 {
			t.Errorf("%+v", s)
		}
		client.Close()
		if s := client.Stats(); s != (dlease.Stats{}) {
			t.Errorf("%+v after Close", s)
		}
	})
}

func TestThousandsWaitOnAsManyKeys(t *testing.T) {
	forEachServer(t, func(t *testing.T, url string) {
		client, holder, key := open(t, url), open(t, url), newKey(t)
		n := times(500, 2000)
		name := func(i int) string { return fmt.Sprintf("%s %d", key, i) }
		held := make([]*dlease.Lock, n)
		for i := range held {
			held[i] = acquire(t, holder, name(i), dlease.WithTTL(5*time.Minute))
		}
		errs := make(chan error, n)
		for i := range n {
			go func() {
				lock, err := client.Acquire(within(t, time.Minute), name(i))
				if err == nil {
					err = lock.Release(background)
				}
				errs <- err
			}()
		}
		for client.Stats().Waiting != uint64(n) {
			time.Sleep(10 * time.Millisecond)
		}
		if got := threads(t); got > 64 {
			t.Errorf("%d threads", got)
		}
		for _, lock := range held {
			release(t, lock)
		}
		for range n {
			if err := <-errs; err != nil {
				t.Error(err)
			}
		}
	})
}
