// Package dlease gives distributed locks on the MySQL or MariaDB that you
// already run. It is a thin wrapper around the C library libdlease.
//
//	client, err := dlease.Open("mysql://user:password@host/database")
//	if err != nil {
//		return err
//	}
//	defer client.Close()
//	lock, err := client.Acquire(ctx, "report")
//	if err != nil {
//		return err
//	}
//	defer lock.Release(context.Background()) // ctx bounded the wait
//	... the work, and its writes with lock.Token() ...
//
// A lock is a lease: it ends by itself after its TTL, and is renewed by
// [Lock.Renew]. [Lock.Held] and [Lock.Remaining] tell without network whether
// it still stands. Whoever is too slow loses it; a store that refuses tokens
// below the greatest it has seen is safe from writes that come too late.
//
// # Goroutines and threads
//
// Every method may be called from any goroutine, at the same time as others,
// and from another one than acquired the lock: nothing is tied to a goroutine
// or to an OS thread.
//
// An acquire waits in the library without a thread, and its goroutine in Go: any
// number may wait. A call that is in C keeps an OS thread; of renewals, releases
// and pings each client runs 16 at a time, and the others wait in Go.
//
// # Contexts
//
// A cancelled context ends an Acquire at once, and whatever had been granted is
// given back. A context's deadline is passed on to the library. The error then
// matches ctx.Err() as well: context.DeadlineExceeded together with
// [ErrTimeout] if the lock was seen held and [ErrUnavailable] if it was not;
// context.Canceled. Contexts of the other methods bound how long the caller
// waits: what was sent to the server goes on by itself, for as long as the
// client's I/O timeout at most.
//
// # Lifetimes
//
// Keep a [Lock] reachable for as long as it is to be held: one that is garbage
// collected is released, by a thread of the library's own. That is there to
// catch leaks and comes at no certain time; call [Lock.Release]. A program that
// exits without [Client.Close] or Release leaves its locks to their TTLs. Locks
// may outlive their client: they are lost by its Close.
//
// os/exec and syscall.ForkExec are safe. Where C code forks this process
// without exec, every handle answers [ErrForked] in the child, and the parent
// loses nothing.
//
// # Building
//
// By default the package is linked with libdlease.so, found by pkg-config:
//
//	PKG_CONFIG_PATH=PREFIX/lib/pkgconfig go build
//
// With the tag dlease_static the library goes into the program. Where it is not
// installed below /usr or /usr/local, say where it is:
//
//	CGO_CFLAGS=-IPREFIX/include CGO_LDFLAGS=-LPREFIX/lib go build -tags dlease_static
package dlease
