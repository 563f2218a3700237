//! Acquiring a lease: one attempt after the other, each with an id of its own,
//! until one is granted or the call ends.

use std::time::Duration;

use super::{Found, Leases, ended, is_final, micros, unavailable};
use crate::call::{Call, Waited};
use crate::error::{Error, Result, Status};
use crate::grant;
use crate::key::Key;
use crate::random;
use crate::resolve::{Leftover, Unknown, Verdict};
use crate::session::Session;
use crate::session::failure::{Class, Failure, Refusal};
use crate::session::pool::NoSession;
use crate::sql::lease::{self as statement, LATE, Row, STEPPED};
use crate::sync::Arc;
use crate::sys::clock::Instant;
use crate::wait::backoff::Backoff;

/// For how long a single try goes on where the row is locked by somebody's
/// transaction: MySQL's least wait for a row.
const TRY_BLOCKED: Duration = Duration::from_secs(1);
/// How long before its deadline a wait makes its last try.
const LAST_TRY: Duration = Duration::from_millis(5);
/// How often a single try begins anew where a session or a table was not
/// what it seemed.
const TRY_UNREADY: u32 = 3;

/// What is asked for.
#[derive(Debug)]
pub(crate) struct Request<'a> {
    pub(crate) key: &'a Key,
    pub(crate) owner: Option<&'a [u8]>,
    pub(crate) note: &'a [u8],
    pub(crate) ttl: Duration,
    pub(crate) one_try: bool,
}

/// A lease as it was granted.
#[derive(Debug)]
pub(crate) struct Granted {
    pub(crate) token: u64,
    pub(crate) hold: [u8; 16],
    pub(crate) deadline: Instant,
}

/// How one attempt ended.
enum Tried {
    Granted(Granted),
    /// Someone has it for this long still.
    Held(Duration),
    /// The row is locked by a transaction.
    Blocked(Error),
    /// This session, server or reply was no good; another may be.
    Unready(Error),
    /// Trying again cannot help.
    Failed(Error),
    /// The call must end.
    Ended(Status),
}

/// What was seen on the way, for the answer at the deadline.
struct Seen {
    held: bool,
    unready: u32,
    error: Option<Error>,
}

impl Leases {
    /// Acquires a lease, or says why not by the call's deadline.
    pub(crate) fn acquire(&self, call: &Arc<Call>, request: &Request<'_>) -> Result<Granted> {
        let mut backoff = Backoff::new();
        let mut seen = Seen { held: false, unready: 0, error: None };
        loop {
            let pause = match self.attempt(call, request) {
                Tried::Granted(granted) => return Ok(granted),
                Tried::Failed(error) => return Err(error),
                Tried::Ended(status) => return Err(ended(status)),
                Tried::Held(left) => {
                    seen.held = true;
                    if request.one_try {
                        return Err(not_acquired());
                    }
                    // Awake at the expiry, if nobody releases before.
                    backoff.next().min(left)
                }
                Tried::Blocked(error) => {
                    seen.held = true;
                    seen.error = Some(error);
                    if request.one_try && Instant::now().since(call.begun()) >= TRY_BLOCKED {
                        return Err(not_acquired());
                    }
                    backoff.next()
                }
                Tried::Unready(error) => {
                    seen.unready += 1;
                    if request.one_try && seen.unready >= TRY_UNREADY {
                        return Err(error);
                    }
                    seen.error = Some(error);
                    backoff.next()
                }
            };
            let pause = before_the_end(pause, call.deadline().left());
            match call.wait(Instant::now().after(pause), || None::<()>) {
                Waited::Interrupted(status) => return Err(ended(status)),
                _ if call.deadline().has_passed() => {
                    return Err(seen.at_deadline(request.one_try));
                }
                _ => {}
            }
        }
    }

