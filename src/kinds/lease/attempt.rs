//! One attempt at a lease: its statements on one session, and what their answers
//! mean. Each has an id of its own, so that one whose reply was lost can be found
//! out.

use std::time::Duration;

use super::{Found, Leases, micros};
use crate::call::{Call, Waited};
use crate::error::{Error, Status};
use crate::grant::{self, Grant};
use crate::random;
use crate::resolve::{Leftover, Unknown, Verdict};
use crate::session::Session;
use crate::session::failure::{Class, Failure, Refusal};
use crate::sql::gate::Gate;
use crate::sql::hex_digits;
use crate::sql::lease::{self as statement, LATE, QUEUED, Row, STEPPED};
use crate::stats::Counter;
use crate::sync::Arc;
use crate::sys::clock::Instant;
use crate::wait::waiter::{Granted, Request};

/// How soon a lease is asked for again whose expiry cannot be: see stepped.rs.
const STEPPED_PAUSE: Duration = Duration::from_millis(200);

/// What an attempt goes by.
pub(super) struct Attempt<'a> {
    /// Whose I/O it is.
    pub(super) call: &'a Arc<Call>,
    /// Its id, and that of its hold.
    pub(super) hold: [u8; 16],
    /// When whoever it is for gives up.
    pub(super) until: Instant,
    pub(super) request: &'a Request,
    /// Leaves a free lease to those who stand at this gate.
    pub(super) behind: Option<&'a Gate>,
    /// Asks first whether a transaction has the row locked: for who must not be
    /// held up by it, as MySQL would for a second.
    pub(super) probes: bool,
    /// This session is the first at this gate, and leaves it with the grant.
    pub(super) at: Option<&'a Gate>,
    /// The grant of this process from which the lease is to pass.
    pub(super) from: Option<&'a Grant>,
    /// Takes no free lease: it only joins one that its owner has.
    pub(super) only_joins: bool,
}

impl<'a> Attempt<'a> {
    /// A take, with nothing special about it.
    pub(super) fn new(call: &'a Arc<Call>, until: Instant, request: &'a Request) -> Attempt<'a> {
        Attempt {
            call,
            hold: random::id(),
            until,
            request,
            behind: None,
            probes: false,
            at: None,
            from: None,
            only_joins: false,
        }
    }
}

/// What came back from the server, and what is needed to find out the rest.
pub(super) struct Sent {
    answer: Result<Answer, Failure>,
    hold: [u8; 16],
    at: Instant,
    unknown: Option<Unknown>,
    /// The session was opened by this call: the server was there.
    reached: bool,
}

/// How one attempt ended.
pub(super) enum Tried {
    Granted(Granted),
    /// Someone has it for this long still.
    Held(Duration),
    /// It is free, and others stand at the gate for it.
    Queued,
    /// The row is locked by a transaction.
    Blocked(Error),
    /// This session, server or reply was no good; another may be.
    Unready(Error),
    /// Trying again cannot help.
    Failed(Error),
    /// The call must end.
    Ended(Status),
}

/// What one attempt's statements found.
enum Answer {
    Granted(u64),
    Held(Duration),
    Queued,
    Full,
    TooLate,
}

impl Sent {
    pub(super) fn failure(&self) -> Option<&Failure> {
        self.answer.as_ref().err()
    }

    /// True if it is certain that nothing was granted.
    pub(super) fn had_no_effect(&self) -> bool {
        self.unknown.is_none() && !matches!(self.answer, Ok(Answer::Granted(_)))
    }
}

impl Leases {
    /// Runs the statements of one attempt.
    pub(super) fn send(&self, session: &mut Session, attempt: &Attempt<'_>) -> Sent {
        let hold = attempt.hold;
        let at = Instant::now();
        let answer = match session.give_up(attempt.call, attempt.until) {
            Ok(give_up_us) => match attempt.from {
                Some(from) => self.ask_to_hand_over(session, attempt, from, &hold, give_up_us),
                None => self.ask(session, attempt, &hold, give_up_us),
            },
            // Nothing was asked for yet, so nothing is in doubt.
            Err(failure) => Err(Failure::Refused(failure.into_refusal())),
        };
        let unknown = matches!(answer, Err(Failure::Lost(_))).then(|| Unknown {
            key: attempt.request.key.clone(),
            hold,
            session: session.id,
            server: Arc::clone(&session.server),
            until: Instant::now().after(self.connector.settings.io_timeout + attempt.request.ttl),
        });
        let reached = session.opened_at >= attempt.call.begun();
        Sent { answer, hold, at, unknown, reached }
    }

