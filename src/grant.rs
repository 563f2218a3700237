//! One grant of a lease as its holders see it: until when it is certainly
//! held, by how many handles, and how it ended. Pure state: it talks to nobody.

use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::time::Duration;

use crate::call::{Call, Waited};
use crate::error::Status;
use crate::key::Key;
use crate::random;
use crate::sync::{Arc, Condvar, Mutex, Timer};
use crate::sys::clock::Instant;
use crate::wait::waiter::{Granted, Request};

/// Why a lock was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LostCause {
    /// Its time ran out without a renewal.
    Expired,
    /// It could not be renewed in time, since the server was not reached.
    Unreachable,
    /// Another owner was granted the key.
    Taken,
    /// An operator released it by force.
    Forced,
    /// Its row is gone from the table.
    RowGone,
    /// The connection that it lived on is gone.
    Connection,
    /// The handle was made before a fork, in the parent.
    Forked,
    /// The client was closed.
    Closed,
    /// It was held for as long as it might be.
    MaxHold,
}

/// A grant.
#[derive(Debug)]
pub(crate) struct Grant {
    pub(crate) key: Key,
    /// The owner text, where the caller gave one: such a grant may be shared.
    pub(crate) owner: Option<Vec<u8>>,
    pub(crate) token: u64,
    /// Its id in the row's set of holds.
    pub(crate) hold: [u8; 16],
    /// Since when this process has served its own callers with the key.
    pub(crate) turn_began: Instant,
    /// See [`Granted`].
    pub(crate) turn_goes_on: bool,
    state: Mutex<State>,
    /// Rung when it ends, or a handle does.
    over: Condvar,
}

#[derive(Debug)]
struct State {
    phase: Phase,
    /// The longest that a handle has asked for.
    ttl: Duration,
    /// It is certainly held before this, and not known to be after.
    deadline: Instant,
    /// The row may be held for this grant until then at the latest, by whatever
    /// was sent for it, answered or not.
    row_until: Instant,
    /// When it is to be renewed next: never, if only its holder does that.
    renew_at: Instant,
    /// No renewal of the library's own makes the lease last beyond this.
    max_hold: Instant,
    /// It was left to the resolver.
    given_back: bool,
    /// Handles that have not released it.
    handles: usize,
    /// Who is told of its loss by an event.
    watchers: Vec<Arc<Watcher>>,
    /// What may stand in the row's `attempt`: the last renewal that was
    /// answered, and those sent since. At first the hold's own.
    attempts: Vec<Attempt>,
    /// The last renewal did not reach the server.
    unreachable: bool,
    /// Whose renewal or release is under way.
    busy: Busy,
    /// Calls that wait for it to end.
    queue: Vec<Arc<Call>>,
}

/// A renewal as it was sent.
#[derive(Clone, Copy, Debug)]
struct Attempt {
    id: [u8; 16],
    /// Until when the lease is held if it was done.
    deadline: Instant,
}

/// Of whom a renewal or release is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Busy {
    Nobody,
    /// A caller's.
    Caller,
    /// A renewal of the client's own thread.
    Renewer,
}

/// One to whom the loss of a grant comes as an event.
#[derive(Debug)]
pub(crate) struct Watcher {
    /// The tag of its acquire.
    pub(crate) tag: u64,
    /// The C handle, once there is one.
    pub(crate) handle: AtomicUsize,
    /// It is told nothing any more.
    pub(crate) closed: AtomicBool,
}

/// Where a grant is in its life. Only ever moves on, but from `Ending` by a
/// release that is tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Held, as far as the deadline goes.
    Held,
    /// A release was sent and its outcome is not known: not to be relied on
    /// any more, and to be released again.
    Ending,
    /// Released.
    Released,
    /// Lost.
    Lost(LostCause),
}

/// A lease of `ttl` that was asked for at `sent` is certainly held until this
/// local instant: the TTL less a margin of 5 %, at most 100 ms, and less 1 % in
/// case the two clocks do not run at the same speed.
pub(crate) fn deadline(sent: Instant, ttl: Duration) -> Instant {
    sent.after((ttl - margin(ttl)) / 101 * 100)
}

/// By how much a handle's deadline lies before the end of its lease.
pub(crate) fn margin(ttl: Duration) -> Duration {
    (ttl / 20).min(Duration::from_millis(100))
}

