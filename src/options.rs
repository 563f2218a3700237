//! What a caller may ask for: the options of a client and of an acquire, with
//! their defaults and bounds.

use std::time::Duration;

use crate::cancel::Cancel;
use crate::error::{Error, Result, Status};
use crate::key::check_text;

/// The shortest lease.
pub(crate) const SHORTEST_TTL: Duration = Duration::from_millis(10);
/// The longest lease: 366 days.
pub(crate) const LONGEST_TTL: Duration = Duration::from_secs(366 * 24 * 60 * 60);

/// What a lock lives on, and with what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// A row with an expiry.
    #[default]
    Lease,
    /// A row lock in an open transaction.
    Row,
    /// A named lock of the server's.
    Named,
}

/// The options of a client, as given: what is `None` is taken from the URL,
/// and what is not there either has its default.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClientOptions {
    pub(crate) application: Option<Vec<u8>>,
    pub(crate) namespace: Option<Vec<u8>>,
    pub(crate) table_prefix: Option<String>,
    pub(crate) connect_timeout: Option<Duration>,
    pub(crate) io_timeout: Option<Duration>,
    pub(crate) default_ttl: Option<Duration>,
    pub(crate) max_connections: Option<u32>,
    pub(crate) max_waiting_connections: Option<u32>,
    pub(crate) fairness: Option<Duration>,
    pub(crate) create_schema: Option<bool>,
}

/// The options of a client, complete and checked.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) application: Vec<u8>,
    pub(crate) namespace: Vec<u8>,
    pub(crate) table_prefix: String,
    pub(crate) connect_timeout: Duration,
    pub(crate) io_timeout: Duration,
    pub(crate) default_ttl: Duration,
    pub(crate) max_connections: usize,
    pub(crate) max_waiting_connections: usize,
    pub(crate) fairness: Duration,
    pub(crate) create_schema: bool,
}

impl ClientOptions {
    /// These options, with `other` for what they leave open.
    pub(crate) fn or(self, other: ClientOptions) -> ClientOptions {
        ClientOptions {
            application: self.application.or(other.application),
            namespace: self.namespace.or(other.namespace),
            table_prefix: self.table_prefix.or(other.table_prefix),
            connect_timeout: self.connect_timeout.or(other.connect_timeout),
            io_timeout: self.io_timeout.or(other.io_timeout),
            default_ttl: self.default_ttl.or(other.default_ttl),
            max_connections: self.max_connections.or(other.max_connections),
            max_waiting_connections: self.max_waiting_connections.or(other.max_waiting_connections),
            fairness: self.fairness.or(other.fairness),
            create_schema: self.create_schema.or(other.create_schema),
        }
    }

    /// Checks every option and fills in the defaults.
    pub(crate) fn complete(self) -> Result<Settings> {
        let application = self.application.unwrap_or_default();
        check_text("application", &application, 64)?;
        let namespace = self.namespace.unwrap_or_default();
        check_text("namespace", &namespace, 64)?;
        let table_prefix = self.table_prefix.unwrap_or_else(|| "dl_".to_owned());
        // The longest table is prefix + "schema"; servers allow 64 characters.
        check_text("table_prefix", table_prefix.as_bytes(), 50)?;
        Ok(Settings {
            application,
            namespace,
            table_prefix,
            connect_timeout: timeout("connect_timeout_ms", self.connect_timeout)?,
            io_timeout: timeout("io_timeout_ms", self.io_timeout)?,
            default_ttl: match self.default_ttl {
                Some(ttl) => check_ttl("default_ttl_ms", ttl)?,
                None => Duration::from_secs(30),
            },
            max_connections: connections("max_connections", self.max_connections)?,
            max_waiting_connections: connections(
                "max_waiting_connections",
                self.max_waiting_connections,
            )?,
            fairness: match self.fairness {
                Some(limit) => timeout("fairness_ms", Some(limit))?,
                None => Duration::from_millis(200),
            },
            create_schema: self.create_schema.unwrap_or(true),
        })
    }
}

fn timeout(name: &str, given: Option<Duration>) -> Result<Duration> {
    match given {
        None => Ok(Duration::from_secs(5)),
        Some(limit) if !limit.is_zero() && limit <= LONGEST_TTL => Ok(limit),
        Some(_) => Err(Error::invalid(format!("invalid {name}: 1 ms to 366 days"))),
    }
}

fn connections(name: &str, given: Option<u32>) -> Result<usize> {
    match given {
        None => Ok(8),
        Some(count @ 1..=10_000) => Ok(count as usize),
        Some(count) => Err(Error::invalid(format!("invalid {name}: {count}, it is 1 to 10000"))),
    }
}

/// Checks the length of a lease.
pub(crate) fn check_ttl(name: &str, ttl: Duration) -> Result<Duration> {
    if (SHORTEST_TTL..=LONGEST_TTL).contains(&ttl) {
        Ok(ttl)
    } else {
        let given = ttl.as_millis();
        Err(Error::invalid(format!("invalid {name}: {given} ms, it is 10 ms to 366 days")))
    }
}

