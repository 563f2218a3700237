//! What the resolver does with a session: looks what became of an acquire, and
//! releases. The queue and the thread are in the module above.

use std::time::Duration;

use super::{Job, Leftover, Reply, Resolver, Slot, Unknown, Verdict};
use crate::call::Call;
use crate::error::Error;
use crate::key::Key;
use crate::kinds::lease::Found;
use crate::session::Session;
use crate::session::failure::{Class, Failure};
use crate::sql::lease::{ROLLBACK, Row, release_all};
use crate::sql::session::kill;
use crate::sys::clock::Instant;

/// The server's number for "there is no such session".
const NO_SUCH_SESSION: u16 = 1094;

impl Resolver {
    /// Does one job, or says why it could not be done now.
    pub(super) fn work(&self, job: &Job) -> Result<(), Error> {
        let mut slot = self.session.lock();
        let own = self.session_for(slot.take(), job);
        let is_own = own.is_ok();
        let call = &self.begin();
        // Where the server lets nobody more in, one of the pool's will do.
        let mut session = own.or_else(|error| self.pool.take(call).map_err(|_| error))?;
        let done = match job {
            Job::Find(unknown, reply) => self.find_out(&mut session, call, unknown, reply),
            Job::Release(leftovers) => self.release_all(&mut session, call, leftovers),
        };
        if !is_own {
            self.pool.put_back(session);
        } else if !session.is_broken() {
            *slot = Some(session);
        }
        done.map_err(|failure| failure.refusal().error("cannot resolve"))
    }

    /// A session to the server that the job is about, or to the one that has
    /// taken its place.
    fn session_for(&self, had: Option<Session>, job: &Job) -> Result<Session, Error> {
        let had = had.filter(Session::is_fresh);
        match job {
            Job::Release(_) => had.map_or_else(|| self.connector.open(), Ok),
            Job::Find(unknown, _) => {
                let address = unknown.server.address;
                match had.filter(|session| session.server.address == address) {
                    Some(session) => Ok(session),
                    None => self.connector.open_at(address).or_else(|_| self.connector.open()),
                }
            }
        }
    }

    fn find_out(
        &self,
        session: &mut Session,
        call: &Call,
        unknown: &Unknown,
        reply: &Reply,
    ) -> Result<(), Failure> {
        if session.server.is_same_incarnation(&unknown.server) {
            end_session(session, call, unknown.session)?;
        }
        let row = self.row(&unknown.key);
        let verdict = verdict(session, call, &row, &unknown.hold)?;
        let left = {
            let mut slot = reply.slot.lock();
            match *slot {
                Slot::Left => true,
                _ => {
                    *slot = Slot::Told(verdict);
                    false
                }
            }
        };
        reply.call.wake();
        match verdict {
            Verdict::Granted(token) if left => {
                release(session, call, &row, token, &unknown.hold).map(drop)
            }
            _ => Ok(()),
        }
    }

    /// Many at once with one commit; where that fails for one of them, one after
    /// the other.
    fn release_all(
        &self,
        session: &mut Session,
        call: &Call,
        leftovers: &[Leftover],
    ) -> Result<(), Failure> {
        if leftovers.len() > 1 {
            let mut texts: Vec<(&[u8], String)> = Vec::new();
            for leftover in leftovers {
                let text = self.row(&leftover.key).release(leftover.token, &leftover.hold);
                texts.push((leftover.key.as_bytes(), text));
            }
            match session.execute_all(call, &release_all(texts)) {
                Ok(()) => return Ok(()),
                Err(failure @ Failure::Lost(_)) => return Err(failure),
                Err(Failure::Refused(_)) => session.execute(call, ROLLBACK)?,
            };
        }
        for leftover in leftovers {
            let row = self.row(&leftover.key);
            release(session, call, &row, leftover.token, &leftover.hold)?;
        }
        Ok(())
    }

    fn row<'a>(&'a self, key: &'a Key) -> Row<'a> {
        Row {
            names: &self.connector.names,
            namespace: &self.connector.settings.namespace,
            key: key.as_bytes(),
        }
    }
}

/// Ends the session `id`, and waits until it has left the server's list. That
/// takes a millisecond, or as long as the server is busy with what it was
/// doing: then the job comes back later, and others have their turn.
fn end_session(session: &mut Session, call: &Call, id: u64) -> Result<(), Failure> {
    let mut pause = Duration::from_millis(1);
    loop {
        match session.execute(call, &kill(id)) {
            Ok(_) if call.deadline().left() <= pause => return Err(Failure::not_gone()),
            Ok(_) => {
                let _ = call.wait(Instant::now().after(pause), || None::<()>);
                pause = (pause * 2).min(Duration::from_millis(100));
            }
            Err(Failure::Refused(refusal)) if refusal.errno == NO_SUCH_SESSION => return Ok(()),
            Err(failure) => return Err(failure),
        }
    }
}

/// Releases one hold: as the only one, or as one of several, whichever it is by
/// then (others may join or leave in between). True if it was there.
pub(crate) fn release(
    session: &mut Session,
    call: &Call,
    row: &Row<'_>,
    token: u64,
    hold: &[u8; 16],
) -> Result<bool, Failure> {
    for _ in 0..4 {
        for text in [row.release(token, hold), row.release_shared(token, hold)] {
            if session.execute(call, &text)?.rows > 0 {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// What the row says of an acquire, once the session that sent it is gone.
fn verdict(
    session: &mut Session,
    call: &Call,
    row: &Row<'_>,
    hold: &[u8; 16],
) -> Result<Verdict, Failure> {
    match Found::read(&session.query(call, &row.look())?) {
        Some(found) if found.left_us > 0 && found.has(hold) => {
            return Ok(Verdict::Granted(found.stamp.token));
        }
        Some(found) if found.left_us > 0 => return Ok(Verdict::Busy),
        _ => {}
    }
    match session.query(call, &row.look_if_locked()) {
        Ok(_) => Ok(Verdict::Nothing),
        Err(Failure::Refused(refusal)) if refusal.class() == Class::Blocked => Ok(Verdict::Busy),
        Err(failure) => Err(failure),
    }
}