/// When a lease of `ttl` that is asked for now, or was a moment ago, is over,
/// however the clocks run.
fn row_until(ttl: Duration) -> Instant {
    Instant::now().after(ttl + ttl / 100)
}

/// Until when the library renews a lease that is asked for now.
fn max_hold_of(request: &Request) -> Instant {
    request.max_hold.map_or(Instant::NEVER, |limit| Instant::now().after(limit))
}

/// More renewals without an answer are not remembered.
const MOST_ATTEMPTS: usize = 100;
/// How long a release waits for a renewal of the client's own thread. One that
/// takes longer was sent long ago: it changes nothing behind the release, since
/// it demands an expiry that has not passed.
const PATIENCE: Duration = Duration::from_millis(300);
const SHORTEST_RETRY: Duration = Duration::from_millis(10);
const LONGEST_RETRY: Duration = Duration::from_secs(1);

impl Grant {
    pub(crate) fn new(request: &Request, granted: &Granted) -> Grant {
        let Granted { token, hold, deadline, turn_began, turn_goes_on } = *granted;
        let Request { key, owner, ttl, renews, .. } = request.clone();
        let mut state = State {
            phase: Phase::Held,
            ttl,
            deadline,
            row_until: row_until(ttl),
            renew_at: Instant::NEVER,
            max_hold: max_hold_of(request),
            given_back: false,
            handles: 1,
            watchers: Vec::new(),
            attempts: vec![Attempt { id: hold, deadline }],
            unreachable: false,
            busy: Busy::Nobody,
            queue: Vec::new(),
        };
        if renews {
            state.renew_later();
        }
        let (state, over) = (Mutex::new(state), Condvar::new());
        Grant { key, owner, token, hold, turn_began, turn_goes_on, state, over }
    }

    /// The TTL to renew it with.
    pub(crate) fn ttl(&self) -> Duration {
        self.state.lock().ttl
    }

    /// Where the grant is now. Its deadline alone ends it, without anybody's
    /// doing; once seen, that stays so.
    pub(crate) fn phase(&self) -> Phase {
        self.state.lock().phase_now()
    }

    /// Why it was lost, if it was.
    pub(crate) fn lost_cause(&self) -> Option<LostCause> {
        match self.phase() {
            Phase::Lost(cause) => Some(cause),
            _ => None,
        }
    }

    pub(crate) fn deadline(&self) -> Instant {
        self.state.lock().deadline
    }

    pub(crate) fn row_until(&self) -> Instant {
        self.state.lock().row_until
    }

    /// True, once, if a row may be left that nobody will release: the grant was not
    /// released, and its lease, or one that an unanswered renewal made, may
    /// still run.
    pub(crate) fn leaves_row(&self) -> bool {
        let mut state = self.state.lock();
        let is_left = !state.given_back
            && state.phase_now() != Phase::Released
            && !state.row_until.has_passed();
        state.given_back |= is_left;
        is_left
    }

    /// True if the row may be held for it longer than its handles say: by a renewal
    /// that was not answered. And if it is not its own any more, and others are to be
    /// told so. One that has only run out is left to end by itself.
    pub(crate) fn needs_an_end(&self) -> bool {
        let mut state = self.state.lock();
        match state.phase_now() {
            Phase::Lost(LostCause::Expired | LostCause::Unreachable | LostCause::MaxHold) => {
                state.attempts.len() > 1
            }
            _ => true,
        }
    }

    /// How much of the lease is left by the server's clock at least; zero if it
    /// is not held. Runs down by 1 % faster than time, so that it is over at
    /// the deadline however the clocks run.
    pub(crate) fn remaining(&self) -> Duration {
        let mut state = self.state.lock();
        match state.phase_now() {
            Phase::Held => state.deadline.left() / 100 * 101,
            _ => Duration::ZERO,
        }
    }

