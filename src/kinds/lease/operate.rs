//! For operators: who holds a lease, and its end by force.

use std::time::Duration;

use super::Leases;
use crate::call::Call;
use crate::error::Result;
use crate::key::Key;
use crate::session::failure::Failure;
use crate::session::{Cells, Session, number_in};
use crate::sql::gate::{Gate, call_off};
use crate::sql::hex_digits;
use crate::sync::Arc;

/// Who holds a lock, for people: by the time that it is read it may be over.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    /// The fencing token of the grant.
    pub token: u64,
    /// How much of the lease is left.
    pub remaining: Duration,
    /// For how long it has been held.
    pub held: Duration,
    /// The length of the lease.
    pub ttl: Duration,
    /// How many hold it: several of one owner, perhaps, by as many clients.
    pub holds: u32,
    /// The owner text; empty where the caller gave none.
    pub owner: Vec<u8>,
    /// The name of the holder's program, as it told it.
    pub application: Vec<u8>,
    /// The name of its machine.
    pub host: Vec<u8>,
    /// The number of its process there.
    pub pid: u32,
    /// The note that it left.
    pub note: Vec<u8>,
}

impl Leases {
    /// Who holds the lease, if somebody does.
    pub(crate) fn peek(&self, call: &Arc<Call>, key: &Key) -> Result<Option<Holder>> {
        let text = self.row(key).peek();
        let rows = self.until_answered(call, "peek", true, |session| session.query(call, &text))?;
        Ok(rows.first().map(holder).filter(|holder| !holder.remaining.is_zero()))
    }

    /// Ends the grant of whoever holds the lease. False if nobody does.
    pub(crate) fn force_release(&self, call: &Arc<Call>, key: &Key) -> Result<bool> {
        let Some(holder) = self.peek(call, key)? else { return Ok(false) };
        let row = self.row(key);
        let mut sent = 0;
        let text = row.force(holder.token);
        let ended = self.until_answered(call, "force release", true, |session| {
            sent += 1;
            let done = session.execute(call, &text)?;
            if done.rows > 0 {
                self.wake_first(session, call, &Gate::new(&row));
            }
            Ok(done.rows > 0)
        })?;
        // Not there at the second sending: the first has done it, or the grant
        // has ended otherwise.
        Ok(ended || sent > 1)
    }

    /// The first at the gate waits for a bell that its holder keeps, and does not
    /// know yet to give up: it is told to look. Left out where that fails, since
    /// it looks by itself after a while.
    fn wake_first(&self, session: &mut Session, call: &Call, gate: &Gate) {
        let first = match session.query(call, &gate.first()) {
            Ok(rows) => rows.first().map_or(0, |row| number_in(row, 0)),
            Err(_) => 0,
        };
        if first != 0
            && let Err(Failure::Lost(_)) = session.execute(call, &call_off(first))
        {
            session.mark_broken();
        }
    }
}

fn holder(row: &Cells) -> Holder {
    let bytes = |column: usize| row.get(column).cloned().flatten().unwrap_or_default();
    let number = |column| number_in(row, column);
    let small = |column| u32::try_from(number(column)).unwrap_or(u32::MAX);
    let (owner, holds) = (bytes(1), bytes(2));
    // Whoever gives no owner text is an owner of its own, by the id of its hold.
    let is_own = holds.chunks(16).next().is_some_and(|hold| hex_digits(hold).as_bytes() == owner);
    Holder {
        token: number(0),
        remaining: Duration::from_micros(number(3)),
        held: Duration::from_micros(number(4)),
        ttl: Duration::from_micros(number(5)),
        holds: (holds.len() / 16) as u32,
        owner: if is_own { Vec::new() } else { owner },
        application: bytes(6),
        host: bytes(7),
        pid: small(8),
        note: bytes(9),
    }
}
