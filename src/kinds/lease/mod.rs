//! The lease kind: acquire, renew and release against the row, with every
//! answer that a server or a broken connection can give.

pub(crate) mod acquire;
mod attempt;
mod crew;
pub(crate) mod hand_over;
mod hold;
pub(crate) mod operate;
mod renewal;
mod stand;
mod stepped;
mod watch;

use std::time::Duration;

use crate::call::{Call, Waited};
use crate::calls::Calls;
use crate::error::{Error, Result, Status};
use crate::grant::LostCause;
use crate::grants::Grants;
use crate::key::Key;
use crate::resolve::Resolver;
use crate::session::connect::Connector;
use crate::session::failure::{Class, Failure};
use crate::session::pool::{NoSession, Pool};
use crate::session::{Cells, Session, number};
use crate::sql::lease::{FORCED, Row, Stamp};
use crate::stats::{Counters, Stats};
use crate::sync::{Arc, Mutex};
use crate::sys::clock::Instant;
use crate::wait::Waiting;
use crate::wait::backoff::Backoff;

use stepped::Watches;

/// What the lease statements need of a client.
pub(crate) struct Leases {
    pub(crate) connector: Arc<Connector>,
    pub(crate) pool: Arc<Pool>,
    /// The sessions that wait, apart from the pool's.
    pub(crate) gates: Arc<Pool>,
    /// The renewer's session, apart from both.
    pub(crate) renewals: Arc<Pool>,
    pub(crate) resolver: Arc<Resolver>,
    pub(crate) waiting: Waiting,
    pub(crate) grants: Grants,
    pub(crate) calls: Arc<Calls>,
    pub(crate) stats: Counters,
    pub(crate) host: Vec<u8>,
    pub(crate) pid: u32,
    watches: Mutex<Watches>,
}

impl Leases {
    pub(crate) fn new(connector: Arc<Connector>, host: Vec<u8>, pid: u32) -> Leases {
        let pool = Arc::new(Pool::new(Arc::clone(&connector)));
        Leases {
            resolver: Arc::new(Resolver::new(Arc::clone(&connector), Arc::clone(&pool))),
            gates: Arc::new(Pool::for_waiting(Arc::clone(&connector))),
            renewals: Arc::new(Pool::for_renewing(Arc::clone(&connector))),
            pool,
            waiting: Waiting::default(),
            grants: Grants::default(),
            calls: Arc::default(),
            stats: Counters::default(),
            connector,
            host,
            pid,
            watches: Mutex::default(),
        }
    }

    /// A round trip. A server that cannot be reached is told at once; what a
    /// broken connection answered is asked again.
    pub(crate) fn ping(&self, call: &Arc<Call>) -> Result<()> {
        let ping =
            |session: &mut Session| session.execute(call, crate::sql::session::PING).map(drop);
        self.until_answered(call, "ping", false, ping)
    }

    /// Runs `send` on one session after the other until the server has
    /// answered, or the call's deadline has passed. For statements that may be
    /// sent again after a lost reply, since doing them twice is doing them once.
    /// Where no session can be opened, only the `patient` go on trying.
    fn until_answered<T>(
        &self,
        call: &Arc<Call>,
        what: &str,
        patient: bool,
        mut send: impl FnMut(&mut Session) -> Result<T, Failure>,
    ) -> Result<T> {
        let mut backoff = Backoff::new();
        loop {
            let error = match self.pool.take(call) {
                Ok(mut session) => {
                    let answer = send(&mut session);
                    let was_outdated = self.give_session_back(call, session, answer.as_ref().err());
                    match answer {
                        Ok(value) => return Ok(value),
                        Err(failure) => {
                            let refusal = failure.refusal();
                            let error = refusal.error(what);
                            let again = was_outdated
                                || matches!(failure, Failure::Lost(_))
                                || refusal.class() == Class::Blocked
                                || error.status() == Status::Unavailable;
                            if !again {
                                return Err(error);
                            }
                            self.stats.count_retry(refusal.class());
                            unavailable(error)
                        }
                    }
                }
                Err(NoSession::Interrupted(status)) => return Err(ended(status)),
                Err(NoSession::Failed(error)) if !patient || is_final(&error) => return Err(error),
                Err(NoSession::Failed(error) | NoSession::Late(error)) => error,
            };
            match call.wait(Instant::now().after(backoff.next()), || None::<()>) {
                Waited::Interrupted(status) => return Err(ended(status)),
                _ if call.deadline().has_passed() => return Err(error),
                _ => {}
            }
        }
    }

