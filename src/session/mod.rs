//! A session: one connection to a server whose settings are pinned. Runs
//! statements under a call's deadline; knows nothing of locks.

pub(crate) mod connect;
pub(crate) mod failure;
pub(crate) mod pool;
pub(crate) mod server;

use std::fmt;
use std::mem;
use std::os::fd::{AsRawFd, RawFd};
use std::time::Duration;

use mysql::prelude::Queryable;
use mysql::{Conn, QueryResult, Text};

use crate::call::Call;
use crate::sql;
use crate::sync::Arc;
use crate::sys::clock::Instant;
use crate::sys::{fork, signals, socket};
use failure::Failure;
use server::{Clock, Server};

/// A row of a result, as the text protocol has it.
pub(crate) type Cells = Vec<Option<Vec<u8>>>;

/// What the OK packet of a statement says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Done {
    pub(crate) rows: u64,
    pub(crate) insert_id: u64,
}

/// One connection, owned by one thread at a time.
pub(crate) struct Session {
    /// There until it is dropped.
    conn: Option<Conn>,
    /// Under which fork generation it was opened.
    generation: u64,
    pub(crate) opened_at: Instant,
    /// Since when it has been in a pool, if it is in one.
    pub(crate) idle_since: Instant,
    /// The server's number for it, to end it from another one.
    pub(crate) id: u64,
    pub(crate) server: Arc<Server>,
    clock: Clock,
    clock_is_old: bool,
    /// Its server's binary log holds statements, of which some are not to be
    /// written there.
    pub(crate) logs_statements: bool,
    /// Its writes can raise SIGPIPE; std protects those of a plain socket.
    is_tls: bool,
    /// The longest that one reply is waited for.
    io_timeout: Duration,
    /// The socket's time-outs as they are.
    timeouts: Duration,
    /// Nothing may be sent any more: a reply is missing, or the server has
    /// changed its role.
    broken: bool,
}

/// For how long past its call's deadline a reply is still waited for, within the
/// 100 ms by which a call may be late: to cut it off costs the connection, and
/// the statement itself does nothing after the deadline.
const GRACE: Duration = Duration::from_millis(30);

/// How old the reading of the server's clock may grow before it is taken anew:
/// two clocks drift apart by less than 100 ppm, 6 ms in this time.
const CLOCK_AGE: Duration = Duration::from_secs(60);

impl Session {
    /// Runs one statement that returns no rows.
    pub(crate) fn execute(&mut self, call: &Call, sql: &str) -> Result<Done, Failure> {
        self.run(call, |conn| {
            conn.query_drop(sql)?;
            Ok(Done { rows: conn.affected_rows(), insert_id: conn.last_insert_id() })
        })
    }

    /// Runs several statements that return no rows, in one packet, and gives the
    /// answer of the first. The first that fails is the last that was run.
    pub(crate) fn execute_first(&mut self, call: &Call, sql: &str) -> Result<Done, Failure> {
        let mut rest = Ok(());
        let first = self.run(call, |conn| {
            let mut results = conn.query_iter(sql)?;
            let insert_id = results.last_insert_id().unwrap_or(0);
            let first = Done { rows: results.affected_rows(), insert_id };
            rest = drain(&mut results);
            Ok(first)
        });
        // The first is done, whatever became of those behind it.
        self.broken |= rest.is_err();
        first
    }

    /// Runs a query that waits in the server, for as long as it takes: it ends
    /// by its own limit, by a KILL QUERY, or by an interruption of `call`. Its
    /// number, or `None` for NULL.
    pub(crate) fn wait(&mut self, call: &Call, sql: &str) -> Result<Option<u64>, Failure> {
        let rows = self.run_until(call, Instant::NEVER, |conn| rows(conn, sql))?;
        let is_null = rows.first().and_then(|row| row.first()).is_none_or(Option::is_none);
        Ok((!is_null).then(|| number(&rows, 0)))
    }

    /// Runs several statements that return no rows, in one packet. The first
    /// that fails is the last that was run.
    pub(crate) fn execute_all(&mut self, call: &Call, sql: &str) -> Result<(), Failure> {
        self.run(call, |conn| drain(&mut conn.query_iter(sql)?))
    }

    /// Runs several statements in one packet, and returns the rows of the last.
    /// The first that fails is the last that was run.
    pub(crate) fn query_last(&mut self, call: &Call, sql: &str) -> Result<Vec<Cells>, Failure> {
        self.run(call, |conn| {
            let mut results = conn.query_iter(sql)?;
            let mut last = Vec::new();
            while let Some(result) = results.iter() {
                last = result.map(|row| row.map(cells)).collect::<mysql::Result<_>>()?;
            }
            Ok(last)
        })
    }

    /// Runs one query and returns its rows.
    pub(crate) fn query(&mut self, call: &Call, sql: &str) -> Result<Vec<Cells>, Failure> {
        self.run(call, |conn| rows(conn, sql))
    }

