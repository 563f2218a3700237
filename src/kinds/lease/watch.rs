//! The watcher: one thread a client that looks at the rows nobody rings for (all
//! in one statement), keeps bells up, and calls off those who wait at the server
//! for nobody. It takes nothing itself, and so never waits for a row, and has one
//! of the pool's sessions for a round trip at a time.

use std::time::Duration;

use super::{Leases, ended, is_final};
use crate::call::Call;
use crate::error::{Error, Status};
use crate::key::Key;
use crate::session::failure::Failure;
use crate::session::pool::NoSession;
use crate::session::{Session, number_in};
use crate::sql;
use crate::sql::gate::Gate;
use crate::stats::Counter;
use crate::sync::Arc;
use crate::sys::clock::Instant;
use crate::wait::queue::Stand;

/// How long the thread stays when there is nothing to do.
const IDLE: Duration = Duration::from_millis(1_200);
/// How long a session that could wait is kept for the next one: less than the
/// time after which the server ends it.
const SPARE: Duration = Duration::from_secs(1);
/// How long those who stand at the server may take to leave it.
const GOODBYE: Duration = Duration::from_millis(200);
/// How long a bell's session may take to answer.
const AN_ANSWER: Duration = Duration::from_millis(500);

impl Leases {
    /// The body of the thread.
    pub(super) fn watch(self: &Arc<Leases>) {
        while let Some(round) = self.waiting.next_round(IDLE) {
            for stand in round.call_offs {
                self.call_off(&stand, self.soon());
            }
            for (key, bell, ended) in round.bells {
                self.keep_up(&key, bell, ended);
            }
            if !round.keys.is_empty() {
                self.look_at(&round.keys);
            }
            self.gates.trim(SPARE);
            self.muster();
        }
        self.gates.flush();
    }

    /// Ends what a session waits for. Where it cannot be reached by its number,
    /// its socket is shut down, and the server takes it out of the queue.
    fn call_off(&self, stand: &Stand, until: Instant) {
        let Some(place) = stand.place() else { return stand.called_off() };
        let begun = self.calls.begin(until);
        let called = self.with_session(begun.as_ref(), |session| {
            if session.server.is_same_incarnation(&place.server) {
                let text = sql::gate::call_off(place.session);
                session.execute(begun.as_ref(), &text).map(|_| true)
            } else {
                Ok(false)
            }
        });
        if !matches!(called, Ok(true)) {
            place.call.cut();
        }
        stand.called_off();
    }

    /// Calls everybody off who stands at the server, so that their connections
    /// end with a goodbye, as far as that takes no time.
    pub(crate) fn dismiss(&self) {
        let until = Instant::now().after(GOODBYE);
        for stand in self.waiting.dismiss() {
            self.call_off(&stand, until);
        }
        self.waiting.wait_for_standers(until);
    }

    /// Says something in a bell's session; one whose lease has ended is rung.
    fn keep_up(&self, key: &Key, mut session: Session, ended: bool) {
        // One that does not answer must not cost the others their bells.
        let begun = self.calls.begin(Instant::now().after(AN_ANSWER));
        let call = begun.as_ref();
        if !ended && session.execute(call, sql::session::PING).is_err() {
            session.mark_broken();
        }
        if let Some(session) = self.waiting.kept_up(key, session) {
            self.ring(call, key, session);
        }
    }

    /// Rings a bell whose row has been released, or whose lease has ended.
    pub(super) fn ring(&self, call: &Call, key: &Key, mut session: Session) {
        let text = Gate::new(&self.row(key)).ring();
        if !session.is_broken() && session.execute(call, &text).is_err() {
            session.mark_broken();
        }
        self.gates.put_back(session);
    }

    /// Looks at the rows of `keys`, all at once.
    fn look_at(&self, keys: &[Key]) {
        let begun = self.calls.begin(self.soon());
        self.stats.count(Counter::Looks);
        let names: Vec<&[u8]> = keys.iter().map(Key::as_bytes).collect();
        let settings = &self.connector.settings;
        let text = sql::lease::watch(&self.connector.names, &settings.namespace, &names);
        let rows =
            self.with_session(begun.as_ref(), |session| session.query(begun.as_ref(), &text));
        match rows {
            Ok(rows) => {
                let mut left = vec![None; keys.len()];
                for row in &rows {
                    let place = usize::try_from(number_in(row, 0)).unwrap_or(0);
                    if let Some(left) = left.get_mut(place.wrapping_sub(1)) {
                        *left = Some(Duration::from_micros(number_in(row, 1)));
                    }
                }
                for (key, left) in keys.iter().zip(left) {
                    self.waiting.looked(key, left);
                }
            }
            Err(refused) => self.cannot_look(keys, &refused),
        }
    }

    /// Told to those who wait, and tried again later. A server of which nothing
    /// is heard has no place for those who stand there, either.
    fn cannot_look(&self, keys: &[Key], refused: &CannotLook) {
        let CannotLook { error, is_lost, was_outdated } = refused;
        let hopeless = is_final(error) && error.status() != Status::Server && !was_outdated;
        for key in keys {
            if hopeless {
                self.refuse_all(key, error);
            } else {
                self.waiting.failed(key, error.clone());
            }
            self.waiting.watch_later(key);
        }
        if *is_lost && error.server_errno() == 0 {
            for stand in self.waiting.standing() {
                if let Some(place) = stand.place() {
                    place.call.cut();
                }
            }
        }
    }

    /// Runs a statement on one of the pool's sessions.
    fn with_session<T>(
        &self,
        call: &Arc<Call>,
        run: impl FnOnce(&mut Session) -> Result<T, Failure>,
    ) -> Result<T, CannotLook> {
        let mut session = self.pool.take(call).map_err(|none| {
            let error = match none {
                NoSession::Failed(error) | NoSession::Late(error) => error,
                NoSession::Interrupted(status) => ended(status),
            };
            CannotLook { error, is_lost: false, was_outdated: false }
        })?;
        let answer = run(&mut session);
        let was_outdated = self.give_session_back(call, session, answer.as_ref().err());
        answer.map_err(|failure| {
            let is_lost = matches!(failure, Failure::Lost(_));
            CannotLook { error: failure.refusal().error("wait"), is_lost, was_outdated }
        })
    }

    fn soon(&self) -> Instant {
        Instant::now().after(self.connector.settings.io_timeout)
    }
}

/// Why a statement of the watcher's was not done.
struct CannotLook {
    error: Error,
    /// Its connection was lost.
    is_lost: bool,
    /// Another session may answer otherwise.
    was_outdated: bool,
}
