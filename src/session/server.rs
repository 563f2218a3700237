//! Which server a session talks to: its kind, and what tells one incarnation
//! from the next and from others behind the same address.

use std::collections::HashMap;
use std::time::Duration;

use crate::error::{Error, Result, Status};
use crate::sys::clock::Instant;

/// A server, as one of its sessions found it.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    /// MySQL's uuid; MariaDB has none of that kind, and gets host and port.
    pub(crate) identity: String,
    /// When it started, by its own clock, in microseconds.
    pub(crate) started_us: u64,
    /// By how much that may be off.
    start_error_us: u64,
    pub(crate) is_mariadb: bool,
    /// Which of the URL's addresses it was reached by.
    pub(crate) address: usize,
}

/// Uptime has whole seconds: two readings of one start lie less than one apart,
/// and each gets half of that, and a little more. No server is back as soon.
const UPTIME_ERROR_US: u64 = 600_000;

impl Server {
    /// True if both are the same process: a session's number means the same
    /// session to both.
    pub(crate) fn is_same_incarnation(&self, other: &Server) -> bool {
        self.identity == other.identity
            && self.started_us.abs_diff(other.started_us)
                < self.start_error_us + other.start_error_us
    }

    /// Reads what the server tells of itself; CONFIG if it is too old. `apart`
    /// is the time that its clock and its uptime may have been read apart.
    pub(crate) fn from_facts(
        facts: &HashMap<String, String>,
        now_us: u64,
        uptime_s: u64,
        apart: Duration,
        address: usize,
    ) -> Result<Server> {
        let fact = |name: &str| facts.get(name).map_or("", String::as_str);
        let version = fact("version");
        let is_mariadb = version.contains("MariaDB");
        check_version(version, is_mariadb)?;
        let identity = match fact("server_uuid") {
            "" => format!("{}:{}", fact("hostname"), fact("port")),
            uuid => uuid.to_owned(),
        };
        // Uptime follows the clock, also where that was set back behind the
        // start: servers then print a negative number as if it had no sign.
        let started_us = now_us.wrapping_sub(uptime_s.wrapping_mul(1_000_000));
        let apart_us = u64::try_from(apart.as_micros()).unwrap_or(u64::MAX / 4);
        let start_error_us = UPTIME_ERROR_US + apart_us;
        Ok(Server { identity, started_us, start_error_us, is_mariadb, address })
    }
}

fn check_version(version: &str, is_mariadb: bool) -> Result<()> {
    // MariaDB may put this before its version, for old replication clients.
    let own = if is_mariadb { version.trim_start_matches("5.5.5-") } else { version };
    let mut numbers = own.split(|c: char| !c.is_ascii_digit()).map(|n| n.parse().unwrap_or(0));
    let mut next = || -> u32 { numbers.next().unwrap_or(0) };
    let found = (next(), next(), next());
    let (least, needed) =
        if is_mariadb { ((10, 6, 0), "MariaDB 10.6") } else { ((8, 0, 22), "MySQL 8.0.22") };
    if found < least {
        let message = format!("unsupported server: version {version}, {needed} is the oldest");
        return Err(Error::new(Status::Config, message));
    }
    Ok(())
}

/// True if a variable of that name says yes.
pub(crate) fn is_on(facts: &HashMap<String, String>, name: &str) -> bool {
    facts.get(name).is_some_and(|value| !matches!(value.as_str(), "OFF" | "0" | ""))
}

/// One reading of a server's clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    /// Before the request was sent.
    pub(crate) read_at: Instant,
    pub(crate) server_us: u64,
}

impl Clock {
    /// The server's clock at `local`. The server read it after `read_at`, so
    /// this is late by a round trip at most, and never early.
    pub(crate) fn at(&self, local: Instant) -> u64 {
        let passed = local.since(self.read_at).as_micros();
        self.server_us.saturating_add(u64::try_from(passed).unwrap_or(u64::MAX)).min(1 << 61)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_servers_are_refused_also_when_they_disguise_themselves() {
        for (version, good) in [
            ("9.7.4", true),
            ("8.0.22-debug", true),
            ("8.0.21", false),
            ("5.7.44-log", false),
            ("10.6.0-MariaDB", true),
            ("10.11.19-MariaDB-0+deb12u1-log", true),
            ("5.5.5-10.5.0-MariaDB", false),
            ("5.5.5-10.11.2-MariaDB", true),
            ("11.8.1-MariaDB", true),
            ("", false),
        ] {
            let is_mariadb = version.contains("MariaDB");
            assert_eq!(check_version(version, is_mariadb).is_ok(), good, "{version}");
        }
    }

    #[test]
    fn a_restart_is_another_incarnation() {
        let facts = HashMap::from([
            ("version".to_owned(), "9.7.4".to_owned()),
            ("server_uuid".to_owned(), "u".to_owned()),
        ]);
        let at = |now_us, uptime_s| {
            Server::from_facts(&facts, now_us, uptime_s, Duration::ZERO, 0).unwrap()
        };
        let first = at(1_000_000_000, 100);
        assert!(first.is_same_incarnation(&at(1_010_900_000, 110)));
        assert!(!first.is_same_incarnation(&at(1_020_000_000, 5)));
        let set_back = at(500_000_000, 0_u64.wrapping_sub(400));
        assert!(first.is_same_incarnation(&set_back));
    }
}