    /// Puts a session back after its answer. Where tables or rights were not
    /// what they had been, all sessions go: new ones see what is there now, make
    /// what is missing, or say why they may not. True if a new one may answer
    /// otherwise: servers keep an account's rights in a session, and this one
    /// is older than the call.
    fn give_session_back(&self, call: &Call, session: Session, failure: Option<&Failure>) -> bool {
        self.give_back_to(&self.pool, call, session, failure)
    }

    /// The same, for a session of this pool's.
    fn give_back_to(
        &self,
        pool: &Arc<Pool>,
        call: &Call,
        mut session: Session,
        failure: Option<&Failure>,
    ) -> bool {
        let class = match failure {
            Some(Failure::Refused(refusal)) => refusal.class(),
            _ => Class::Other,
        };
        let was_outdated =
            class == Class::NoTable || (class == Class::Config && session.opened_at < call.begun());
        if matches!(class, Class::NoTable | Class::Config) {
            session.mark_broken();
            pool.flush();
        }
        pool.put_back(session);
        was_outdated
    }

    /// The counters, and what is open now.
    pub(crate) fn numbers(&self) -> Stats {
        Stats {
            waiting: self.waiting.count() as u64,
            connections: self.pool.count() as u64,
            waiting_connections: self.gates.count() as u64,
            ..self.stats.read()
        }
    }

    pub(crate) fn row<'a>(&'a self, key: &'a Key) -> Row<'a> {
        Row {
            names: &self.connector.names,
            namespace: &self.connector.settings.namespace,
            key: key.as_bytes(),
        }
    }
}

/// A row as a look found it.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) stamp: Stamp,
    pub(crate) owner: Option<Vec<u8>>,
    holds: Vec<u8>,
    pub(crate) left_us: u64,
    pub(crate) ttl_us: u64,
    pub(crate) attempt: [u8; 16],
}

impl Found {
    /// Reads the result of a look; `None` if there is no row.
    pub(crate) fn read(rows: &[Cells]) -> Option<Found> {
        let row = rows.first()?;
        Some(Found {
            stamp: Stamp {
                token: number(rows, 0),
                renewed_us: number(rows, 6),
                expires_us: number(rows, 3),
            },
            owner: row.get(1).cloned().flatten(),
            holds: row.get(2).cloned().flatten().unwrap_or_default(),
            left_us: number(rows, 4),
            ttl_us: number(rows, 5),
            attempt: row
                .get(7)
                .cloned()
                .flatten()
                .unwrap_or_default()
                .try_into()
                .unwrap_or_default(),
        })
    }

    /// True if `hold` is one of the row's.
    pub(crate) fn has(&self, hold: &[u8; 16]) -> bool {
        has_hold(&self.holds, hold)
    }

    fn is_full(&self) -> bool {
        self.holds.len() >= 256
    }
}

/// How a grant was lost whose row has another token, by what is in `attempt`.
fn taken_by(attempt: &[u8; 16]) -> LostCause {
    if *attempt == FORCED { LostCause::Forced } else { LostCause::Taken }
}

/// True if `hold` is one of a row's.
fn has_hold(holds: &[u8], hold: &[u8; 16]) -> bool {
    holds.chunks(16).any(|other| other == hold)
}

/// True if waiting cannot help.
fn is_final(error: &Error) -> bool {
    matches!(
        error.status(),
        Status::Config
            | Status::Server
            | Status::InvalidArgument
            | Status::Unsupported
            | Status::Closed
            | Status::Internal
    )
}

/// What was retried in vain is UNAVAILABLE, whatever it was.
fn unavailable(error: Error) -> Error {
    if error.status() == Status::Server { error.into_unavailable() } else { error }
}

fn micros(ttl: Duration) -> u64 {
    u64::try_from(ttl.as_micros()).unwrap_or(u64::MAX)
}

pub(crate) fn not_held() -> Error {
    Error::new(Status::NotHeld, "the lock is not held")
}

/// The error of a call that was ended from outside.
pub(crate) fn ended(status: Status) -> Error {
    match status {
        Status::Cancelled => Error::new(status, "the call was cancelled"),
        Status::TimedOut => Error::new(Status::Unavailable, "no answer from the server in time"),
        _ => Error::new(status, "the client is closed"),
    }
}
