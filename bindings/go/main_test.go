// What the tests share. They run against the servers that DLEASE_TEST_URLS
// names, blank-separated: each test as a subtest for each server.

package dlease_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/signal"
	"runtime"
	"runtime/pprof"
	"strings"
	"testing"
	"time"

	"example.com/dlease"
)

// TestMain runs all tests, and fails if they left goroutines behind.
func TestMain(m *testing.M) {
	// os/signal keeps a goroutine for good once it was used, as a test does.
	interrupts := make(chan os.Signal, 1)
	signal.Notify(interrupts, os.Interrupt)
	signal.Stop(interrupts)
	before := runtime.NumGoroutine()
	code := m.Run()
	for end := time.Now().Add(10 * time.Second); runtime.NumGoroutine() > before; {
		if time.Now().After(end) {
			fmt.Fprintf(os.Stderr, "goroutines: %d before the tests, %d after\n",
				before, runtime.NumGoroutine())
			pprof.Lookup("goroutine").WriteTo(os.Stderr, 1)
			os.Exit(1)
		}
		time.Sleep(10 * time.Millisecond)
	}
	os.Exit(code)
}

var background = context.Background()

// times is how often or for how long something is done: in `make test`, and in
// `make test-long`.
func times[T any](short, long T) T {
	if os.Getenv("DLEASE_LONG") != "" {
		return long
	}
	return short
}

func forEachServer(t *testing.T, test func(t *testing.T, url string)) {
	urls := strings.Fields(os.Getenv("DLEASE_TEST_URLS"))
	if len(urls) == 0 {
		t.Fatal("DLEASE_TEST_URLS names no server: set it to mysql:// URLs, blank-separated")
	}
	for i, text := range urls {
		name := fmt.Sprint("server", i+1)
		if parsed, err := url.Parse(text); err == nil && parsed.Host != "" {
			name = parsed.Host
		}
		t.Run(name, func(t *testing.T) { test(t, text) })
	}
}

func open(t *testing.T, url string, opts ...dlease.Option) *dlease.Client {
	t.Helper()
	client, err := dlease.Open(url, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

// openDead gives a client whose server is not there: port 1 refuses.
func openDead(t *testing.T) *dlease.Client {
	t.Helper()
	return open(t, "mysql://user:secret@127.0.0.1:1/database")
}

// newKey gives a key that no other test and no other run uses.
func newKey(t *testing.T) string {
	name, _, _ := strings.Cut(t.Name(), "/")
	return fmt.Sprintf("%s %d", name, time.Now().UnixNano())
}

func acquire(t *testing.T, c *dlease.Client, key string, opts ...dlease.AcquireOption) *dlease.Lock {
	t.Helper()
	lock, err := c.Acquire(within(t, 30*time.Second), key, opts...)
	if err != nil {
		t.Fatalf("acquire %q: %v", key, err)
	}
	return lock
}

func release(t *testing.T, lock *dlease.Lock) {
	t.Helper()
	if err := lock.Release(background); err != nil {
		t.Fatalf("release %q: %v", lock.Key(), err)
	}
}

// wantHeld checks that someone else has the lock.
func wantHeld(t *testing.T, c *dlease.Client, key string) {
	t.Helper()
	lock, err := c.TryAcquire(background, key)
	wantErr(t, err, dlease.ErrNotAcquired)
	if lock != nil {
		t.Fatal("a lock and an error")
	}
}

// wantFree checks that the lock can be had within the time.
func wantFree(t *testing.T, c *dlease.Client, key string, limit time.Duration) {
	t.Helper()
	lock, err := c.Acquire(within(t, limit), key)
	if err != nil {
		t.Fatalf("%q is not free within %v: %v", key, limit, err)
	}
	release(t, lock)
}

// wantErr checks that an error matches all of these.
func wantErr(t *testing.T, err error, targets ...error) {
	t.Helper()
	for _, target := range targets {
		if !errors.Is(err, target) {
			t.Fatalf("got %v, want %v", err, target)
		}
	}
}

func within(t *testing.T, limit time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(background, limit)
	t.Cleanup(cancel)
	return ctx
}

// wantWithin checks how long something took. The machine may be busy with
// other tests: a limit here is one that a fault would miss by far.
func wantWithin(t *testing.T, start time.Time, limit time.Duration) {
	t.Helper()
	if took := time.Since(start); took > limit {
		t.Fatalf("took %v, want at most %v", took, limit)
	}
}