    /// One more handle, if the grant is held and nobody is about to end it. A
    /// longer TTL counts from the next renewal on; renewal goes on if either
    /// asks for it, and for as long as the one that asks for more.
    ///
    /// `as_it_is`: only if the lease that is asked for ends within the margin of the
    /// one that is held, so that nobody has to be asked.
    pub(crate) fn join(&self, request: &Request, as_it_is: bool) -> bool {
        let mut state = self.state.lock();
        let wanted = deadline(Instant::now(), request.ttl);
        let suffices = wanted.since(state.deadline) <= margin(request.ttl);
        if state.phase_now() != Phase::Held || (as_it_is && !suffices) {
            return false;
        }
        state.handles += 1;
        state.ttl = state.ttl.max(request.ttl);
        if request.renews {
            let limit = max_hold_of(request);
            let renewed_already = state.renew_at != Instant::NEVER;
            state.max_hold = if renewed_already { state.max_hold.max(limit) } else { limit };
            state.renew_later();
        }
        true
    }

    /// One handle less. Where it was the last one, the grant is about to be
    /// released: from then on no other handle can join. One step, so that none
    /// joins in between. Where the grant was when this handle left it, and
    /// whether others are left.
    pub(crate) fn leave(&self) -> (Phase, bool) {
        let mut state = self.state.lock();
        let phase = state.phase_now();
        let others = state.handles > 1;
        if others {
            state.handles -= 1;
        } else if phase == Phase::Held {
            state.phase = Phase::Ending;
        }
        self.over.wake_all();
        (phase, others)
    }

