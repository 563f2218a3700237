package dlease_test

import (
	"errors"
	"fmt"
	"testing"

	"example.com/dlease"
)

func TestEachStatusMatchesItsSentinel(t *testing.T) {
	for status, sentinel := range map[dlease.Status]error{
		dlease.StatusNotAcquired:     dlease.ErrNotAcquired,
		dlease.StatusTimedOut:        dlease.ErrTimeout,
		dlease.StatusNotHeld:         dlease.ErrNotHeld,
		dlease.StatusConflict:        dlease.ErrConflict,
		dlease.StatusInvalidArgument: dlease.ErrInvalidArgument,
		dlease.StatusUnavailable:     dlease.ErrUnavailable,
		dlease.StatusServer:          dlease.ErrServer,
		dlease.StatusClosed:          dlease.ErrClosed,
		dlease.StatusForked:          dlease.ErrForked,
		dlease.StatusConfig:          dlease.ErrConfig,
		dlease.StatusUnsupported:     dlease.ErrUnsupported,
	} {
		err := fmt.Errorf("work: %w", &dlease.Error{Status: status})
		wantErr(t, err, sentinel)
		if errors.Is(err, dlease.ErrLost) {
			t.Errorf("%v is ErrLost", err)
		}
	}
	wantErr(t, dlease.ErrLost, dlease.ErrNotHeld)
	if errors.Is(dlease.ErrNotHeld, dlease.ErrLost) {
		t.Error("ErrNotHeld is ErrLost")
	}
}

func TestTexts(t *testing.T) {
	if got := dlease.StatusNotHeld.String(); got != "NOT_HELD" {
		t.Errorf("got %q", got)
	}
	if got := dlease.Status(12345).String(); got != "UNKNOWN" {
		t.Errorf("got %q", got)
	}
	// Statuses with a sentinel speak by it, the others by their name.
	if got := (&dlease.Error{Status: dlease.StatusClosed}).Error(); got != dlease.ErrClosed.Error() {
		t.Errorf("got %q", got)
	}
	if got := (&dlease.Error{Status: dlease.StatusPanic}).Error(); got != "dlease: PANIC" {
		t.Errorf("got %q", got)
	}
}