    /// What the answer means; where there was none, what happened is found out.
    pub(super) fn conclude(&self, attempt: &Attempt<'_>, sent: Sent, was_outdated: bool) -> Tried {
        let request = attempt.request;
        match (sent.answer, sent.unknown) {
            (Ok(Answer::Granted(token)), _) => self.honest(request, token, sent.hold, sent.at),
            (Ok(Answer::Held(left)), _) => Tried::Held(left),
            (Ok(Answer::Queued), _) => Tried::Queued,
            (Ok(Answer::TooLate), _) => {
                let text = "no answer from the server in time";
                Tried::Unready(Error::new(Status::Unavailable, text))
            }
            (Ok(Answer::Full), _) => {
                let text = "the owner has 16 holds of this key already, which is the most";
                Tried::Failed(Error::new(Status::Unsupported, text))
            }
            (Err(failure), Some(unknown)) => {
                self.find_out(attempt, sent.at, unknown, sent.reached, failure.refusal())
            }
            (Err(failure), None) => self.refused(failure.refusal(), was_outdated),
        }
    }

    /// The statements of one attempt, until one of them decides.
    fn ask(
        &self,
        session: &mut Session,
        attempt: &Attempt<'_>,
        hold: &[u8; 16],
        mut give_up_us: u64,
    ) -> Result<Answer, Failure> {
        let (call, request) = (attempt.call, attempt.request);
        let row = self.row(&request.key);
        let mut behind = attempt.behind;
        if let Some(gate) = behind.take_if(|_| session.logs_statements)
            && crate::session::number(&session.query(call, &gate.look())?, 0) == 0
        {
            return Ok(Answer::Queued);
        }
        if attempt.probes && !session.server.is_mariadb {
            session.query(call, &row.look_if_locked())?;
        }
        loop {
            let owner = owner_of(request, hold);
            let grant = self.grant(request, &owner, hold, give_up_us);
            if attempt.only_joins {
                return self.join(session, call, &row, &grant, request, 0);
            }
            let sent = Instant::now();
            let mut text = row.take(&grant, behind);
            let done = match attempt.at {
                Some(gate) => {
                    text.push_str("; ");
                    text.push_str(&gate.leave_if_taken());
                    session.execute_first(call, &text)?
                }
                None => session.execute(call, &text)?,
            };
            match (done.rows, done.insert_id) {
                (1, token) => return Ok(Answer::Granted(token)),
                (0, 0) => match session.execute(call, &row.insert(&grant)) {
                    Ok(done) if done.rows > 0 => {
                        leave_gate(session, attempt);
                        return Ok(Answer::Granted(done.insert_id));
                    }
                    // Too late: `take` tells by how much, once there is a row;
                    // here the clock is asked.
                    Ok(_) => session.forget_clock(),
                    // Someone else's row came in between: go by it.
                    Err(Failure::Refused(r)) if r.class() == Class::Duplicate => continue,
                    Err(failure) => return Err(failure),
                },
                (_, late) if late >= LATE => session.learn_clock(sent, late - LATE),
                (_, QUEUED) => return Ok(Answer::Queued),
                (_, left_us) => {
                    let held = self.join(session, call, &row, &grant, request, left_us)?;
                    if matches!(held, Answer::Granted(_)) {
                        leave_gate(session, attempt);
                    }
                    if left_us < STEPPED || !matches!(held, Answer::Held(_)) {
                        return Ok(held);
                    }
                    let token = self.take_stepped(session, call, &row, &grant, &request.key)?;
                    let Some(token) = token else { return Ok(Answer::Held(STEPPED_PAUSE)) };
                    leave_gate(session, attempt);
                    return Ok(Answer::Granted(token));
                }
            }
            // The statement came after its give-up: the server's clock was
            // stepped since it was read (or the deadline has passed, and then
            // the caller's own clock says so at the next turn).
            if attempt.until.has_passed() {
                return Ok(Answer::TooLate);
            }
            give_up_us = session.give_up(call, attempt.until)?;
        }
    }