    /// The turn to renew, one at a time.
    pub(crate) fn turn<'a>(&'a self, call: &Arc<Call>) -> Result<Turn<'a>, Option<Status>> {
        self.turn_over(call, Instant::NEVER)
    }

    /// The turn to release: never overtaken by a renewal of the same grant.
    pub(crate) fn last_turn<'a>(&'a self, call: &Arc<Call>) -> Result<Turn<'a>, Option<Status>> {
        self.turn_over(call, Instant::now().after(PATIENCE))
    }

    /// The turn, once nobody else has it; from `patient_until` on the renewer's
    /// is not waited for.
    fn turn_over<'a>(
        &'a self,
        call: &Arc<Call>,
        patient_until: Instant,
    ) -> Result<Turn<'a>, Option<Status>> {
        let took = || {
            let mut state = self.state.lock();
            let free = match state.busy {
                Busy::Nobody => true,
                Busy::Caller => false,
                Busy::Renewer => patient_until.has_passed(),
            };
            if free {
                state.busy = Busy::Caller;
            }
            free.then_some(())
        };
        self.state.lock().queue.push(Arc::clone(call));
        let mut waited = call.wait(patient_until, took);
        if matches!(waited, Waited::Late) && !call.deadline().has_passed() {
            waited = call.wait(Instant::NEVER, took);
        }
        self.state.lock().queue.retain(|other| !Arc::ptr_eq(other, call));
        match waited {
            Waited::Ready(()) => Ok(Turn { grant: self, whose: Busy::Caller }),
            Waited::Late => Err(None),
            Waited::Interrupted(status) => Err(Some(status)),
        }
    }

    /// When the client's own thread is to renew it, if it is held.
    pub(crate) fn renew_at(&self) -> Instant {
        let mut state = self.state.lock();
        if state.phase_now() == Phase::Held { state.renew_at } else { Instant::NEVER }
    }

    /// About how many bytes of a statement its renewal takes: the key twice, and each
    /// renewal that was not answered, as digits.
    pub(crate) fn bytes_to_renew(&self) -> usize {
        200 + 4 * self.key.as_bytes().len() + 33 * self.state.lock().attempts.len()
    }

    /// Whether a renewal is due by now, or would be before long: what is due
    /// together is sent together.
    pub(crate) fn is_due(&self) -> bool {
        let mut state = self.state.lock();
        let soon = Instant::now().after(state.ttl / 12);
        state.phase_now() == Phase::Held && state.renew_at <= soon
    }

    /// The renewer's turn, if the grant is still held and nobody else has it.
    pub(crate) fn begin_renewal(&self) -> Option<Renewal<'_>> {
        let mut state = self.state.lock();
        if state.phase_now() != Phase::Held {
            return None;
        }
        if state.busy != Busy::Nobody {
            state.retry_later();
            return None;
        }
        let ttl = state.ttl.min(state.max_hold.left());
        state.busy = Busy::Renewer;
        drop(state);
        let turn = Turn { grant: self, whose: Busy::Renewer };
        Some(Renewal { begun: Instant::now(), ttl, attempt: random::id(), _turn: turn })
    }

    /// A renewal of id `attempt` to `ttl` is about to be sent, which may make the
    /// lease end earlier if it `may_shorten`: what may stand in the row before it.
    pub(crate) fn renewing(
        &self,
        attempt: [u8; 16],
        ttl: Duration,
        may_shorten: bool,
    ) -> Vec<[u8; 16]> {
        let mut state = self.state.lock();
        let deadline = deadline(Instant::now(), ttl);
        state.row_until = state.row_until.max(row_until(ttl));
        if may_shorten {
            // Its reply may be lost.
            state.deadline = state.deadline.min(deadline);
        }
        let before = state.attempts.iter().map(|attempt| attempt.id).collect();
        if state.attempts.len() >= MOST_ATTEMPTS {
            state.attempts.remove(1);
        }
        state.attempts.push(Attempt { id: attempt, deadline });
        before
    }

    /// The renewal of id `attempt` was refused, and had no effect.
    pub(crate) fn refused(&self, attempt: [u8; 16]) {
        self.state.lock().attempts.retain(|other| other.id != attempt);
    }

    /// The row has the id `attempt`: until when the lease is held by that, if it
    /// is one of this grant's. Those sent before it are not done any more.
    pub(crate) fn answered(&self, attempt: [u8; 16]) -> Option<Instant> {
        let mut state = self.state.lock();
        let place = state.attempts.iter().position(|other| other.id == attempt)?;
        state.attempts.drain(..place);
        Some(state.attempts[0].deadline)
    }

    /// The lease is held until `deadline`. False if the grant has ended
    /// meanwhile: a lost grant never becomes held again.
    pub(crate) fn renewed(&self, deadline: Instant) -> bool {
        let mut state = self.state.lock();
        if state.phase_now() != Phase::Held {
            return false;
        }
        state.deadline = state.deadline.max(deadline);
        state.unreachable = false;
        if state.renew_at != Instant::NEVER {
            state.renew_later();
        }
        true
    }

    /// A renewal was not done: the server was not reached, or the row was locked.
    pub(crate) fn not_renewed(&self, unreachable: bool) {
        let mut state = self.state.lock();
        state.unreachable = unreachable;
        if state.renew_at != Instant::NEVER {
            state.retry_later();
        }
    }

    pub(crate) fn released(&self) {
        self.state.lock().phase = Phase::Released;
        self.over.wake_all();
    }

    /// Lost, unless it had ended before.
    pub(crate) fn lost(&self, cause: LostCause) {
        let mut state = self.state.lock();
        if matches!(state.phase_now(), Phase::Held | Phase::Ending) {
            state.phase = Phase::Lost(cause);
        }
        self.over.wake_all();
    }

    /// A renewal has found it lost; not if its holder has begun to release it.
    pub(crate) fn found_lost(&self, cause: LostCause) {
        let mut state = self.state.lock();
        if state.phase_now() == Phase::Held {
            state.phase = Phase::Lost(cause);
        }
        self.over.wake_all();
    }

    /// Waits until it is lost (`Some(true)`), until `is_done` (`Some(false)`) or
    /// it is released, or until `until`. To be woken by [`Grant::leave`].
    pub(crate) fn wait_lost(&self, until: Instant, is_done: impl Fn() -> bool) -> Option<bool> {
        let mut state = self.state.lock();
        loop {
            match state.phase_now() {
                Phase::Lost(_) if !is_done() => return Some(true),
                Phase::Held if !is_done() => {}
                _ => return Some(false),
            }
            if until.has_passed() {
                return None;
            }
            let timer = Timer::at(until).or(state.deadline);
            state = self.over.sleep(state, timer);
        }
    }

    /// Tells `watcher` of its loss by an event.
    pub(crate) fn watch(&self, watcher: &Arc<Watcher>) {
        self.state.lock().watchers.push(Arc::clone(watcher));
    }

    pub(crate) fn unwatch(&self, watcher: &Arc<Watcher>) {
        self.state.lock().watchers.retain(|other| !Arc::ptr_eq(other, watcher));
    }

    /// Those who are to be told of its loss, once.
    pub(crate) fn take_watchers(&self) -> Vec<Arc<Watcher>> {
        std::mem::take(&mut self.state.lock().watchers)
    }
}

