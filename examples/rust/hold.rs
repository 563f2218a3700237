//! Holds a lock for a while.
//!
//!     hold URL KEY SECONDS [TTL_MS]
//!
//! Makes one try, prints `token=N remaining_ms=N`, and releases after SECONDS,
//! which may be a fraction. Exit status: 0 held to the end, 1 not acquired or
//! lost, 2 usage or error.

use std::process::ExitCode;
use std::time::Duration;

use dlease::{AcquireOptions, Client};

fn hold(url: &str, key: &str, time: Duration, options: &AcquireOptions) -> dlease::Result<()> {
    let client = Client::open(url)?;
    let lock = client.acquire(key, options)?;
    println!("token={} remaining_ms={}", lock.token(), lock.remaining().as_millis());
    std::thread::sleep(time);
    lock.release()
}

/// URL, key, how long, and the options; `None` if the arguments are others.
fn read(arguments: &[String]) -> Option<(&str, &str, Duration, AcquireOptions)> {
    let (url, key, seconds, ttl) = match arguments {
        [url, key, seconds] => (url, key, seconds, None),
        [url, key, seconds, ttl_ms] => (url, key, seconds, Some(ttl_ms)),
        _ => return None,
    };
    let time = Duration::try_from_secs_f64(seconds.parse().ok()?).ok()?;
    let mut options = AcquireOptions::new().wait(Duration::ZERO); // one try
    if let Some(ttl_ms) = ttl {
        // It is to end.
        options = options.ttl(Duration::from_millis(ttl_ms.parse().ok()?)).manual_renew();
    }
    Some((url, key, time, options))
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some((url, key, time, options)) = read(&arguments) else {
        eprintln!("usage: hold URL KEY SECONDS [TTL_MS]");
        return ExitCode::from(2);
    };
    match hold(url, key, time, &options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("hold: {error}");
            ExitCode::from(if error.status().code() > 0 { 1 } else { 2 })
        }
    }
}
