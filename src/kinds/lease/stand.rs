//! Standing at the server for a key, for all callers of this process who wait
//! for it: first in the queue of processes at the gate, then for the bell, then
//! the row.
//!
//! Why a stopped or dead participant costs no more than its lease. Whoever is
//! stopped in the queue or at its head is ended by the server after a few
//! seconds of silence, and the queue goes on. Whoever is stopped as a holder
//! keeps the bell alone: the first at the gate waits for it until the lease ends
//! and not longer, and then takes the row. The gate is left in the packet that
//! takes the row, so there is no moment in between. Whoever has the bell waits
//! for nothing, so no circle of waiting can close.
//!
//! Why the bell and the row are not taken in one packet, which would save a round
//! trip at each hand-over: a server notices only within a second that a client
//! has died, and would take the row for a dead one, for a whole lease.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::attempt::{Attempt, Tried};
use super::{Leases, is_final};
use crate::call::{Call, Waited};
use crate::error::{Error, Result, Status};
use crate::key::Key;
use crate::session::connect::KEEP_UP;
use crate::session::failure::{Failure, Refusal};
use crate::session::pool::NoSession;
use crate::session::{Cells, Session, number};
use crate::sql::gate::{Gate, LEAVE_EVERYTHING};
use crate::sql::session::PING;
use crate::stats::Counter;
use crate::sync::Arc;
use crate::sys::clock::Instant;
use crate::wait::queue::Stand;
use crate::wait::waiter::{Granted, Waiter};

/// Before it stands again where it could not; its row is watched meanwhile.
const AGAIN: Duration = Duration::from_secs(1);
/// How long the bell of a lease that has ended may take to ring.
const JUST_RELEASED: Duration = Duration::from_millis(5);
/// How long a row that a transaction has locked is left alone, doubled with each
/// try: at first it is that of another's try, which is over at once.
pub(super) const BLOCKED: Duration = Duration::from_micros(100);
const LONGEST_BLOCKED: Duration = Duration::from_millis(50);
/// How long after a release the first at the gate has the row, at the most: where it
/// looks at it now and then, and where it is rung for.
const LONGEST_LOOK: Duration = Duration::from_millis(300);
const A_HAND_OVER: Duration = Duration::from_millis(5);
/// Longer than it takes to come to a gate where nobody stands.
const QUEUED: Duration = Duration::from_millis(2);

/// How standing ended.
enum End {
    /// With a lease for this waiter; `true` with the bell in the session.
    Granted(Arc<Waiter>, Granted, bool),
    /// Nobody waits any more.
    Over,
    /// Not for now.
    Failed(Error),
}

impl Leases {
    /// Stands for a key until it is taken for its head, or nobody waits.
    pub(super) fn stand(self: &Arc<Leases>, stand: &Arc<Stand>) {
        let begun = self.calls.begin(Instant::NEVER);
        let call = begun.as_ref();
        let mut again_from = Instant::now();
        match self.gates.take(call) {
            Ok(mut session) => {
                stand.at(call, &session);
                match self.stand_with(&mut session, call, stand) {
                    End::Granted(waiter, granted, has_bell) => {
                        // A late KILL QUERY would end what the session does next.
                        let called_off = stand.callers.load(Ordering::SeqCst) > 0;
                        if called_off {
                            session.mark_broken();
                        }
                        if has_bell && !called_off {
                            self.keep_bell(session, &waiter, &granted);
                        } else {
                            // A stopped holder still has the bell, or the session
                            // is gone.
                            self.leave_everything(session, call, stand);
                        }
                        self.serve(&waiter, granted);
                    }
                    End::Over => self.leave_everything(session, call, stand),
                    End::Failed(error) => {
                        again_from = again_from.after(AGAIN);
                        self.cannot_stand(stand, error);
                        self.leave_everything(session, call, stand);
                    }
                }
            }
            Err(NoSession::Interrupted(_)) => {}
            Err(NoSession::Failed(error) | NoSession::Late(error)) => {
                again_from = again_from.after(AGAIN);
                self.cannot_stand(stand, error);
            }
        }
        self.waiting.stood(stand, again_from);
        self.muster();
    }

