// For operators: who holds a lock, and its end by force.

package dlease

// #include <dlease.h>
import "C"

import (
	"context"
	"time"
)

// A Holder is who holds a lock. For people: by the time that it is read it may be
// over.
type Holder struct {
	Token       uint64        // the fencing token of the grant
	Remaining   time.Duration // how much of the lease is left
	Held        time.Duration // for how long it has been held
	TTL         time.Duration // the length of the lease
	Holds       uint32        // how many hold it: several of one owner, perhaps
	Owner       string        // the owner text; "" where the caller gave none
	Application string        // the holder's program, as it named itself
	Host        string        // its machine
	PID         uint32        // its process there
	Note        string        // its note
}

// Peek tells who holds the lock of this key, nil if nobody does; of KindLease, if
// no kind is given. It blocks for a
// round trip, for the client's I/O timeout at most, and until the context ends.
//
// Errors: [ErrUnavailable], [ErrInvalidArgument], [ErrServer], [ErrConfig],
// [ErrUnsupported], [ErrClosed], [ErrForked], and those of the context.
func (c *Client) Peek(ctx context.Context, key string, kind ...Kind) (*Holder, error) {
	var found *Holder
	err := c.operate(ctx, key, func(client *C.dl_client, key *C.char) error {
		holder := C.dl_holder{size: C.sizeof_dl_holder}
		var detail *C.dl_error
		switch status := C.dl_peek(client, key, one(kind), &holder, &detail); status {
		case C.DL_STATUS_OK:
		case C.DL_STATUS_NOT_HELD:
			return nil
		default:
			return failure(status, detail)
		}
		ms := func(count C.uint64_t) time.Duration { return time.Duration(count) * time.Millisecond }
		found = &Holder{
			Token: uint64(holder.token), Remaining: ms(holder.remaining_ms), Held: ms(holder.held_ms),
			TTL: ms(holder.ttl_ms), Holds: uint32(holder.holds), Owner: C.GoString(&holder.owner[0]),
			Application: C.GoString(&holder.application[0]), Host: C.GoString(&holder.host[0]),
			PID: uint32(holder.pid), Note: C.GoString(&holder.note[0]),
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

// ForceRelease releases the lock of this key, whoever holds it. Its token is no
// longer valid, no guard with it passes, and its holder is told at its next
// renewal at the latest. An open guard of the holder's is waited for. It blocks
// for a few round trips, for the client's I/O timeout at most, and until the
// context ends; the release may take place all the same.
//
// Errors: [ErrNotHeld] if nobody held it; the others as from [Client.Peek].
func (c *Client) ForceRelease(ctx context.Context, key string, kind ...Kind) error {
	return c.operate(ctx, key, func(client *C.dl_client, key *C.char) error {
		var detail *C.dl_error
		if status := C.dl_force_release(client, key, one(kind), &detail); status != 0 {
			return failure(status, detail)
		}
		return nil
	})
}

// one is the kind that was given, or the default.
func one(kind []Kind) C.int32_t {
	if len(kind) > 0 {
		return C.int32_t(kind[0])
	}
	return C.DL_KIND_LEASE
}

func (c *Client) operate(ctx context.Context, key string, call func(*C.dl_client, *C.char) error) error {
	var err error
	if withoutNUL(&err, "key", key); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return c.why(ctx)
	}
	return c.await(ctx, func() error {
		client, err := c.enter()
		if err != nil {
			return err
		}
		defer c.leave()
		var memory texts
		defer memory.free()
		return call(client, memory.add(&key))
	})
}
