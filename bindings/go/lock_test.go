package dlease_test

import (
	"context"
	"errors"
	"math"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"example.com/dlease"
)

func TestOneHolder(t *testing.T) {
	forEachServer(t, func(t *testing.T, url string) {
		one, other, key := open(t, url), open(t, url), newKey(t)
		first := acquire(t, one, key)
		if first.Key() != key || first.Token() == 0 || !first.Held() {
			t.Errorf("got %q, token %d, held %v", first.Key(), first.Token(), first.Held())
		}
		if left := first.Remaining(); left <= 25*time.Second || left > 30*time.Second {
			t.Errorf("remaining %v of 30 s", left)
		}
		wantHeld(t, other, key)
		wantHeld(t, one, key)
		release(t, first)
		if first.Held() || first.Remaining() != 0 || first.Token() == 0 {
			t.Error("still held after its release")
		}
		second := acquire(t, other, key)
		if second.Token() <= first.Token() {
			t.Errorf("token %d after %d", second.Token(), first.Token())
		}
		// A second release does nothing, and to the next holder least of all.
		err := first.Release(background)
		wantErr(t, err, dlease.ErrNotHeld)
		if errors.Is(err, dlease.ErrLost) {
			t.Error("a released lock is lost:", err)
		}
		wantErr(t, first.Renew(background, 0), dlease.ErrNotHeld)
		wantHeld(t, one, key)
		release(t, second)
	})
}

func TestRenew(t *testing.T) {
	forEachServer(t, func(t *testing.T, url string) {
		client := open(t, url)
		lock := acquire(t, client, newKey(t), dlease.WithTTL(5*time.Second))
		for _, renew := range []struct{ ttl, more, most time.Duration }{
			{20 * time.Second, 15 * time.Second, 20 * time.Second},
			{366 * day, 360 * day, 366 * day}, // more than 2^31 ms
			{10 * time.Second, 8 * time.Second, 10 * time.Second},
			{0, 3 * time.Second, 5 * time.Second}, // the TTL of the acquire
		} {
			if err := lock.Renew(background, renew.ttl); err != nil {
				t.Fatal(err)
			}
			if left := lock.Remaining(); left < renew.more || left > renew.most {
				t.Errorf("remaining %v after a renewal for %v", left, renew.ttl)
			}
		}
		for _, ttl := range []time.Duration{-1, math.MinInt64, 1, 9 * time.Millisecond, math.MaxInt64} {
			wantErr(t, lock.Renew(background, ttl), dlease.ErrInvalidArgument)
		}
		ctx, cancel := context.WithCancel(background)
		cancel()
		wantErr(t, lock.Renew(ctx, 0), context.Canceled)
		if !lock.Held() {
			t.Error("lost by renewals that were refused")
		}
		release(t, lock)
	})
}

func TestALateReleaseTellsAndFreesNobodyElse(t *testing.T) {
	forEachServer(t, func(t *testing.T, url string) {
		client, other, key := open(t, url), open(t, url), newKey(t)
		first := acquire(t, client, key, dlease.WithTTL(300*time.Millisecond), dlease.WithManualRenew())
		done := make(chan struct{})
		var second *dlease.Lock
		go func() { // on the same client
			defer close(done)
			second, _ = client.Acquire(within(t, 10*time.Second), key)
		}()
		time.Sleep(600 * time.Millisecond)
		<-done
		if second == nil || first.Held() || first.Remaining() != 0 {
			t.Fatalf("second %v, first held %v", second, first.Held())
		}
		wantErr(t, first.Renew(background, 0), dlease.ErrLost, dlease.ErrNotHeld)
		wantErr(t, first.Release(background), dlease.ErrLost, dlease.ErrNotHeld)
		err := first.Release(background)
		wantErr(t, err, dlease.ErrLost)
		if !strings.Contains(err.Error(), "lost: expired") {
			t.Error("no cause in:", err)
		}
		if !second.Held() {
			t.Error("freed by the late release")
		}
		wantHeld(t, other, key)
		release(t, second)
	})
}

func TestWhoGaveUpWaitingFreesNobody(t *testing.T) {
	forEachServer(t, func(t *testing.T, url string) {
		client, key := open(t, url), newKey(t)
		lock := acquire(t, client, key)
		waiter, err := client.Acquire(within(t, 300*time.Millisecond), key)
		wantErr(t, err, dlease.ErrTimeout)
		if waiter != nil {
			t.Error("a lock to release after a time-out")
		}
		wantHeld(t, open(t, url), key)
		release(t, lock)
	})
}

