//! Leases of a server whose clock was set back: an expiry written before lies
//! further ahead than any lease is long, and a dead holder's would keep others
//! out for as long as the step. Such a row may be taken once it has stood
//! unchanged for its TTL on this client's own clock: whoever holds it has not
//! renewed it in that time (a renewal would have changed the row), so its
//! handle has ended. The exchange compares all that a renewal changes.

use std::collections::HashMap;
use std::time::Duration;

use super::{Found, Leases};
use crate::call::Call;
use crate::key::Key;
use crate::session::Session;
use crate::session::failure::Failure;
use crate::sql::lease::{Grant, Row, Stamp};
use crate::sys::clock::Instant;

/// The rows that are watched, by key.
pub(super) type Watches = HashMap<Key, Watch>;

/// More are not remembered: a step makes them all at once, and they go with
/// the first grant of each key.
const MOST: usize = 10_000;

/// A row with an impossible expiry, and since when it has been as it is.
#[derive(Debug)]
pub(super) struct Watch {
    stamp: Stamp,
    since: Instant,
}

impl Leases {
    /// Looks at a row whose expiry cannot be. Once it has stood unchanged for
    /// its TTL it is taken: the token, if so.
    pub(super) fn take_stepped(
        &self,
        session: &mut Session,
        call: &Call,
        row: &Row<'_>,
        grant: &Grant<'_>,
        key: &Key,
    ) -> Result<Option<u64>, Failure> {
        let asked = Instant::now();
        let Some(found) = Found::read(&session.query(call, &row.look())?) else {
            return Ok(None);
        };
        if !self.has_stood(key, found.stamp, asked, Duration::from_micros(found.ttl_us)) {
            return Ok(None);
        }
        let done = session.execute(call, &row.take_stepped(grant, &found.stamp))?;
        Ok((done.rows > 0).then_some(done.insert_id))
    }

    /// True if the row was the same, at each look, for `ttl`.
    fn has_stood(&self, key: &Key, stamp: Stamp, asked: Instant, ttl: Duration) -> bool {
        let mut watches = self.watches.lock();
        match watches.get(key) {
            Some(watch) if watch.stamp == stamp => {
                let stood = asked.since(watch.since) >= ttl;
                if stood {
                    watches.remove(key);
                }
                stood
            }
            _ => {
                if watches.len() >= MOST {
                    watches.clear();
                }
                // From the end of the look: it may have been renewed before.
                watches.insert(key.clone(), Watch { stamp, since: Instant::now() });
                false
            }
        }
    }
}