    fn stand_with(&self, session: &mut Session, call: &Arc<Call>, stand: &Arc<Stand>) -> End {
        let row = self.row(&stand.key);
        let gate = Gate::new(&row);
        let failed = |failure: Failure| End::Failed(failure.refusal().error("wait"));
        let came = Instant::now();
        loop {
            match wait(session, call, stand, &gate.enter()) {
                Waiting::Got => break,
                Waiting::Ended if self.is_over(stand) => return End::Over,
                Waiting::Ended => {}
                Waiting::Refused(refusal) => return self.refused_gate(&refusal),
                Waiting::Failed(failure) => return failed(failure),
            }
        }
        let (mut left, turn) = match session.query(call, &row.left()) {
            Ok(rows) => (Duration::from_micros(number(&rows, 0)), self.own_turn(&stand.key, &rows)),
            Err(failure) => return failed(failure),
        };
        if !left.is_zero() {
            self.waiting.saw_held(&stand.key);
        }
        if !left.is_zero() || Instant::now().since(came) > QUEUED {
            self.waiting.saw_others(&stand.key);
        }
        let (mut has_bell, mut blocked, mut watched) = (false, BLOCKED, false);
        loop {
            if self.is_over(stand) {
                return End::Over;
            }
            if !has_bell {
                // One that has just released rings in the same packet.
                let text = gate.wait_for_bell(left.max(JUST_RELEASED), session.server.is_mariadb);
                has_bell = match wait(session, call, stand, &text) {
                    Waiting::Got => true,
                    Waiting::Ended => false,
                    Waiting::Refused(refusal) => return self.refused_gate(&refusal),
                    Waiting::Failed(failure) => return failed(failure),
                };
            }
            let Some(head) = self.waiting.head(&stand.key) else { continue };
            let take = Attempt::new(call, head.call.deadline(), &head.request);
            let attempt = Attempt { at: Some(&gate), ..take };
            let sent = self.send(session, &attempt);
            let is_lost = session.is_broken();
            match self.conclude(&attempt, sent, false) {
                Tried::Granted(mut granted) => {
                    // Where the look met the holder between two of this process's.
                    let ago = if watched { LONGEST_LOOK } else { A_HAND_OVER };
                    let turn = turn.or_else(|| self.waiting.turn_before(&stand.key, ago));
                    if let Some((began, false)) = turn {
                        (granted.turn_began, granted.turn_goes_on) = (began, true);
                    }
                    return End::Granted(head, granted, has_bell && !is_lost);
                }
                // Of this caller's own request: the others go on.
                Tried::Failed(error) if error.status() == Status::Unsupported => {
                    let _ = head.deliver(Err(error));
                    self.waiting.told(&head);
                }
                Tried::Failed(error) => return End::Failed(error),
                Tried::Ended(_) => return End::Over,
                Tried::Unready(error) if is_lost => return End::Failed(error),
                Tried::Unready(_) | Tried::Queued => blocked = rest(call, blocked),
                Tried::Blocked(error) if is_lost => return End::Failed(error),
                Tried::Blocked(_) => {
                    self.waiting.saw_held(&stand.key);
                    blocked = rest(call, blocked);
                }
                Tried::Held(longer) => {
                    left = longer;
                    self.waiting.saw_held(&stand.key);
                    watched |= has_bell;
                    if has_bell && let Err(failure) = self.watch_row(session, call, stand, left) {
                        return failed(failure);
                    }
                }
            }
        }
    }

    /// Since when this process has its turn, if the lease that the first at the gate
    /// waits for is its own, and whether it has gone on before. Such a turn goes on: whoever came to the gate later must
    /// not wait for a second one. Once only, or it would never end where nobody else
    /// comes.
    fn own_turn(&self, key: &Key, rows: &[Cells]) -> Option<(Instant, bool)> {
        let holds = rows.first()?.get(1)?.as_deref()?;
        // The second is of a holder which came before anybody waited.
        self.waiting.turn_of(key, holds).or_else(|| self.grants.turn_of(holds))
    }