/// How to acquire a lock. Made by [`AcquireOptions::new`] and the methods that
/// follow; the default is a lease of the client's default TTL, waited for
/// without end.
#[derive(Clone, Debug, Default)]
pub struct AcquireOptions {
    pub(crate) wait: Wait,
    pub(crate) ttl: Option<Duration>,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) owner: Option<Vec<u8>>,
    pub(crate) note: Vec<u8>,
    pub(crate) cancel: Option<Cancel>,
    pub(crate) kind: Kind,
    pub(crate) unfair: bool,
    pub(crate) manual_renew: bool,
}

/// How long an acquire waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Wait {
    /// One try.
    Try,
    /// At most this long.
    For(Duration),
    /// For ever.
    #[default]
    Forever,
}

impl AcquireOptions {
    /// The defaults.
    pub fn new() -> AcquireOptions {
        AcquireOptions::default()
    }

    /// Waits this long at most; zero makes one try.
    #[must_use]
    pub fn wait(mut self, limit: Duration) -> AcquireOptions {
        self.wait = if limit.is_zero() { Wait::Try } else { Wait::For(limit) };
        self
    }

    /// The length of the lease, 10 ms to 366 days.
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> AcquireOptions {
        self.ttl = Some(ttl);
        self
    }

    /// The library does not renew the lease: [`Lock::renew`](crate::Lock::renew)
    /// does.
    #[must_use]
    pub fn manual_renew(mut self) -> AcquireOptions {
        self.manual_renew = true;
        self
    }

    /// The library renews the lease no longer than this: then it ends, and the lock is lost by [`LostCause::MaxHold`](crate::LostCause::MaxHold).
    /// No effect with [`AcquireOptions::manual_renew`].
    #[must_use]
    pub fn max_hold(mut self, limit: Duration) -> AcquireOptions {
        self.max_hold = Some(limit);
        self
    }

    /// Acquires as this owner, at most 255 bytes: whoever acquires the same
    /// key as the same owner shares the grant. Each lock is released once, the
    /// last release frees the key, and a loss ends them all.
    #[must_use]
    pub fn owner(mut self, owner: impl AsRef<[u8]>) -> AcquireOptions {
        self.owner = Some(owner.as_ref().to_vec());
        self
    }

    /// A note for people who look at the table, at most 255 bytes.
    #[must_use]
    pub fn note(mut self, note: impl AsRef<[u8]>) -> AcquireOptions {
        self.note = note.as_ref().to_vec();
        self
    }

    /// Takes the lock if it is free, though others wait for it already; waits in
    /// its turn otherwise. A single try always does.
    #[must_use]
    pub fn unfair(mut self) -> AcquireOptions {
        self.unfair = true;
        self
    }

    /// The token that ends the call when it is fired.
    #[must_use]
    pub fn cancel(mut self, cancel: &Cancel) -> AcquireOptions {
        self.cancel = Some(cancel.clone());
        self
    }

    /// The kind of lock.
    #[must_use]
    pub fn kind(mut self, kind: Kind) -> AcquireOptions {
        self.kind = kind;
        self
    }

    /// Checks everything that can be checked without a server.
    pub(crate) fn check(&self) -> Result<()> {
        if let Some(ttl) = self.ttl {
            check_ttl("ttl_ms", ttl)?;
        }
        if let Some(owner) = &self.owner {
            check_text("owner", owner, 255)?;
            if owner.is_empty() {
                return Err(Error::invalid("invalid owner: it is empty"));
            }
        }
        check_text("note", &self.note, 255)?;
        check_kind(self.kind)
    }
}

/// Whether there are locks of this kind.
pub(crate) fn check_kind(kind: Kind) -> Result<()> {
    if kind != Kind::Lease {
        let message = "this kind of lock is not there yet: LEASE alone";
        return Err(Error::new(Status::Unsupported, message));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ttl_is_10_ms_to_366_days() {
        let day = Duration::from_secs(86_400);
        for good in [SHORTEST_TTL, day, day * 366] {
            assert!(AcquireOptions::new().ttl(good).check().is_ok());
        }
        for bad in [Duration::ZERO, Duration::from_millis(9), day * 366 + SHORTEST_TTL] {
            assert!(AcquireOptions::new().ttl(bad).check().is_err());
        }
    }

    #[test]
    fn what_is_given_wins_over_what_is_in_the_url() {
        let given = ClientOptions { io_timeout: Some(SHORTEST_TTL), ..Default::default() };
        let url = ClientOptions {
            io_timeout: Some(LONGEST_TTL),
            namespace: Some(b"n".to_vec()),
            ..Default::default()
        };
        let settings = given.or(url).complete().unwrap();
        assert_eq!(settings.io_timeout, SHORTEST_TTL);
        assert_eq!(settings.namespace, b"n");
        assert_eq!(settings.max_connections, 8);
    }

    #[test]
    fn long_texts_are_refused_and_never_cut() {
        let long = ClientOptions { namespace: Some(vec![b'n'; 65]), ..Default::default() };
        assert!(long.complete().is_err());
        assert!(AcquireOptions::new().owner([b'o'; 256]).check().is_err());
        assert!(AcquireOptions::new().note([b'o'; 255]).check().is_ok());
    }
}