/// A renewal that is to be sent by the client's own thread, which has the turn.
#[derive(Debug)]
pub(crate) struct Renewal<'a> {
    /// Before it was sent.
    pub(crate) begun: Instant,
    pub(crate) ttl: Duration,
    pub(crate) attempt: [u8; 16],
    _turn: Turn<'a>,
}

impl State {
    fn phase_now(&mut self) -> Phase {
        if self.phase == Phase::Held && self.deadline.has_passed() {
            self.phase = Phase::Lost(if self.unreachable {
                LostCause::Unreachable
            } else if self.is_last() {
                LostCause::MaxHold
            } else {
                LostCause::Expired
            });
        }
        self.phase
    }

    /// True if the library does not renew it any more, since it has been held for
    /// as long as it may be: what is left to that is less than a margin.
    fn is_last(&self) -> bool {
        self.max_hold.since(self.deadline) <= margin(self.ttl) + self.ttl / 50
    }

    /// The next renewal comes when a third of the TTL has passed, a little
    /// earlier for some.
    fn renew_later(&mut self) {
        let third = self.ttl / 3;
        let early = Duration::from_micros(random::below(third.as_micros() as u64 / 8 + 1));
        let pause = self.deadline.left().saturating_sub(third * 2 + early);
        let is_last = self.is_last();
        self.renew_at = if is_last { Instant::NEVER } else { Instant::now().after(pause) };
    }

    /// The next one comes soon, and the sooner the nearer the deadline is.
    fn retry_later(&mut self) {
        let pause = (self.deadline.left() / 8).clamp(SHORTEST_RETRY, LONGEST_RETRY);
        self.renew_at = Instant::now().after(pause);
    }
}