    /// One attempt, with one hold id, on one session.
    fn attempt(&self, call: &Arc<Call>, request: &Request<'_>) -> Tried {
        let mut session = match self.pool.take(call) {
            Ok(session) => session,
            Err(NoSession::Interrupted(status)) => return Tried::Ended(status),
            Err(NoSession::Failed(error)) if is_final(&error) => return Tried::Failed(error),
            // A single try knocks more than once: a connection may be lost while
            // it is being opened, by whatever ended the ones before.
            Err(NoSession::Failed(error) | NoSession::Late(error)) => {
                return Tried::Unready(error);
            }
        };
        let hold = random::id();
        let give_up_us = match session.give_up(call) {
            Ok(give_up_us) => give_up_us,
            Err(failure) => {
                // Nothing was asked for yet, so nothing is in doubt.
                let was_outdated = self.give_session_back(call, session, Some(&failure));
                return refused(failure.refusal(), was_outdated);
            }
        };
        let sent = Instant::now();
        let answer = self.ask(&mut session, call, request, &hold, give_up_us);
        let unknown = match &answer {
            Err(Failure::Lost(_)) => Some(Unknown {
                key: request.key.clone(),
                hold,
                session: session.id,
                server: Arc::clone(&session.server),
                until: Instant::now().after(self.connector.settings.io_timeout + request.ttl),
            }),
            _ => None,
        };
        let reached = session.opened_at >= call.begun();
        let was_outdated = self.give_session_back(call, session, answer.as_ref().err());
        match (answer, unknown) {
            (Ok(Answer::Granted(token)), _) => self.honest(request, token, hold, sent),
            (Ok(Answer::Held(left)), _) => Tried::Held(left),
            (Ok(Answer::TooLate), _) => {
                let text = "no answer from the server in time";
                Tried::Unready(Error::new(Status::Unavailable, text))
            }
            (Ok(Answer::Full), _) => {
                let text = "the owner has 16 holds of this key already, which is the most";
                Tried::Failed(Error::new(Status::Unsupported, text))
            }
            (Err(failure), Some(unknown)) => {
                self.find_out(call, request, sent, unknown, reached, failure.refusal())
            }
            (Err(failure), None) => refused(failure.refusal(), was_outdated),
        }
    }

    /// The statements of one attempt, until one of them decides.
    fn ask(
        &self,
        session: &mut Session,
        call: &Call,
        request: &Request<'_>,
        hold: &[u8; 16],
        mut give_up_us: u64,
    ) -> Result<Answer, Failure> {
        let row = self.row(request.key);
        // A caller without an owner text is an owner of its own.
        let own = crate::sql::hex(hold);
        loop {
            let grant = statement::Grant {
                owner: request.owner.unwrap_or(own.trim_matches(['x', '\'']).as_bytes()),
                attempt: hold,
                ttl_us: micros(request.ttl),
                give_up_us,
                application: &self.connector.settings.application,
                host: &self.host,
                pid: self.pid,
                note: request.note,
            };
            let sent = Instant::now();
            let done = session.execute(call, &row.take(&grant))?;
            match (done.rows, done.insert_id) {
                (1, token) => return Ok(Answer::Granted(token)),
                (0, 0) => match session.execute(call, &row.insert(&grant)) {
                    Ok(done) if done.rows > 0 => return Ok(Answer::Granted(done.insert_id)),
                    // Too late: `take` tells by how much, once there is a row;
                    // here the clock is asked.
                    Ok(_) => session.forget_clock(),
                    // Someone else's row came in between: go by it.
                    Err(Failure::Refused(r)) if r.class() == Class::Duplicate => continue,
                    Err(failure) => return Err(failure),
                },
                (_, late) if late >= LATE => session.learn_clock(sent, late - LATE),
                (_, left_us) => {
                    let held = self.join(session, call, &row, &grant, request, left_us)?;
                    if left_us < STEPPED || !matches!(held, Answer::Held(_)) {
                        return Ok(held);
                    }
                    let token = self.take_stepped(session, call, &row, &grant, request.key)?;
                    return Ok(token.map_or(held, Answer::Granted));
                }
            }
            // The statement came after its give-up: the server's clock was
            // stepped since it was read (or the deadline has passed, and then
            // the caller's own clock says so at the next turn).
            if call.deadline().has_passed() {
                return Ok(Answer::TooLate);
            }
            give_up_us = session.give_up(call)?;
        }
    }