    /// The one statement that hands the lease of `from` over.
    fn ask_to_hand_over(
        &self,
        session: &mut Session,
        attempt: &Attempt<'_>,
        from: &Grant,
        hold: &[u8; 16],
        give_up_us: u64,
    ) -> Result<Answer, Failure> {
        let owner = owner_of(attempt.request, hold);
        let into = self.grant(attempt.request, &owner, hold, give_up_us);
        let text = self.row(&from.key).hand_over(from.token, &from.hold, &into);
        let done = session.execute(attempt.call, &text)?;
        let granted = Answer::Granted(done.insert_id);
        Ok(if done.rows > 0 { granted } else { Answer::TooLate })
    }

    /// What is written into the row for `request`.
    fn grant<'a>(
        &'a self,
        request: &'a Request,
        owner: &'a [u8],
        hold: &'a [u8; 16],
        give_up_us: u64,
    ) -> statement::Grant<'a> {
        statement::Grant {
            owner,
            attempt: hold,
            ttl_us: micros(request.ttl),
            give_up_us,
            application: &self.connector.settings.application,
            host: &self.host,
            pid: self.pid,
            note: &request.note,
        }
    }

    /// The lease is held: by the same owner, perhaps.
    fn join(
        &self,
        session: &mut Session,
        call: &Call,
        row: &Row<'_>,
        grant: &statement::Grant<'_>,
        request: &Request,
        left_us: u64,
    ) -> Result<Answer, Failure> {
        let held = Ok(Answer::Held(Duration::from_micros(left_us)));
        let Some(owner) = request.owner.as_deref() else { return held };
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
    fn honest(&self, request: &Request, token: u64, hold: [u8; 16], sent: Instant) -> Tried {
        let deadline = grant::deadline(sent, request.ttl);
        if deadline.has_passed() {
            let until = sent.after(request.ttl);
            let key = request.key.clone();
            let is_shared = request.owner.is_some();
            self.resolver.release(Leftover { key, token, hold, is_shared, until, bell: None });
            let text = "the server took longer to grant the lease than the lease lasts";
            return Tried::Unready(Error::new(Status::Unavailable, text));
        }
        self.stats.count(Counter::Grants);
        let turn_began = Instant::now();
        Tried::Granted(Granted { token, hold, deadline, turn_began, turn_goes_on: false })
    }

    /// The reply was lost: what happened is found out, and a grant adopted.
    fn find_out(
        &self,
        attempt: &Attempt<'_>,
        sent: Instant,
        unknown: Unknown,
        reached: bool,
        refusal: &Refusal,
    ) -> Tried {
        let (request, hold) = (attempt.request, unknown.hold);
        self.stats.count(Counter::Resolved);
        match self.resolver.find(attempt.call, unknown) {
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

    fn refused(&self, refusal: &Refusal, was_outdated: bool) -> Tried {
        let error = refusal.error("acquire");
        self.stats.count_retry(refusal.class());
        match refusal.class() {
            _ if was_outdated => Tried::Unready(error),
            Class::Blocked => Tried::Blocked(error),
            Class::ReadOnly | Class::Crowded => Tried::Unready(error),
            _ if error.status() == Status::Unavailable => Tried::Unready(error),
            _ => Tried::Failed(error),
        }
    }
}

/// Where a grant was not made by a `take`, which leaves the gate by itself. A
/// session that cannot is broken, and has left it.
fn leave_gate(session: &mut Session, attempt: &Attempt<'_>) {
    if let Some(gate) = attempt.at
        && session.execute(attempt.call, &gate.leave()).is_err()
    {
        session.mark_broken();
    }
}

/// The owner as the row has it: a caller without an owner text is one of its own.
fn owner_of(request: &Request, hold: &[u8; 16]) -> Vec<u8> {
    request.owner.clone().unwrap_or_else(|| hex_digits(hold).into_bytes())
}
