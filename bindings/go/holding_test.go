package dlease_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"example.com/dlease"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestALeaseIsRenewedUntilItIsReleased(t *testing.T) {
	forEachServer(t, func(t *testing.T, url string) {
		client, other, key := open(t, url), open(t, url), newKey(t)
		lock := acquire(t, client, key, dlease.WithTTL(400*time.Millisecond))
		held := lock.Context()
		for range 15 {
			time.Sleep(100 * time.Millisecond)
			wantHeld(t, other, key)
		}
		select {
		case <-lock.Lost():
			t.Fatal("lost")
		default:
		}
		if held.Err() != nil {
			t.Fatal(held.Err())
		}
		release(t, lock)
		<-held.Done()
		if cause := context.Cause(held); !errors.Is(cause, context.Canceled) || errors.Is(cause, dlease.ErrLost) {
			t.Error("released:", cause)
		}
		select {
		case <-lock.Lost():
			t.Error("a release is no loss")
		case <-time.After(50 * time.Millisecond):
		}
		release(t, acquire(t, other, key))
	})
}

func TestLossIsTold(t *testing.T) {
	forEachServer(t, func(t *testing.T, url string) {
		client, other := open(t, url), open(t, url)
		for name, lose := range map[string]func(key string){
			"by time":  func(string) {},
			"by force": func(key string) { must(t, other.ForceRelease(background, key)) },
		} {
			key := newKey(t)
			options := []dlease.AcquireOption{dlease.WithTTL(2 * time.Second)}
			if name == "by time" {
				options = []dlease.AcquireOption{dlease.WithTTL(300 * time.Millisecond), dlease.WithManualRenew()}
			}
			lock := acquire(t, client, key, options...)
			lose(key)
			select {
			case <-lock.Lost():
			case <-time.After(4 * time.Second):
				t.Fatal(name, "not told")
			}
			<-lock.Context().Done()
			if cause := context.Cause(lock.Context()); !errors.Is(cause, dlease.ErrLost) {
				t.Error(name, cause)
			}
			if lock.Held() {
				t.Error(name, "still held")
			}
			wantErr(t, lock.Release(background), dlease.ErrLost)
		}
		// And with its client.
		third := open(t, url)
		lock := acquire(t, third, newKey(t))
		must(t, third.Close())
		<-lock.Lost()
	})
}

func TestMaxHoldEndsRenewal(t *testing.T) {
	forEachServer(t, func(t *testing.T, url string) {
		lock := acquire(t, open(t, url), newKey(t), dlease.WithTTL(300*time.Millisecond), dlease.WithMaxHold(800*time.Millisecond))
		begin := time.Now()
		<-lock.Lost()
		if took := time.Since(begin); took < 600*time.Millisecond || took > 2*time.Second {
			t.Error(took)
		}
	})
}

func TestAForgottenLockIsRenewedNoMore(t *testing.T) {
	forEachServer(t, func(t *testing.T, url string) {
		client, other, key := open(t, url), open(t, url), newKey(t)
		acquire(t, client, key, dlease.WithTTL(time.Second))
		deadline := time.Now().Add(10 * time.Second)
		for {
			runtime.GC()
			lock, err := other.TryAcquire(background, key)
			if err == nil {
				release(t, lock)
				return
			}
			if time.Now().After(deadline) {
				t.Fatal("it is still renewed:", err)
			}
			time.Sleep(20 * time.Millisecond)
		}
	})
}

func TestPeekAndForce(t *testing.T) {
	forEachServer(t, func(t *testing.T, url string) {
		client, other, key := open(t, url), open(t, url), newKey(t)
		found, err := other.Peek(background, key)
		if found != nil || err != nil {
			t.Fatal(found, err)
		}
		wantErr(t, other.ForceRelease(background, key), dlease.ErrNotHeld)
		lock := acquire(t, client, key, dlease.WithOwner("me"), dlease.WithNote("page Ada"))
		found, err = other.Peek(background, key)
		if err != nil {
			t.Fatal(err)
		}
		if found.Token != lock.Token() || found.Owner != "me" || found.Note != "page Ada" || found.PID == 0 ||
			found.TTL != 30*time.Second || found.Remaining <= 25*time.Second || found.Holds != 1 || found.Host == "" {
			t.Errorf("%+v", found)
		}
		must(t, other.ForceRelease(background, key))
		wantErr(t, lock.Renew(background, 0), dlease.ErrLost)
		_, err = other.Peek(background, key, dlease.KindRow)
		wantErr(t, err, dlease.ErrUnsupported)
		_, err = other.Peek(background, "")
		wantErr(t, err, dlease.ErrInvalidArgument)
		ended, cancel := context.WithCancel(background)
		cancel()
		_, err = other.Peek(ended, key)
		wantErr(t, err, context.Canceled)
	})
}

func TestGuardSQL(t *testing.T) {
	forEachServer(t, func(t *testing.T, url string) {
		lock := acquire(t, open(t, url), newKey(t))
		text, err := lock.GuardSQL()
		if err != nil || len(text) < 50 {
			t.Fatal(text, err)
		}
		release(t, lock)
		_, err = lock.GuardSQL()
		wantErr(t, err, dlease.ErrNotHeld)
	})
}