    /// The call's deadline and `io_timeout` bound each read and write at the socket, and an
    /// interruption of the call ends them. After either, the reply is missing
    /// and the outcome is not known: [`Failure::Lost`].
    fn run<T>(
        &mut self,
        call: &Call,
        io: impl FnOnce(&mut Conn) -> mysql::Result<T>,
    ) -> Result<T, Failure> {
        let limit = call.deadline().left().saturating_add(GRACE).min(self.io_timeout);
        self.run_until(call, Instant::now().after(limit), io)
    }

    fn run_until<T>(
        &mut self,
        call: &Call,
        until: Instant,
        io: impl FnOnce(&mut Conn) -> mysql::Result<T>,
    ) -> Result<T, Failure> {
        let fd = self.fd();
        // The time-outs bound one read; the watchdog bounds them all, and more
        // exactly: they are in steps, so that most calls need not set them.
        let timeouts = in_steps(until.left());
        if timeouts != self.timeouts {
            socket::set_timeouts(fd, timeouts);
            self.timeouts = timeouts;
        }
        let result = match &mut self.conn {
            Some(conn) if self.is_tls => {
                call.at_socket(fd, until, || signals::without_sigpipe(|| io(conn)))
            }
            Some(conn) => call.at_socket(fd, until, || io(conn)),
            None => Err(mysql::Error::server_disconnected()),
        };
        result.map_err(|error| {
            let failure = Failure::from(error);
            self.broken |= failure.ends_session();
            failure
        })
    }

    /// The latest time, by the server's clock, at which a statement that is sent
    /// now may have its effect, for somebody who waits `until` then. Read anew
    /// where the last reading is old; errs on the late side, by a round trip at
    /// most.
    pub(crate) fn give_up(&mut self, call: &Call, until: Instant) -> Result<u64, Failure> {
        let now = Instant::now();
        if self.clock_is_old || now.since(self.clock.read_at) > CLOCK_AGE {
            let rows = self.query(call, &sql::session::clock())?;
            self.learn_clock(now, number(&rows, 1));
        }
        Ok(self.clock.at(until.min(now.after(self.io_timeout))))
    }

    /// Takes over a reading of the server's clock that a statement brought
    /// along, sent at `sent`.
    pub(crate) fn learn_clock(&mut self, sent: Instant, server_us: u64) {
        self.clock = Clock { read_at: sent, server_us };
        self.clock_is_old = false;
    }

    /// The reading of the server's clock is no longer true.
    pub(crate) fn forget_clock(&mut self) {
        self.clock_is_old = true;
    }

    pub(crate) fn is_broken(&self) -> bool {
        self.broken
    }

    pub(crate) fn mark_broken(&mut self) {
        self.broken = true;
    }

    /// True if the idle connection can be used: its server has not closed it.
    pub(crate) fn is_fresh(&self) -> bool {
        !self.broken && socket::is_quiet(self.fd())
    }

    fn fd(&self) -> RawFd {
        self.conn.as_ref().map_or(-1, AsRawFd::as_raw_fd)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let conn = self.conn.take();
        if self.generation != fork::generation() {
            // The parent's connection: to say goodbye on the shared socket
            // would end it for the parent.
            mem::forget(conn);
            return;
        }
        // The driver's drop says goodbye, and would block for that at a socket
        // whose other end is silent: a broken one is shut down first, and the
        // goodbye fails at once. A healthy one has an empty send buffer.
        if let Some(conn) = conn {
            if self.broken {
                socket::shut_down(conn.as_raw_fd());
            }
            if self.is_tls {
                signals::without_sigpipe(|| drop(conn));
            }
        }
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("id", &self.id).field("broken", &self.broken).finish()
    }
}

/// Reads all that a packet of several statements answers.
fn drain(results: &mut QueryResult<'_, '_, '_, Text>) -> mysql::Result<()> {
    while let Some(result) = results.iter() {
        for row in result {
            row?;
        }
    }
    Ok(())
}

/// A time-out, rounded up to a multiple of 40 ms.
fn in_steps(limit: Duration) -> Duration {
    const STEP: u128 = 40_000_000;
    let steps = limit.as_nanos().div_ceil(STEP).max(1);
    Duration::from_nanos(u64::try_from(steps * STEP).unwrap_or(u64::MAX))
}

fn rows(conn: &mut Conn, sql: &str) -> mysql::Result<Vec<Cells>> {
    Ok(conn.query::<mysql::Row, _>(sql)?.into_iter().map(cells).collect())
}

fn cells(row: mysql::Row) -> Cells {
    let cell = |value| match value {
        mysql::Value::NULL => None,
        mysql::Value::Bytes(bytes) => Some(bytes),
        other => Some(other.as_sql(true).into_bytes()),
    };
    row.unwrap().into_iter().map(cell).collect()
}

/// The number in a column of the first row; 0 if there is none.
pub(crate) fn number(rows: &[Cells], column: usize) -> u64 {
    rows.first().map_or(0, |row| number_in(row, column))
}

/// The number in a column; 0 if there is none.
pub(crate) fn number_in(row: &Cells, column: usize) -> u64 {
    let cell = row.get(column).and_then(Option::as_deref);
    cell.and_then(|text| std::str::from_utf8(text).ok()).and_then(|t| t.parse().ok()).unwrap_or(0)
}
