// Options of a client and of an acquire, and how they are made into C's.

package dlease

/*
#include <stdlib.h>
#include <dlease.h>
*/
import "C"

import (
	"math"
	"strings"
	"time"
	"unsafe"
)

// An Option of a client, for [Open]. What is given here wins over what the URL
// says under the same name.
type Option func(*clientOptions)

type clientOptions struct {
	application, namespace, tablePrefix *string
	connectTimeoutMs, ioTimeoutMs       uint64
	defaultTTLMs                        uint64
	maxConnections, maxWaiting          uint32
	fairnessMs                          uint32
	createSchema                        int32
	err                                 error
}

// WithApplication gives the program's name, for people who look at the table:
// at most 64 bytes.
func WithApplication(name string) Option {
	return func(o *clientOptions) { o.application = withoutNUL(&o.err, "application", name) }
}

// WithNamespace names the space that the keys are in: the same key in different
// ones is different locks. At most 64 bytes; "" by default.
func WithNamespace(name string) Option {
	return func(o *clientOptions) { o.namespace = withoutNUL(&o.err, "namespace", name) }
}

// WithTablePrefix sets what the tables' names begin with: at most 50 bytes;
// "dl_" by default.
func WithTablePrefix(prefix string) Option {
	return func(o *clientOptions) { o.tablePrefix = withoutNUL(&o.err, "table prefix", prefix) }
}

// WithMaxConnections bounds the connections that are open at a time: 1 to
// 10000; 8 by default.
func WithMaxConnections(n int) Option {
	return func(o *clientOptions) { o.maxConnections = count(&o.err, "max connections", n) }
}

// WithMaxWaitingConnections bounds the connections that wait for a lock, apart
// from those: 1 to 10000; 8 by default. Beyond them rows are looked at now and
// then, and order is not kept.
func WithMaxWaitingConnections(n int) Option {
	return func(o *clientOptions) { o.maxWaiting = count(&o.err, "max waiting connections", n) }
}

// WithDefaultTTL sets the TTL of leases that name none: 10 ms to 366 days, in
// whole milliseconds (a fraction is cut off); 30 s by default.
func WithDefaultTTL(ttl time.Duration) Option {
	return func(o *clientOptions) { o.defaultTTLMs = millis(&o.err, "default TTL", ttl) }
}

// WithConnectTimeout bounds a connect, and each step of a log-in: 1 ms to 366
// days; 5 s by default.
func WithConnectTimeout(limit time.Duration) Option {
	return func(o *clientOptions) { o.connectTimeoutMs = millis(&o.err, "connect timeout", limit) }
}

// WithIOTimeout bounds the wait for one reply: 1 ms to 366 days; 5 s by
// default.
func WithIOTimeout(limit time.Duration) Option {
	return func(o *clientOptions) { o.ioTimeoutMs = millis(&o.err, "I/O timeout", limit) }
}

// WithFairness sets how long a process may serve its own callers before the
// next process has its turn: 1 ms to 49 days; 200 ms by default.
func WithFairness(limit time.Duration) Option {
	return func(o *clientOptions) {
		ms := millis(&o.err, "fairness", limit)
		if ms > math.MaxUint32 {
			o.err = invalid("invalid fairness: %v, it is at most 49 days", limit)
		}
		o.fairnessMs = uint32(ms)
	}
}

// WithCreateSchema sets whether missing tables are made: true by default.
func WithCreateSchema(create bool) Option {
	return func(o *clientOptions) {
		o.createSchema = 2
		if create {
			o.createSchema = 1
		}
	}
}

// A Kind of lock. The kind is part of a lock's identity: different kinds of the
// same key do not exclude each other.
type Kind int32

const (
	// KindLease is a row with an expiry. The default, and the one kind so far.
	KindLease Kind = C.DL_KIND_LEASE
	// KindRow is a row lock in an open transaction.
	KindRow Kind = C.DL_KIND_ROW
	// KindNamed is a named lock of the server's.
	KindNamed Kind = C.DL_KIND_NAMED
)

// An AcquireOption changes one acquire.
type AcquireOption func(*acquireOptions)

type acquireOptions struct {
	ttlMs, maxHoldMs uint64
	owner, note      *string
	kind             Kind
	flags            uint32
	err              error
}

// WithTTL sets the length of the lease: 10 ms to 366 days, in whole
// milliseconds (a fraction is cut off). By default the client's.
func WithTTL(ttl time.Duration) AcquireOption {
	return func(o *acquireOptions) { o.ttlMs = millis(&o.err, "TTL", ttl) }
}

// WithMaxHold has the library renew the lease no longer than this, 1 ms at least:
// then it ends, and the lock is lost. Without it nothing ends renewal but Release.
// No effect with [WithManualRenew].
func WithMaxHold(limit time.Duration) AcquireOption {
	return func(o *acquireOptions) { o.maxHoldMs = millis(&o.err, "max hold", limit) }
}

// WithOwner acquires as this owner, 1 to 255 bytes: whoever acquires the same
// key as the same owner shares the grant and its token, here and in other
// processes. Each such lock is released once; a loss ends them all. Without it
// every acquire is an owner of its own.
func WithOwner(owner string) AcquireOption {
	return func(o *acquireOptions) { o.owner = withoutNUL(&o.err, "owner", owner) }
}

// WithNote leaves a note for people who look at the table: at most 255 bytes.
func WithNote(note string) AcquireOption {
	return func(o *acquireOptions) { o.note = withoutNUL(&o.err, "note", note) }
}

// WithKind sets the kind of lock.
func WithKind(kind Kind) AcquireOption {
	return func(o *acquireOptions) { o.kind = kind }
}

// WithManualRenew leaves the renewal of the lease to [Lock.Renew].
func WithManualRenew() AcquireOption {
	return func(o *acquireOptions) { o.flags |= C.DL_ACQUIRE_MANUAL_RENEW }
}

// WithUnfair takes the lock if it is free, though others wait for it already,
// and waits in its turn otherwise. TryAcquire always does.
func WithUnfair() AcquireOption {
	return func(o *acquireOptions) { o.flags |= C.DL_ACQUIRE_UNFAIR }
}

// millis turns a duration into C's, where 0 would mean that none was given.
func millis(err *error, what string, d time.Duration) uint64 {
	if d < time.Millisecond {
		*err = invalid("invalid %s: %v, it is at least a millisecond", what, d)
		return 0
	}
	return uint64(d / time.Millisecond)
}

// count turns a number into C's, where 0 would mean that none was given.
func count(err *error, what string, n int) uint32 {
	if n < 1 || n > math.MaxInt32 {
		*err = invalid("invalid %s: %d, it is 1 to 10000", what, n)
		return 0
	}
	return uint32(n)
}

// withoutNUL checks a text for C, which would take it to end at a NUL byte.
func withoutNUL(err *error, what, s string) *string {
	if strings.IndexByte(s, 0) >= 0 {
		*err = invalid("invalid %s: it has a NUL byte", what)
	}
	return &s
}

// texts are strings in C's memory, for as long as one call runs.
type texts []*C.char

func (t *texts) add(s *string) *C.char {
	if s == nil {
		return nil
	}
	c := C.CString(*s)
	*t = append(*t, c)
	return c
}

func (t *texts) free() {
	for _, c := range *t {
		C.free(unsafe.Pointer(c))
	}
}
