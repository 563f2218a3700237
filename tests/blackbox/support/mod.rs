//! What tests share: the servers, other sessions that look on, a proxy that
//! breaks connections, and keys that no other test has.

pub mod alone;
pub mod at_once;
pub mod c;
pub mod child;
pub mod clock;
pub mod door;
pub mod place;
pub mod proxy;
pub mod row;
pub mod server;
pub mod sql;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use dlease::{AcquireOptions, Client, Error, Lock, Status};

pub use at_once::{at_once, each_kind_at_once, each_server_at_once};
pub use server::{Own, Server, each_server};
pub use sql::Other;

/// A key that no other test uses.
pub fn unique(name: &str) -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("{name}-{}-{number}", std::process::id())
}

/// Milliseconds.
pub fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// One try at a lease of the client's default TTL.
pub fn try_it(client: &Client, key: impl AsRef<[u8]>) -> Option<Lock> {
    client.try_acquire(key, &AcquireOptions::new()).expect("try_acquire")
}

/// Acquires, waiting at most 10 s.
pub fn take(client: &Client, key: impl AsRef<[u8]>) -> Lock {
    client.acquire(key, &AcquireOptions::new().wait(ms(10_000))).expect("acquire")
}

/// Acquires a lease of `ttl` that the library does not renew, waiting at most 10 s.
pub fn take_for(client: &Client, key: impl AsRef<[u8]>, ttl: Duration) -> Lock {
    let options = AcquireOptions::new().wait(ms(10_000)).ttl(ttl).manual_renew();
    client.acquire(key, &options).expect("acquire")
}

/// The status of a result that must be an error.
pub fn status<T>(result: Result<T, Error>) -> Status {
    match result {
        Ok(_) => panic!("it succeeded"),
        Err(error) => error.status(),
    }
}

/// The error of an acquire that may wait for 30 s, but is told at once that
/// waiting cannot help.
pub fn refused_at_once(client: &Client, key: impl AsRef<[u8]>) -> Error {
    let options = AcquireOptions::new().wait(ms(30_000));
    let (result, took) = timed(|| client.acquire(key, &options));
    let error = result.expect_err("it was granted");
    assert!(took < ms(2_000), "{took:?}: {error:?}");
    error
}

/// How long `work` took, with its result.
pub fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    let result = work();
    (result, start.elapsed())
}

/// Waits until `condition` holds; fails after 10 s.
pub fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < ms(10_000), "not within 10 s: {what}");
        std::thread::sleep(ms(10));
    }
}

/// True where tests run for as long as they were written (`make test-long`).
pub fn long() -> bool {
    std::env::var_os("DLEASE_LONG").is_some()
}
