// What is refused, before any SQL: the client here has no server to ask, and
// would answer ErrUnavailable if it did.

package dlease_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"example.com/dlease"
)

const day = 24 * time.Hour

func TestDurationsOutOfRange(t *testing.T) {
	client := openDead(t)
	bad := []time.Duration{0, -1, -time.Second, math.MinInt64, 1, time.Millisecond - 1,
		366*day + time.Millisecond, math.MaxInt64}
	for _, d := range bad {
		_, err := client.Acquire(background, "key", dlease.WithTTL(d))
		wantErr(t, err, dlease.ErrInvalidArgument)
		_, err = client.TryAcquire(background, "key", dlease.WithTTL(d))
		wantErr(t, err, dlease.ErrInvalidArgument)
		for name, option := range map[string]func(time.Duration) dlease.Option{
			"default TTL":     dlease.WithDefaultTTL,
			"connect timeout": dlease.WithConnectTimeout,
			"I/O timeout":     dlease.WithIOTimeout,
			"fairness":        dlease.WithFairness,
		} {
			if _, err := dlease.Open("mysql://host/db", option(d)); !errors.Is(err, dlease.ErrInvalidArgument) {
				t.Errorf("%s %v: %v", name, d, err)
			}
		}
	}
	for _, d := range []time.Duration{0, -1, math.MinInt64, time.Millisecond - 1} {
		_, err := client.TryAcquire(background, "key", dlease.WithMaxHold(d))
		wantErr(t, err, dlease.ErrInvalidArgument)
	}
	// 9 ms would be long enough for C to take, and is too short for a lease.
	_, err := client.TryAcquire(background, "key", dlease.WithTTL(9*time.Millisecond))
	wantErr(t, err, dlease.ErrInvalidArgument)
}

func TestTextsAndNumbersOutOfRange(t *testing.T) {
	client := openDead(t)
	for _, key := range []string{"", strings.Repeat("k", 256), "a\x00b", "\x00", "a\x00"} {
		_, err := client.Acquire(background, key)
		wantErr(t, err, dlease.ErrInvalidArgument)
	}
	for name, option := range map[string]dlease.AcquireOption{
		"empty owner":   dlease.WithOwner(""),
		"long owner":    dlease.WithOwner(strings.Repeat("o", 256)),
		"owner and NUL": dlease.WithOwner("a\x00b"),
		"long note":     dlease.WithNote(strings.Repeat("n", 256)),
		"note and NUL":  dlease.WithNote("a\x00b"),
		"unknown kind":  dlease.WithKind(99),
		"negative kind": dlease.WithKind(-1),
	} {
		if _, err := client.Acquire(background, "key", option); !errors.Is(err, dlease.ErrInvalidArgument) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, option := range map[string]dlease.Option{
		"long application":        dlease.WithApplication(strings.Repeat("a", 65)),
		"application and NUL":     dlease.WithApplication("a\x00"),
		"long namespace":          dlease.WithNamespace(strings.Repeat("n", 65)),
		"namespace and NUL":       dlease.WithNamespace("\x00"),
		"long table prefix":       dlease.WithTablePrefix(strings.Repeat("p", 51)),
		"table prefix and NUL":    dlease.WithTablePrefix("p\x00"),
		"no connections":          dlease.WithMaxConnections(0),
		"negative connections":    dlease.WithMaxConnections(-1),
		"many connections":        dlease.WithMaxConnections(10_001),
		"wrapping connections":    dlease.WithMaxConnections(1<<32 + 8),
		"no waiting connections":  dlease.WithMaxWaitingConnections(0),
		"wrapping waiting":        dlease.WithMaxWaitingConnections(1<<32 + 8),
		"wrapping 49-day limit":   dlease.WithFairness((1<<32 + 200) * time.Millisecond),
		"connections of MinInt64": dlease.WithMaxConnections(math.MinInt64),
	} {
		if _, err := dlease.Open("mysql://host/db", option); !errors.Is(err, dlease.ErrInvalidArgument) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, url := range []string{"", "nonsense", "http://host/db", "mysql://host/db?no_such=1", "mysql://host/db\x00"} {
		_, err := dlease.Open(url)
		wantErr(t, err, dlease.ErrInvalidArgument)
	}
}

func TestEveryOptionIsTaken(t *testing.T) {
	forEachServer(t, func(t *testing.T, url string) {
		client := open(t, url, dlease.WithApplication("go test"), dlease.WithNamespace("go"),
			dlease.WithTablePrefix("dl_"), dlease.WithMaxConnections(2),
			dlease.WithMaxWaitingConnections(2), dlease.WithDefaultTTL(7*time.Second),
			dlease.WithConnectTimeout(5*time.Second), dlease.WithIOTimeout(5*time.Second),
			dlease.WithFairness(200*time.Millisecond), dlease.WithCreateSchema(true))
		key := newKey(t)
		lock := acquire(t, client, key)
		if left := lock.Remaining(); left <= 0 || left > 7*time.Second {
			t.Errorf("remaining %v of the default TTL of 7 s", left)
		}
		// The same key in another name space is another lock.
		release(t, acquire(t, open(t, url, dlease.WithNamespace("other")), key))
		wantHeld(t, open(t, url, dlease.WithNamespace("go")), key)
		release(t, lock)

		lock = acquire(t, client, key, dlease.WithTTL(20*time.Second), dlease.WithKind(dlease.KindLease),
			dlease.WithOwner("owner"), dlease.WithNote("note"), dlease.WithManualRenew(),
			dlease.WithUnfair(), dlease.WithMaxHold(time.Minute))
		if left := lock.Remaining(); left <= 7*time.Second || left > 20*time.Second {
			t.Errorf("remaining %v of 20 s", left)
		}
		release(t, lock)
		for _, kind := range []dlease.Kind{dlease.KindRow, dlease.KindNamed} {
			lock, err := client.TryAcquire(background, key, dlease.WithKind(kind))
			if err == nil {
				release(t, lock)
			} else {
				wantErr(t, err, dlease.ErrUnsupported)
			}
		}
	})
}

func TestNoPasswordInAnError(t *testing.T) {
	const secret = "p4ssw0rd-of-the-test"
	forEachServer(t, func(t *testing.T, url string) {
		_, rest, _ := strings.Cut(url, "@")
		client := open(t, "mysql://dl:"+secret+"@"+rest)
		err := client.Ping(within(t, 10*time.Second))
		wantErr(t, err, dlease.ErrConfig)
		for _, text := range []string{err.Error(), fmt.Sprintf("%+v", client), fmt.Sprintf("%#v", err)} {
			if strings.Contains(text, secret) {
				t.Error("a password in", text)
			}
		}
		var detail *dlease.Error
		if !errors.As(err, &detail) || detail.Errno != 1045 || detail.SQLState != "28000" || detail.Retriable() {
			t.Errorf("got %#v", detail)
		}
	})
}
