// Holds a key for a while:
//
//	hold URL KEY SECONDS [TTL_MS]
//
// Makes one try, prints "token=N remaining_ms=N", and releases after SECONDS.
// Exit status: 0 done; 1 not acquired, or lost before the end; 2 wrong usage or
// another error.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"example.com/dlease"
)

func main() {
	err := hold(os.Args[1:])
	if err == nil {
		return
	}
	fmt.Fprintln(os.Stderr, "hold:", err)
	if errors.Is(err, dlease.ErrNotAcquired) || errors.Is(err, dlease.ErrNotHeld) {
		os.Exit(1)
	}
	os.Exit(2)
}

func hold(args []string) error {
	if len(args) != 3 && len(args) != 4 {
		return errors.New("usage: hold URL KEY SECONDS [TTL_MS]")
	}
	seconds, err := strconv.ParseFloat(args[2], 64)
	if err != nil {
		return err
	}
	var options []dlease.AcquireOption
	if len(args) == 4 {
		ttlMs, err := strconv.ParseInt(args[3], 10, 32)
		if err != nil {
			return err
		}
		// It is to end.
		options = append(options, dlease.WithTTL(time.Duration(ttlMs)*time.Millisecond), dlease.WithManualRenew())
	}

	client, err := dlease.Open(args[0], dlease.WithApplication("hold"))
	if err != nil {
		return err
	}
	defer client.Close()
	ctx := context.Background()
	lock, err := client.TryAcquire(ctx, args[1], options...)
	if err != nil {
		return err
	}
	fmt.Printf("token=%d remaining_ms=%d\n", lock.Token(), lock.Remaining().Milliseconds())
	time.Sleep(time.Duration(seconds * float64(time.Second)))
	return lock.Release(ctx) // ErrLost, if the lease ended before
}
