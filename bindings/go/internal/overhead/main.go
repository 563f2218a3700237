// Measures what a call costs that does no SQL: prints a name and nanoseconds a
// line. Takes its lock on the first server of DLEASE_TEST_URLS.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"strings"
	"time"

	"example.com/dlease"
)

func main() {
	urls := strings.Fields(os.Getenv("DLEASE_TEST_URLS"))
	if len(urls) == 0 {
		log.Fatal("DLEASE_TEST_URLS names no server")
	}
	client, err := dlease.Open(urls[0])
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	lock, err := client.Acquire(context.Background(), fmt.Sprint("overhead ", os.Getpid()))
	if err != nil {
		log.Fatal(err)
	}
	measure("token", func() { lock.Token() })
	measure("remaining", func() { lock.Remaining() })
	if err := lock.Release(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func measure(name string, call func()) {
	const calls = 200_000
	start := time.Now()
	for range calls {
		call()
	}
	fmt.Printf("%s %.1f\n", name, float64(time.Since(start).Nanoseconds())/calls)
}