func TestTheSameOwnerSharesAGrant(t *testing.T) {
	forEachServer(t, func(t *testing.T, url string) {
		client, other, key := open(t, url), open(t, url), newKey(t)
		owner := dlease.WithOwner("owner of " + key)
		first := acquire(t, client, key, owner)
		second := acquire(t, client, key, owner)
		third := acquire(t, other, key, owner)
		if second.Token() != first.Token() || third.Token() != first.Token() {
			t.Errorf("tokens %d, %d, %d", first.Token(), second.Token(), third.Token())
		}
		release(t, first)
		wantErr(t, first.Release(background), dlease.ErrNotHeld)
		release(t, third)
		wantHeld(t, other, key)
		release(t, second)
		wantFree(t, other, key, 2*time.Second)
	})
}

func TestAnyKeyButNUL(t *testing.T) {
	forEachServer(t, func(t *testing.T, url string) {
		client, base := open(t, url), newKey(t)
		var locks []*dlease.Lock
		for _, tail := range []string{"", " ", "a", "A", "\xff\xfe", "\xff\xff", "é", "e\u0301",
			"😀", "漢", "\n", strings.Repeat("k", 255-len(base))} {
			locks = append(locks, acquire(t, client, base+tail)) // each is free
		}
		for _, lock := range locks {
			wantHeld(t, client, lock.Key())
			release(t, lock)
		}
	})
}

func TestNothingIsTiedToAThreadOrGoroutine(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(8))
	forEachServer(t, func(t *testing.T, url string) {
		client, key := open(t, url), newKey(t)
		owner := dlease.WithOwner("owner of " + key)
		// Each step runs on a thread of its own, which ends with it.
		onOtherThread := func(step func()) {
			done := make(chan struct{})
			go func() {
				defer close(done)
				runtime.LockOSThread()
				step()
			}()
			<-done
		}
		for range 20 {
			var lock, inner *dlease.Lock
			var err error
			onOtherThread(func() { lock, err = client.TryAcquire(background, key, owner) })
			if err != nil {
				t.Fatal(err)
			}
			onOtherThread(func() { err = lock.Renew(background, time.Minute) })
			if err != nil || lock.Remaining() < 30*time.Second {
				t.Fatal(err, lock.Remaining())
			}
			onOtherThread(func() { inner, err = client.TryAcquire(background, key, owner) })
			if err != nil || inner.Token() != lock.Token() {
				t.Fatal(err)
			}
			onOtherThread(func() { err = inner.Release(background) })
			if err != nil || !lock.Held() {
				t.Fatal(err)
			}
			runtime.Gosched()
			onOtherThread(func() { err = lock.Release(background) })
			if err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestOneLockUsedByManyGoroutines(t *testing.T) {
	forEachServer(t, func(t *testing.T, url string) {
		client, key := open(t, url), newKey(t)
		lock := acquire(t, client, key)
		var wg sync.WaitGroup
		released := make(chan error, 8)
		for range 8 {
			wg.Add(1)
			go func() {
				defer wg.Done()
				for range 20 {
					if err := lock.Renew(background, 0); err != nil && !errors.Is(err, dlease.ErrNotHeld) {
						t.Error(err)
					}
					lock.Held()
					lock.Remaining()
				}
				released <- lock.Release(background)
			}()
		}
		wg.Wait()
		close(released)
		good := 0
		for err := range released {
			if err == nil {
				good++
			} else if !errors.Is(err, dlease.ErrNotHeld) || errors.Is(err, dlease.ErrLost) {
				t.Error(err)
			}
		}
		if good != 1 {
			t.Errorf("%d of 8 releases released", good)
		}
		wantFree(t, client, key, 2*time.Second)
	})
}

func TestReleaseDoesNotDependOnItsContext(t *testing.T) {
	forEachServer(t, func(t *testing.T, url string) {
		client, key := open(t, url), newKey(t)
		ctx, cancel := context.WithCancel(background)
		cancel()
		for range 20 {
			lock := acquire(t, client, key)
			if err := lock.Release(ctx); err != nil {
				wantErr(t, err, context.Canceled)
			}
			wantFree(t, client, key, 2*time.Second)
		}
	})
}

func TestAForgottenLockAndClientAreFreed(t *testing.T) {
	forEachServer(t, func(t *testing.T, url string) {
		client, key := open(t, url), newKey(t)
		func() { acquire(t, client, key, dlease.WithTTL(time.Hour)) }()
		func() {
			forgotten, err := dlease.Open(url)
			if err != nil {
				t.Fatal(err)
			}
			acquire(t, forgotten, key+" 2", dlease.WithTTL(time.Hour))
		}()
		for _, key := range []string{key, key + " 2"} {
			start := time.Now()
			for {
				runtime.GC()
				lock, err := client.TryAcquire(background, key)
				if err == nil {
					release(t, lock)
					break
				}
				wantErr(t, err, dlease.ErrNotAcquired)
				wantWithin(t, start, 10*time.Second)
				time.Sleep(10 * time.Millisecond)
			}
		}
	})
}
