// Package guardtest tests the guard with go-sql-driver/mysql, in a module of its
// own: the wrapper needs no driver.
package guardtest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"example.com/dlease"
	_ "github.com/go-sql-driver/mysql"
)

var levels = []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable}

func TestGuard(t *testing.T) {
	forEachServer(t, func(t *testing.T, address string, db *sql.DB) {
		one, two := open(t, address), open(t, address)
		ctx := t.Context()
		for _, level := range levels {
			key := fmt.Sprintf("guard %d", time.Now().UnixNano())
			lock := acquire(t, one, key, dlease.WithTTL(2*time.Second))
			tx := begin(t, db, level)
			if err := lock.Guard(ctx, tx); err != nil {
				t.Fatal(level, err)
			}
			// It delays nothing of this grant's, and no try.
			if _, err := two.TryAcquire(ctx, key); !errors.Is(err, dlease.ErrNotAcquired) {
				t.Fatal(level, err)
			}
			time.Sleep(3 * time.Second) // renewed meanwhile
			if err := lock.Renew(ctx, 0); err != nil {
				t.Fatal(level, err)
			}
			if err := tx.Commit(); err != nil {
				t.Fatal(level, err)
			}
			if err := two.ForceRelease(ctx, key); err != nil {
				t.Fatal(level, err)
			}
			late := begin(t, db, level)
			if err := lock.Guard(ctx, late); !errors.Is(err, dlease.ErrLost) {
				t.Fatal(level, err)
			}
			if err := late.Rollback(); err != nil {
				t.Fatal(level, err)
			}
			next := acquire(t, two, key)
			if next.Token() <= lock.Token() {
				t.Error(level, "token", next.Token(), "after", lock.Token())
			}
			if err := next.Release(ctx); err != nil {
				t.Fatal(level, err)
			}
			last := begin(t, db, level)
			if err := next.Guard(ctx, last); !errors.Is(err, dlease.ErrNotHeld) || errors.Is(err, dlease.ErrLost) {
				t.Fatal(level, err)
			}
			_ = last.Rollback()
		}
	})
}

func forEachServer(t *testing.T, test func(t *testing.T, address string, db *sql.DB)) {
	addresses := strings.Fields(os.Getenv("DLEASE_TEST_URLS"))
	if len(addresses) == 0 {
		t.Fatal("DLEASE_TEST_URLS names no server: set it to mysql:// URLs, blank-separated")
	}
	for _, address := range addresses {
		parsed, err := url.Parse(address)
		if err != nil {
			t.Fatal("a URL of DLEASE_TEST_URLS cannot be parsed")
		}
		password, _ := parsed.User.Password()
		db, err := sql.Open("mysql", fmt.Sprintf("%s:%s@tcp(%s)%s", parsed.User.Username(), password, parsed.Host, parsed.Path))
		if err != nil {
			t.Fatal(err)
		}
		t.Run(parsed.Host, func(t *testing.T) { test(t, address, db) })
		db.Close()
	}
}

func open(t *testing.T, address string) *dlease.Client {
	t.Helper()
	client, err := dlease.Open(address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

func acquire(t *testing.T, client *dlease.Client, key string, opts ...dlease.AcquireOption) *dlease.Lock {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	lock, err := client.Acquire(ctx, key, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return lock
}

func begin(t *testing.T, db *sql.DB, level sql.IsolationLevel) *sql.Tx {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), &sql.TxOptions{Isolation: level})
	if err != nil {
		t.Fatal(err)
	}
	return tx
}
