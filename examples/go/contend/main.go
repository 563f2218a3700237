// Contends for a key with others of its kind, and proves that one at a time
// has it:
//
//	contend URL KEY ROUNDS FILE
//
// In each round it acquires KEY, creates FILE, which must not be there, appends
// its token to FILE.log, where the last one must be less, removes FILE, and
// releases. Exit status: 0 done; 1 not acquired, or lost; 2 wrong usage or
// another error; 3 two were inside, or a token did not rise.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"example.com/dlease"
)

var errBroken = errors.New("exclusion is broken")

func main() {
	err := contend(os.Args[1:])
	if err == nil {
		return
	}
	fmt.Fprintln(os.Stderr, "contend:", err)
	switch {
	case errors.Is(err, errBroken):
		os.Exit(3)
	case errors.Is(err, dlease.ErrTimeout), errors.Is(err, dlease.ErrNotHeld):
		os.Exit(1)
	}
	os.Exit(2)
}

func contend(args []string) error {
	if len(args) != 4 {
		return errors.New("usage: contend URL KEY ROUNDS FILE")
	}
	url, key, file := args[0], args[1], args[3]
	rounds, err := strconv.Atoi(args[2])
	if err != nil {
		return err
	}
	client, err := dlease.Open(url, dlease.WithApplication("contend"))
	if err != nil {
		return err
	}
	defer client.Close()
	for range rounds {
		if err := round(client, key, file); err != nil {
			return err
		}
	}
	return nil
}

func round(client *dlease.Client, key, file string) error {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	lock, err := client.Acquire(ctx, key, dlease.WithTTL(10*time.Second))
	if err != nil {
		return err
	}
	if err := inside(lock.Token(), file); err != nil {
		return err
	}
	return lock.Release(context.Background()) // ErrLost, if the lease ended before
}

// inside is the critical section.
func inside(token uint64, file string) error {
	alone, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o666)
	if errors.Is(err, os.ErrExist) {
		return fmt.Errorf("%w: %s is there", errBroken, file)
	} else if err != nil {
		return err
	}
	alone.Close()
	if err := record(token, file+".log"); err != nil {
		return err
	}
	return os.Remove(file)
}

// record appends the token to the log, whose last one must be less.
func record(token uint64, name string) error {
	log, err := os.ReadFile(name)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if tokens := strings.Fields(string(log)); len(tokens) > 0 {
		last, err := strconv.ParseUint(tokens[len(tokens)-1], 10, 64)
		if err != nil {
			return err
		}
		if last >= token {
			return fmt.Errorf("%w: token %d after %d", errBroken, token, last)
		}
	}
	out, err := os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o666)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(out, token)
	return errors.Join(err, out.Close())
}
