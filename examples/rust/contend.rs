//! Proves that a lock excludes: run several at a time, in any languages.
//!
//!     contend URL KEY ROUNDS FILE
//!
//! Each round acquires the lock, and inside creates FILE, which must not be
//! there; sees that the last token in FILE.log is less than its own; appends
//! its own; and removes FILE. Exit status: 0 done, 1 not acquired or lost, 2
//! usage or error, 3 exclusion broken.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;
use std::time::Duration;

use dlease::{AcquireOptions, Client};

enum Failure {
    Lock(dlease::Error),
    Io(io::Error),
    Broken(String),
}

impl From<dlease::Error> for Failure {
    fn from(error: dlease::Error) -> Failure {
        Failure::Lock(error)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        Failure::Io(error)
    }
}

/// What only one of all may be in at a time.
fn critical_section(path: &str, token: u64) -> Result<(), Failure> {
    match File::create_new(path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            return Err(Failure::Broken(format!("{path} is there")));
        }
        other => drop(other?),
    }
    let logged = log_token(&format!("{path}.log"), token);
    fs::remove_file(path)?;
    logged
}

/// Compares the token with the last one in the log, and appends it.
fn log_token(path: &str, token: u64) -> Result<(), Failure> {
    let text = match fs::read_to_string(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
        other => other?,
    };
    let last = text.lines().last().unwrap_or("0").parse().map_err(io::Error::other)?;
    if token <= last {
        return Err(Failure::Broken(format!("token {token} after {last}")));
    }
    let mut log = OpenOptions::new().create(true).append(true).open(path)?;
    Ok(log.write_all(format!("{token}\n").as_bytes())?)
}

fn contend(url: &str, key: &str, rounds: u32, path: &str) -> Result<(), Failure> {
    let client = Client::open(url)?;
    let options = AcquireOptions::new().wait(Duration::from_secs(60)).ttl(Duration::from_secs(10));
    for _ in 0..rounds {
        let lock = client.acquire(key, &options)?;
        critical_section(path, lock.token())?;
        lock.release()?;
    }
    Ok(())
}

/// URL, key, rounds and path; `None` if the arguments are others.
fn read(arguments: &[String]) -> Option<(&str, &str, u32, &str)> {
    let [url, key, rounds, path] = arguments else { return None };
    let rounds = rounds.parse().ok().filter(|rounds| *rounds > 0)?;
    Some((url, key, rounds, path))
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some((url, key, rounds, path)) = read(&arguments) else {
        eprintln!("usage: contend URL KEY ROUNDS FILE");
        return ExitCode::from(2);
    };
    match contend(url, key, rounds, path) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Lock(error)) => {
            eprintln!("contend: {error}");
            ExitCode::from(if error.status().code() > 0 { 1 } else { 2 })
        }
        Err(Failure::Io(error)) => {
            eprintln!("contend: {path}: {error}");
            ExitCode::from(2)
        }
        Err(Failure::Broken(what)) => {
            eprintln!("contend: exclusion broken: {what}");
            ExitCode::from(3)
        }
    }
}
