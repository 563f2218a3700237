//! Renewing the leases that are due, all in one statement, and what became of
//! each. A row that is locked, gone or another's harms only its own lease.

use std::collections::HashMap;
use std::time::Duration;

use super::{Leases, has_hold, micros, taken_by};
use crate::call::Call;
use crate::grant::{self, Grant, LostCause, Renewal};
use crate::session::failure::{Class, Failure};
use crate::session::pool::{NoSession, Pool};
use crate::session::{Cells, Session, number_in};
use crate::sql::renewal::{self as statement, Due};
use crate::stats::Counter;
use crate::sync::Arc;
use crate::sys::clock::Instant;

/// The least time for an answer, where a deadline is near: others in the same
/// statement have more time.
const LEAST_TIME: Duration = Duration::from_millis(250);
/// A session of the pool's serves where there is none of the renewer's own for
/// so long.
const OWN_SESSION: Duration = Duration::from_millis(250);

impl Leases {
    /// Renews those of `grants` that are still held, within half of the time that
    /// the first of them has left: so that there is time to try again.
    pub(crate) fn renew_due(&self, grants: &[Arc<Grant>]) {
        let begun: Vec<(&Arc<Grant>, Renewal<'_>)> =
            grants.iter().filter_map(|grant| Some((grant, grant.begin_renewal()?))).collect();
        let Some(first) = begun.iter().map(|(grant, _)| grant.deadline()).min() else { return };
        let limit = (first.left() / 2).max(LEAST_TIME).min(self.connector.settings.io_timeout);
        let entered = self.calls.begin(Instant::now().after(limit));
        let call = entered.as_ref();
        self.stats.count_many(Counter::Renewals, begun.len() as u64);
        let Some((mut session, pool)) = self.session_to_renew(call) else {
            return begun.iter().for_each(|(grant, _)| grant.not_renewed(true));
        };
        let answer = self.ask_to_renew(&mut session, call, &begun);
        self.give_back_to(pool, call, session, answer.as_ref().err());
        match answer {
            Ok(rows) => conclude_all(&begun, &rows),
            Err(failure) => {
                self.stats.count_retry(failure.refusal().class());
                let is_lost = matches!(failure, Failure::Lost(_));
                let unreachable = is_lost || failure.refusal().class() == Class::ReadOnly;
                for (grant, renewal) in &begun {
                    if !is_lost {
                        grant.refused(renewal.attempt);
                    }
                    grant.not_renewed(unreachable);
                }
            }
        }
    }

    /// A session of the renewer's own, apart from the pool's, so that no statement
    /// of a caller's delays a renewal; one of the pool's, where the server lets
    /// nobody more in.
    fn session_to_renew(&self, call: &Arc<Call>) -> Option<(Session, &Arc<Pool>)> {
        let soon = self.calls.begin(call.deadline().min(Instant::now().after(OWN_SESSION)));
        match self.renewals.take(soon.as_ref()) {
            Ok(session) => return Some((session, &self.renewals)),
            Err(NoSession::Interrupted(_)) => return None,
            Err(NoSession::Failed(_) | NoSession::Late(_)) => {}
        }
        self.pool.take(call).ok().map(|session| (session, &self.pool))
    }

    fn ask_to_renew(
        &self,
        session: &mut Session,
        call: &Call,
        begun: &[(&Arc<Grant>, Renewal<'_>)],
    ) -> Result<Vec<Cells>, Failure> {
        let due: Vec<Due<'_>> = begun
            .iter()
            .map(|(grant, renewal)| {
                let before = grant.renewing(renewal.attempt, renewal.ttl, false);
                Due {
                    key: grant.key.as_bytes(),
                    token: grant.token,
                    hold: grant.hold,
                    ttl_us: micros(renewal.ttl),
                    before: if grant.owner.is_none() { before } else { Vec::new() },
                    attempt: renewal.attempt,
                }
            })
            .collect();
        let (names, namespace) = (&self.connector.names, &self.connector.settings.namespace);
        let keys: Vec<&[u8]> = due.iter().map(|due| due.key).collect();
        let look = statement::look_all(names, namespace, &keys);
        if session.logs_statements {
            // SKIP LOCKED is not for a binary log of statements: one by one there.
            for due in &due {
                match session.execute(call, &statement::renew_one(names, namespace, due)) {
                    Err(failure @ Failure::Lost(_)) => return Err(failure),
                    Ok(_) | Err(Failure::Refused(_)) => {}
                }
            }
            return session.query(call, &look);
        }
        let renew = statement::renew_all(names, namespace, &due, session.server.is_mariadb);
        let text = format!("{renew}; {look}");
        session.query_last(call, &text)
    }
}

/// Each row tells what became of its lease.
fn conclude_all(begun: &[(&Arc<Grant>, Renewal<'_>)], rows: &[Cells]) {
    let rows: HashMap<u64, &Cells> = rows.iter().map(|row| (number_in(row, 0), row)).collect();
    for (place, (grant, renewal)) in (1..).zip(begun) {
        match rows.get(&place).map(|row| Seen::read(row)) {
            None => grant.found_lost(LostCause::RowGone),
            Some(row) => conclude(grant, renewal, &row),
        }
    }
}

fn conclude(grant: &Grant, renewal: &Renewal<'_>, row: &Seen) {
    if row.token != grant.token {
        return grant.found_lost(taken_by(&row.attempt));
    }
    if !has_hold(&row.holds, &grant.hold) || row.left.is_zero() {
        return grant.found_lost(LostCause::Expired);
    }
    let held_until = match grant.answered(row.attempt) {
        Some(deadline) => deadline,
        // Another client of the same owner was the last to renew it.
        None if grant.owner.is_some() => grant::deadline(renewal.begun, row.left),
        None => return grant.not_renewed(false),
    };
    grant.renewed(held_until);
    let by_another = grant.owner.is_some() && row.left >= renewal.ttl * 9 / 10;
    if row.attempt != renewal.attempt && !by_another {
        // The row was locked, and is as it was.
        grant.not_renewed(false);
    }
}

/// What `look_all` tells of one row.
struct Seen {
    token: u64,
    holds: Vec<u8>,
    attempt: [u8; 16],
    left: Duration,
}

impl Seen {
    fn read(row: &Cells) -> Seen {
        let bytes = |column: usize| row.get(column).cloned().flatten().unwrap_or_default();
        Seen {
            left: Duration::from_micros(number_in(row, 1)),
            token: number_in(row, 2),
            holds: bytes(3),
            attempt: bytes(4).try_into().unwrap_or_default(),
        }
    }
}