    /// The holder has no bell to ring: the row is watched, with those of all
    /// other keys, until it is free or the lease has ended.
    fn watch_row(
        &self,
        session: &mut Session,
        call: &Arc<Call>,
        stand: &Arc<Stand>,
        left: Duration,
    ) -> Result<(), Failure> {
        let ends = Instant::now().after(left.saturating_add(Duration::from_millis(1)));
        self.waiting.watch(&stand.key, true);
        let mut done = Ok(());
        loop {
            let until = Instant::now().after(KEEP_UP).min(ends);
            let rung = call.wait(until, || stand.was_rung().then_some(()));
            if !matches!(rung, Waited::Late) || ends.has_passed() {
                break;
            }
            if let Err(failure) = session.execute(call, PING) {
                done = Err(failure);
                break;
            }
        }
        self.waiting.watch(&stand.key, false);
        done
    }

    /// Nobody waits any more, or the client is being closed.
    fn is_over(&self, stand: &Stand) -> bool {
        // Before the look: who leaves after it is seen by the next wait.
        stand.resume();
        if self.waiting.is_dismissed() || self.waiting.head(&stand.key).is_none() {
            return true;
        }
        stand.place().is_some_and(|place| place.call.interruption().is_some())
    }

    /// The row was taken for `waiter`, and the bell is kept for it.
    fn keep_bell(&self, session: Session, waiter: &Waiter, granted: &Granted) {
        let (key, until) = (&waiter.request.key, granted.deadline);
        let before = self.waiting.keep_bell(key, session, granted.token, until);
        drop(before.map(|session| self.gates.closing(session)));
    }

    /// Hands a lease to the waiter for whom it was taken; one that has left
    /// meanwhile gets nothing, and the lease is released.
    pub(crate) fn serve(self: &Arc<Leases>, waiter: &Arc<Waiter>, granted: Granted) {
        self.waiting.served(waiter, &granted);
        if let Err(Ok(granted)) = waiter.deliver(Ok(granted)) {
            self.give_up(&waiter.request, &granted);
        }
    }

    /// The session goes back without gate and bell; a broken one has lost them.
    fn leave_everything(&self, mut session: Session, call: &Arc<Call>, stand: &Stand) {
        if !session.is_broken() {
            // Before it serves anybody else: a late KILL QUERY would end what it
            // does for them.
            let none = || (stand.callers.load(Ordering::SeqCst) == 0).then_some(());
            let until = Instant::now().after(self.connector.settings.io_timeout);
            let waited = call.wait(until, none);
            if !matches!(waited, Waited::Ready(()))
                || session.execute(call, LEAVE_EVERYTHING).is_err()
            {
                session.mark_broken();
            }
        }
        self.gates.put_back(session);
    }

    /// There is no gate here: found out once, and rows are watched instead.
    fn refused_gate(&self, refusal: &Refusal) -> End {
        if self.waiting.refuse_gates() {
            self.stats.count(Counter::GateFallbacks);
        }
        End::Failed(refusal.error("wait"))
    }

    /// Remembered for those who wait. The row is looked at from now on, and
    /// tried for: that tells whether waiting can help.
    fn cannot_stand(&self, stand: &Stand, error: Error) {
        if self.waiting.has_gates() {
            // An attempt tells whether waiting can help, also while it is held.
            let try_now = is_final(&error);
            self.waiting.failed(&stand.key, error);
            if try_now {
                self.waiting.try_now(&stand.key);
            }
        }
    }
}

/// Leaves a locked row alone for a while. How long the next time.
pub(super) fn rest(call: &Call, pause: Duration) -> Duration {
    let _ = call.wait(Instant::now().after(pause), || None::<()>);
    (pause * 2).min(LONGEST_BLOCKED)
}

/// How a wait in the server ended.
enum Waiting {
    Got,
    /// By its time, or by somebody who called it off.
    Ended,
    /// It cannot be done here.
    Refused(Refusal),
    Failed(Failure),
}

fn wait(session: &mut Session, call: &Call, stand: &Stand, text: &str) -> Waiting {
    match stand.waiting(|| session.wait(call, text)) {
        Some(Ok(Some(1))) => Waiting::Got,
        None | Some(Ok(_)) => Waiting::Ended,
        Some(Err(Failure::Refused(refusal))) if refusal.ends_a_wait() => Waiting::Ended,
        Some(Err(Failure::Refused(refusal))) if refusal.is_transient() => {
            Waiting::Failed(Failure::Refused(refusal))
        }
        Some(Err(Failure::Refused(refusal))) => Waiting::Refused(refusal),
        Some(Err(failure)) => Waiting::Failed(failure),
    }
}