    /// The lease is held: by the same owner, perhaps.
    fn join(
        &self,
        session: &mut Session,
        call: &Call,
        row: &Row<'_>,
        grant: &statement::Grant<'_>,
        request: &Request<'_>,
        left_us: u64,
    ) -> Result<Answer, Failure> {
        let held = Ok(Answer::Held(Duration::from_micros(left_us)));
        let Some(owner) = request.owner else { return held };
        let done = session.execute(call, &row.join(grant))?;
        if done.rows > 0 {
            return Ok(Answer::Granted(done.insert_id));
        }
        match Found::read(&session.query(call, &row.look())?) {
            Some(found) if found.owner.as_deref() == Some(owner) && found.is_full() => {
                Ok(Answer::Full)
            }
            _ => held,
        }
    }

    /// A grant, if enough of its lease is left to be told of. One that took
    /// longer to arrive than it lasts is given back.
    fn honest(&self, request: &Request<'_>, token: u64, hold: [u8; 16], sent: Instant) -> Tried {
        let deadline = grant::deadline(sent, request.ttl);
        if deadline.has_passed() {
            let until = sent.after(request.ttl);
            let key = request.key.clone();
            let is_shared = request.owner.is_some();
            self.resolver.release(Leftover { key, token, hold, is_shared, until });
            let text = "the server took longer to grant the lease than the lease lasts";
            return Tried::Unready(Error::new(Status::Unavailable, text));
        }
        Tried::Granted(Granted { token, hold, deadline })
    }

    /// The reply was lost: what happened is found out, and a grant adopted.
    fn find_out(
        &self,
        call: &Arc<Call>,
        request: &Request<'_>,
        sent: Instant,
        unknown: Unknown,
        reached: bool,
        refusal: &Refusal,
    ) -> Tried {
        let hold = unknown.hold;
        match self.resolver.find(call, unknown) {
            Waited::Ready(Verdict::Granted(token)) => self.honest(request, token, hold, sent),
            Waited::Ready(Verdict::Busy) => Tried::Blocked(refusal.error("acquire")),
            // The server was there when this call began, but did not answer this
            // statement until the deadline: likely a transaction has the row
            // locked, which MySQL does not say in less than a second.
            Waited::Late if reached && !request.one_try => Tried::Blocked(refusal.error("acquire")),
            Waited::Ready(Verdict::Nothing) | Waited::Late => {
                Tried::Unready(refusal.error("acquire"))
            }
            Waited::Interrupted(status) => Tried::Ended(status),
        }
    }
}

/// What one attempt's statements found.
enum Answer {
    Granted(u64),
    Held(Duration),
    Full,
    TooLate,
}

impl Seen {
    fn at_deadline(self, one_try: bool) -> Error {
        if self.held && one_try {
            return not_acquired();
        }
        if self.held {
            let text = "timed out: someone else has the lock";
            return Error::new(Status::TimedOut, text);
        }
        let nothing = || Error::new(Status::Unavailable, "no answer from the server in time");
        unavailable(self.error.unwrap_or_else(nothing))
    }
}

/// A pause cut short for one more try just before the end, if it would pass it.
fn before_the_end(pause: Duration, left: Duration) -> Duration {
    match left.checked_sub(LAST_TRY) {
        Some(until_last) if !until_last.is_zero() => pause.min(until_last),
        _ => left,
    }
}

fn refused(refusal: &Refusal, was_outdated: bool) -> Tried {
    let error = refusal.error("acquire");
    match refusal.class() {
        _ if was_outdated => Tried::Unready(error),
        Class::Blocked => Tried::Blocked(error),
        Class::ReadOnly | Class::Crowded => Tried::Unready(error),
        _ if error.status() == Status::Unavailable => Tried::Unready(error),
        _ => Tried::Failed(error),
    }
}

fn not_acquired() -> Error {
    Error::new(Status::NotAcquired, "not acquired: someone else has the lock")
}
