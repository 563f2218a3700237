//! Counters of what the engine did, from when the client was opened.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::grant::LostCause;
use crate::session::failure::Class;

macro_rules! counters {
    ($($(#[$doc:meta])* $variant:ident $field:ident),* $(,)?) => {
        /// What is counted.
        #[derive(Clone, Copy, Debug)]
        pub(crate) enum Counter { $($variant),* }

        /// What a client has done since it was opened, and what it has open now.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Stats {
            $($(#[$doc])* pub $field: u64,)*
            /// Callers that wait now.
            pub waiting: u64,
            /// Connections for statements that are open now.
            pub connections: u64,
            /// Connections that wait at the server, keep a bell, or are left from
            /// that: idle ones are closed after a second or two.
            pub waiting_connections: u64,
        }

        const COUNT: usize = [$(Counter::$variant),*].len();

        impl Counters {
            /// The values now.
            pub(crate) fn read(&self) -> Stats {
                let value = |counter: Counter| self.0[counter as usize].load(Ordering::Relaxed);
                Stats { $($field: value(Counter::$variant),)* ..Stats::default() }
            }
        }
    };
}

counters! {
    /// Leases granted, also by hand-over.
    Grants grants,
    /// Acquires that had to wait.
    Waits waits,
    /// Waits that ended at their deadline while someone else had the lock.
    TimeOuts time_outs,
    /// Leases handed from one caller of this process to the next in one commit.
    HandOvers hand_overs,
    /// Releases that rang the bell for the next process.
    Rings rings,
    /// Looks at the rows that nobody rings for, each at any number of keys.
    Looks looks,
    /// Renewals that the server was asked for.
    Renewals renewals,
    /// Releases that did what they were to do.
    Releases releases,
    /// Releases that failed: to be tried again, or done when the lock is freed.
    ReleaseFailures release_failures,
    /// Grants lost since their time ran out.
    LostExpired lost_expired,
    /// Grants lost since the server was not reached.
    LostUnreachable lost_unreachable,
    /// Grants lost to another owner.
    LostTaken lost_taken,
    /// Grants lost since their row was gone.
    LostRowGone lost_row_gone,
    /// Grants lost otherwise.
    LostOtherwise lost_otherwise,
    /// Statements tried again since a row, a table or the server was locked.
    RetriesBlocked retries_blocked,
    /// Statements tried again since the server let nobody in, or took no writes.
    RetriesUnavailable retries_unavailable,
    /// Statements tried again since their connection was lost.
    RetriesLost retries_lost,
    /// Times that the server was found to refuse GET_LOCK: rows are polled.
    GateFallbacks gate_fallbacks,
    /// Acquires whose reply was lost and that were found out about.
    Resolved resolved,
    /// Panics in the client's own threads, which went on.
    Panics panics,
}

/// The counters of one client.
#[derive(Debug)]
pub(crate) struct Counters([AtomicU64; COUNT]);

impl Default for Counters {
    fn default() -> Counters {
        Counters([const { AtomicU64::new(0) }; COUNT])
    }
}

impl Counters {
    pub(crate) fn count(&self, counter: Counter) {
        self.count_many(counter, 1);
    }

    pub(crate) fn count_many(&self, counter: Counter, times: u64) {
        self.0[counter as usize].fetch_add(times, Ordering::Relaxed);
    }

    /// A statement is tried again.
    pub(crate) fn count_retry(&self, class: Class) {
        self.count(match class {
            Class::Blocked => Counter::RetriesBlocked,
            Class::ReadOnly | Class::Crowded => Counter::RetriesUnavailable,
            _ => Counter::RetriesLost,
        });
    }

    /// A grant was lost.
    pub(crate) fn count_loss(&self, cause: LostCause) {
        self.count(match cause {
            LostCause::Expired => Counter::LostExpired,
            LostCause::Unreachable => Counter::LostUnreachable,
            LostCause::Taken => Counter::LostTaken,
            LostCause::RowGone => Counter::LostRowGone,
            _ => Counter::LostOtherwise,
        });
    }
}