/// The right to renew or release, until it is dropped.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    grant: &'a Grant,
    whose: Busy,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut state = self.grant.state.lock();
        // The renewer's may have been taken over by a release.
        if state.busy == self.whose {
            state.busy = Busy::Nobody;
        }
        let waiting = state.queue.clone();
        drop(state);
        for call in waiting {
            call.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn granted(deadline: Instant) -> Granted {
        let turn_began = Instant::now();
        Granted { token: 7, hold: [0; 16], deadline, turn_began, turn_goes_on: false }
    }

    fn grant(ttl_ms: u64) -> Grant {
        let ttl = Duration::from_millis(ttl_ms);
        let key = Key::new(b"k").unwrap();
        let request = Request { ttl, ..Request::of(key) };
        let now = Instant::now();
        let deadline = deadline(now, ttl);
        Grant::new(&request, &granted(deadline))
    }

    #[test]
    fn the_deadline_lies_before_the_end_of_the_lease() {
        let sent = Instant::now();
        for (ttl_ms, most_ms) in [(10, 10), (2_000, 1_900), (10_000, 9_900), (30_000, 29_900)] {
            let ttl = Duration::from_millis(ttl_ms);
            let held = deadline(sent, ttl).since(sent);
            assert!(held <= Duration::from_millis(most_ms) / 101 * 100);
            assert!(held >= ttl * 93 / 100);
        }
    }

    #[test]
    fn remaining_is_near_the_ttl_at_first() {
        let remaining = grant(10_000).remaining();
        assert!(remaining <= Duration::from_millis(9_900));
        assert!(remaining > Duration::from_millis(9_800));
    }

    #[test]
    fn what_was_lost_is_never_held_again() {
        let grant = grant(10);
        std::thread::sleep(Duration::from_millis(12));
        assert_eq!(grant.phase(), Phase::Lost(LostCause::Expired));
        assert!(!grant.renewed(Instant::NEVER));
        assert!(!grant.join(&Request::of(grant.key.clone()), true));
        assert_eq!(grant.remaining(), Duration::ZERO);
    }

    #[test]
    fn nobody_joins_a_grant_that_its_last_handle_has_left() {
        let grant = grant(10_000);
        assert!(grant.join(&Request::of(grant.key.clone()), true));
        assert_eq!(grant.leave(), (Phase::Held, true));
        assert_eq!(grant.leave(), (Phase::Held, false));
        assert!(!grant.join(&Request::of(grant.key.clone()), true));
        assert_eq!(grant.phase(), Phase::Ending);
    }

    #[test]
    fn a_renewal_that_may_shorten_counts_when_it_is_sent() {
        let grant = grant(10_000);
        let long_until = grant.row_until();
        assert_eq!(grant.renewing([1; 16], Duration::from_millis(100), true), [[0; 16]]);
        assert!(grant.deadline().left() <= Duration::from_millis(95));
        assert_eq!(grant.row_until(), long_until);
        assert_eq!(grant.renewing([2; 16], Duration::from_secs(60), true), [[0; 16], [1; 16]]);
        assert!(grant.deadline().left() <= Duration::from_millis(95));
        assert!(grant.row_until() > long_until);
        assert!(grant.answered([2; 16]).unwrap().left() > Duration::from_secs(59));
        assert!(grant.renewed(Instant::now().after(Duration::from_secs(50))));
        assert!(grant.deadline().left() > Duration::from_secs(49));
        assert_eq!(grant.renewing([3; 16], Duration::from_secs(60), true), [[2; 16]]);
        grant.refused([3; 16]);
        assert_eq!(grant.renewing([4; 16], Duration::from_secs(60), true), [[2; 16]]);
    }

    #[test]
    fn one_turn_at_a_time() {
        let grant = grant(10_000);
        let soon = Instant::now().after(Duration::from_millis(20));
        let first = grant.turn(&Arc::new(Call::new(soon))).unwrap();
        assert!(matches!(grant.turn(&Arc::new(Call::new(soon))), Err(None)));
        drop(first);
        assert!(grant.turn(&Arc::new(Call::new(Instant::NEVER))).is_ok());
    }

    #[test]
    fn an_answer_leaves_what_was_sent_after_it_and_nothing_before() {
        let grant = grant(10_000);
        for id in 1..=3 {
            grant.renewing([id; 16], Duration::from_secs(10), false);
        }
        assert!(grant.answered([2; 16]).is_some());
        assert!(grant.answered([1; 16]).is_none(), "it cannot be done any more");
        assert_eq!(grant.renewing([4; 16], Duration::from_secs(10), false), [[2; 16], [3; 16]]);
        for id in 5..=250 {
            grant.renewing([id; 16], Duration::from_secs(10), false);
        }
        assert_eq!(grant.renewing([251; 16], Duration::from_secs(10), false).len(), MOST_ATTEMPTS);
        assert!(grant.answered([2; 16]).is_some(), "the last that was answered is kept");
    }

    #[test]
    fn the_renewer_has_its_turn_a_third_of_the_ttl_after_the_last_renewal() {
        let key = Key::new(b"k").unwrap();
        let ttl = Duration::from_millis(300);
        let request = Request { ttl, renews: true, ..Request::of(key) };
        let now = Instant::now();
        let grant = Grant::new(&request, &granted(deadline(now, ttl)));
        assert!(!grant.is_due());
        let at = grant.renew_at().since(now);
        assert!(at > Duration::from_millis(60) && at <= Duration::from_millis(100), "{at:?}");
        while !grant.is_due() {
            std::thread::sleep(Duration::from_millis(1));
        }
        let renewal = grant.begin_renewal().unwrap();
        assert_eq!(renewal.ttl, ttl);
        assert!(grant.begin_renewal().is_none(), "one at a time");
        drop(renewal);
        assert_eq!(grant.leave(), (Phase::Held, false));
        assert!(grant.begin_renewal().is_none(), "its holder has begun to release it");
    }

    #[test]
    fn a_release_waits_for_a_renewal_of_the_renewers_but_not_for_ever() {
        let key = Key::new(b"k").unwrap();
        let request = Request { renews: true, ..Request::of(key) };
        let now = Instant::now();
        let grant = Grant::new(&request, &granted(now));
        grant.state.lock().deadline = Instant::NEVER;
        let renewal = grant.begin_renewal().unwrap();
        let asked = Instant::now();
        let turn = grant.last_turn(&Arc::new(Call::new(Instant::NEVER))).unwrap();
        assert!(Instant::now().since(asked) >= PATIENCE);
        drop(renewal);
        let soon = Instant::now().after(Duration::from_millis(20));
        assert!(grant.turn(&Arc::new(Call::new(soon))).is_err(), "it is still the release's");
        drop(turn);
        assert!(grant.turn(&Arc::new(Call::new(Instant::NEVER))).is_ok());
    }
}
