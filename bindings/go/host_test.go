// The library as a guest in the process: signals, and a server that dies.

package dlease_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime/pprof"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"example.com/dlease"
)

func TestSignalStormsAndHandlers(t *testing.T) {
	forEachServer(t, func(t *testing.T, url string) {
		interrupts := make(chan os.Signal, 1)
		signal.Notify(interrupts, syscall.SIGINT)
		defer signal.Stop(interrupts)
		if err := pprof.StartCPUProfile(io.Discard); err != nil { // SIGPROF
			t.Fatal(err)
		}
		defer pprof.StopCPUProfile()

		before := handlers()
		client, key := open(t, url), newKey(t)
		lock := acquire(t, client, key)
		var wg sync.WaitGroup
		for range 100 {
			wg.Add(1)
			go func() {
				defer wg.Done()
				_, err := client.Acquire(within(t, 3*time.Second), key)
				if !errors.Is(err, dlease.ErrTimeout) {
					t.Errorf("got %v", err)
				}
			}()
		}
		done := make(chan struct{})
		go func() { wg.Wait(); close(done) }()
		sent := 0
		for storm := true; storm; {
			select {
			case <-done:
				storm = false
			default:
				syscall.Kill(os.Getpid(), syscall.SIGURG)
				syscall.Kill(os.Getpid(), syscall.SIGINT)
				sent += 2
				time.Sleep(time.Millisecond)
			}
		}
		if sent < 100 {
			t.Errorf("only %d signals", sent)
		}
		<-interrupts // they still reach the program
		if after := handlers(); after != before {
			t.Errorf("signal handlers before:\n%x\nafter:\n%x", before, after)
		}
		release(t, lock)
	})
}

// handlers gives what the kernel does on each signal: handler, flags, restorer
// and mask.
func handlers() (all [65][4]uintptr) {
	for number := 1; number < len(all); number++ {
		syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, uintptr(number), 0,
			uintptr(unsafe.Pointer(&all[number])), 8, 0, 0)
	}
	return all
}

// server runs tests/server, for a server of this test's own.
func server(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.Command("../../tests/server", args...)
	var progress bytes.Buffer
	cmd.Stderr = &progress
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("tests/server %s: %v\n%s", strings.Join(args, " "), err, progress.Bytes())
	}
	return strings.TrimSpace(string(out))
}

func startFaults(t *testing.T) (url string) {
	t.Helper()
	url = server(t, "start", "mariadb", "--name", "go-faults")
	t.Cleanup(func() { server(t, "stop", "go-faults") })
	return url
}

func TestTheServerIsKilledUnderRenewals(t *testing.T) {
	url := startFaults(t)
	// A Go program's SIGPIPE kills it on standard output alone; the library's
	// threads must raise none, over TLS least of all.
	var locks []*dlease.Lock
	socket, err := filepath.Abs("../../target/servers/go-faults/socket")
	if err != nil {
		t.Fatal(err)
	}
	for _, way := range []string{"tls=off", "tls=required", "socket=" + socket} {
		client := open(t, url+"?"+way, dlease.WithIOTimeout(2*time.Second))
		for i := range 5 {
			locks = append(locks, acquire(t, client, fmt.Sprint(newKey(t), i), dlease.WithTTL(2*time.Minute)))
		}
	}
	ctx, stop := context.WithCancel(background)
	var wg sync.WaitGroup
	failed := make([]error, len(locks))
	for i, lock := range locks {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for ctx.Err() == nil {
				if err := lock.Renew(background, 0); err != nil {
					failed[i] = err
				}
			}
		}()
	}
	time.Sleep(500 * time.Millisecond)
	server(t, "kill", "go-faults")
	time.Sleep(3 * time.Second)
	stop()
	wg.Wait()
	for i, lock := range locks {
		wantErr(t, failed[i], dlease.ErrUnavailable)
		if !lock.Held() {
			t.Error("lost before its deadline")
		}
	}
	// A release that failed may be tried again.
	wantErr(t, locks[0].Release(background), dlease.ErrUnavailable)
	server(t, "restart", "go-faults")
	release(t, locks[0])
	wantErr(t, locks[0].Release(background), dlease.ErrNotHeld)
	for _, lock := range locks[1:] {
		if err := lock.Renew(background, 0); err != nil {
			t.Error("after the restart:", err)
		}
		release(t, lock)
	}
}

func TestTokensAreWhole(t *testing.T) {
	client, key := open(t, startFaults(t)), newKey(t)
	release(t, acquire(t, client, key))
	for _, token := range []uint64{1<<53 + 1, 1<<63 - 3, math.MaxInt64 - 1} {
		server(t, "sql", "go-faults", fmt.Sprintf(
			"UPDATE dlease.dl_lock SET token = %d WHERE lock_key = '%s'", token, key))
		lock := acquire(t, client, key)
		if lock.Token() != token+1 {
			t.Errorf("token %d after %d", lock.Token(), token)
		}
		release(t, lock)
	}
}
