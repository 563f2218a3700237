// Errors: sentinels to act on with errors.Is, and the details in *Error.

package dlease

/*
#include <dlease.h>

_Static_assert(sizeof(dl_status) == 4, "Status is an int32");
*/
import "C"

import (
	"context"
	"errors"
	"fmt"
)

// For errors.Is. Every error of this package matches one of them, but for a
// cancelled context (context.Canceled alone) and for [StatusInternal] and
// [StatusPanic], after which the client should be closed.
var (
	// ErrNotAcquired tells that one try was made, and someone else has the lock.
	ErrNotAcquired = errors.New("dlease: not acquired: someone else has the lock")
	// ErrTimeout tells that the context's deadline passed while someone else
	// had the lock.
	ErrTimeout = errors.New("dlease: timed out: someone else has the lock")
	// ErrNotHeld tells that the lock is lost, taken over, or already released.
	ErrNotHeld = errors.New("dlease: the lock is not held")
	// ErrLost tells that the lock was lost before it was released. It is also
	// ErrNotHeld.
	ErrLost error = lostError{}
	// ErrConflict tells that the version has moved on.
	ErrConflict = errors.New("dlease: the version has moved on")
	// ErrInvalidArgument tells of an argument outside of what the call takes.
	ErrInvalidArgument = errors.New("dlease: invalid argument")
	// ErrUnavailable tells that the server cannot be reached, or cannot serve
	// now.
	ErrUnavailable = errors.New("dlease: no answer from the server in time")
	// ErrServer tells that the server refused: see Errno and SQLState of *Error.
	ErrServer = errors.New("dlease: the server refused")
	// ErrClosed tells that the client is closed.
	ErrClosed = errors.New("dlease: the client is closed")
	// ErrForked tells that the handle was made before a fork, in the parent.
	ErrForked = errors.New("dlease: made before a fork, in the parent")
	// ErrConfig tells that password, rights, schema, server or library are
	// wrong: trying again cannot help.
	ErrConfig = errors.New("dlease: wrong configuration")
	// ErrUnsupported tells that this server or kind of lock cannot do what was
	// asked.
	ErrUnsupported = errors.New("dlease: unsupported")
)

type lostError struct{}

func (lostError) Error() string { return "dlease: the lock is lost" }
func (lostError) Unwrap() error { return ErrNotHeld }

// A Status is the result of a call as C knows it: 0 done, above 0 an outcome to
// expect, below 0 a failure. The numbers are frozen.
type Status int32

// What [Error.Status] can be.
const (
	StatusNotAcquired     Status = C.DL_STATUS_NOT_ACQUIRED
	StatusTimedOut        Status = C.DL_STATUS_TIMED_OUT
	StatusCancelled       Status = C.DL_STATUS_CANCELLED
	StatusNotHeld         Status = C.DL_STATUS_NOT_HELD
	StatusConflict        Status = C.DL_STATUS_CONFLICT
	StatusInvalidArgument Status = C.DL_STATUS_INVALID_ARGUMENT
	StatusUnavailable     Status = C.DL_STATUS_UNAVAILABLE
	StatusServer          Status = C.DL_STATUS_SERVER
	StatusClosed          Status = C.DL_STATUS_CLOSED
	StatusForked          Status = C.DL_STATUS_FORKED
	StatusConfig          Status = C.DL_STATUS_CONFIG
	StatusUnsupported     Status = C.DL_STATUS_UNSUPPORTED
	StatusInternal        Status = C.DL_STATUS_INTERNAL
	StatusPanic           Status = C.DL_STATUS_PANIC
)

// String is the name as C spells it, without the prefix: "NOT_HELD".
func (s Status) String() string { return C.GoString(C.dl_status_name(C.dl_status(s))) }

// An Error is what every failed call of this package gives, alone or joined
// with a context's error: take it out by errors.As. Its text never holds a
// password, and its wording may change with any version.
type Error struct {
	// Status is what the call returned.
	Status Status
	// Errno is the server's error number, 0 if it sent none.
	Errno uint32
	// SQLState is the server's SQLSTATE, "" if it sent none.
	SQLState string

	text      string
	retriable bool
	lost      bool
}

// Error is what happened, for people and logs.
func (e *Error) Error() string {
	switch sentinel := e.Unwrap(); {
	case e.text != "":
		return "dlease: " + e.text
	case sentinel != nil:
		return sentinel.Error()
	default:
		return "dlease: " + e.Status.String()
	}
}

// Retriable tells whether the same call may succeed later without anybody's
// help.
func (e *Error) Retriable() bool { return e.retriable }

// Unwrap is the sentinel that belongs to the status, nil if there is none.
func (e *Error) Unwrap() error {
	if e.lost {
		return ErrLost
	}
	return sentinels[e.Status]
}

var sentinels = map[Status]error{
	StatusNotAcquired:     ErrNotAcquired,
	StatusTimedOut:        ErrTimeout,
	StatusNotHeld:         ErrNotHeld,
	StatusConflict:        ErrConflict,
	StatusInvalidArgument: ErrInvalidArgument,
	StatusUnavailable:     ErrUnavailable,
	StatusServer:          ErrServer,
	StatusClosed:          ErrClosed,
	StatusForked:          ErrForked,
	StatusConfig:          ErrConfig,
	StatusUnsupported:     ErrUnsupported,
}

// failure makes an error of what a C function returned, and frees its error
// object. Outcomes above 0 have none: they speak by their sentinel's text.
func failure(status C.dl_status, detail *C.dl_error) *Error {
	e := &Error{Status: Status(status)}
	if detail != nil {
		e.Errno = uint32(C.dl_error_server_errno(detail))
		e.SQLState = C.GoString(C.dl_error_sqlstate(detail))
		e.text = C.GoString(C.dl_error_message(detail))
		e.retriable = C.dl_error_is_retriable(detail) != 0
		C.dl_error_free(detail)
	}
	return e
}

func invalid(format string, args ...any) error {
	return &Error{Status: StatusInvalidArgument, text: fmt.Sprintf(format, args...)}
}

func closed() error { return &Error{Status: StatusClosed} }

// ended is the error of a call that its context has ended.
func ended(ctx context.Context) error {
	if err := ctx.Err(); !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%w: %w", &Error{Status: StatusCancelled, text: "cancelled"}, err)
	}
	return late(&Error{Status: StatusUnavailable, retriable: true})
}

// late joins an error with that of a context whose deadline has passed.
func late(err *Error) error { return fmt.Errorf("%w: %w", err, context.DeadlineExceeded) }
