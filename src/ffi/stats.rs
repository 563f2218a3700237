//! Counters of what a client did.

use std::mem::offset_of;

use super::boundary;
use super::client::{dl_client, own};
use super::convert::{self, Sized0};
use super::status::dl_status;

/// What a client has done since it was opened, and what it has open now. Begin
/// with DL_STATS_INIT.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct dl_stats {
    /// sizeof(dl_stats).
    pub size: usize,
    /// Leases granted, also by hand-over.
    pub grants: u64,
    /// Acquires that had to wait.
    pub waits: u64,
    /// Waits that ended at their deadline while someone else had the lock.
    pub time_outs: u64,
    /// Leases handed from one caller of this process to the next in one commit.
    pub hand_overs: u64,
    /// Releases that rang the bell for the next process.
    pub rings: u64,
    /// Looks at the rows that nobody rings for, each at any number of keys.
    pub looks: u64,
    /// Renewals that the server was asked for.
    pub renewals: u64,
    /// Releases that did what they were to do.
    pub releases: u64,
    /// Releases that failed: to be tried again, or done when the lock is freed.
    pub release_failures: u64,
    /// Grants lost since their time ran out.
    pub lost_expired: u64,
    /// Grants lost since the server was not reached.
    pub lost_unreachable: u64,
    /// Grants lost to another owner.
    pub lost_taken: u64,
    /// Grants lost since their row was gone.
    pub lost_row_gone: u64,
    /// Grants lost otherwise.
    pub lost_otherwise: u64,
    /// Statements tried again since a row, a table or the server was locked.
    pub retries_blocked: u64,
    /// Statements tried again since the server let nobody in, or took no writes.
    pub retries_unavailable: u64,
    /// Statements tried again since their connection was lost.
    pub retries_lost: u64,
    /// Times that the server was found to refuse GET_LOCK: rows are polled.
    pub gate_fallbacks: u64,
    /// Acquires whose reply was lost and that were found out about.
    pub resolved: u64,
    /// Panics in the client's own threads, which went on.
    pub panics: u64,
    /// Callers that wait now.
    pub waiting: u64,
    /// Connections for statements that are open now.
    pub connections: u64,
    /// Connections that wait at the server, keep a bell, or are left from that: idle
    /// ones are closed after a second or two.
    pub waiting_connections: u64,
}

impl Sized0 for dl_stats {
    const NAME: &'static str = "dl_stats";
    const FIELDS: &'static [usize] = &[
        offset_of!(Self, grants),
        offset_of!(Self, waits),
        offset_of!(Self, time_outs),
        offset_of!(Self, hand_overs),
        offset_of!(Self, rings),
        offset_of!(Self, looks),
        offset_of!(Self, renewals),
        offset_of!(Self, releases),
        offset_of!(Self, release_failures),
        offset_of!(Self, lost_expired),
        offset_of!(Self, lost_unreachable),
        offset_of!(Self, lost_taken),
        offset_of!(Self, lost_row_gone),
        offset_of!(Self, lost_otherwise),
        offset_of!(Self, retries_blocked),
        offset_of!(Self, retries_unavailable),
        offset_of!(Self, retries_lost),
        offset_of!(Self, gate_fallbacks),
        offset_of!(Self, resolved),
        offset_of!(Self, panics),
        offset_of!(Self, waiting),
        offset_of!(Self, connections),
        offset_of!(Self, waiting_connections),
    ];
}

/// Reads the counters.
///
/// @param client A client.
/// @param stats_out Receives them; its size is to be set before.
/// @return OK, INVALID_ARGUMENT, PANIC. After a fork all are 0.
///
/// Blocks: no. Threads: any, also at the same time. After fork: works.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dl_client_stats(
    client: *const dl_client,
    stats_out: *mut dl_stats,
) -> dl_status {
    // SAFETY: NULL or valid by the contract.
    let client = unsafe { own(client) };
    boundary::call(None, std::ptr::null_mut(), || {
        // SAFETY: NULL or valid by the contract, and checked for NULL.
        let writable = unsafe { convert::sized_out("stats_out", stats_out)? };
        let stats = convert::there("client", &client)?.stats();
        // SAFETY: checked above.
        let size = unsafe { stats_out.cast::<usize>().read_unaligned() };
        let all = dl_stats {
            size,
            grants: stats.grants,
            waits: stats.waits,
            time_outs: stats.time_outs,
            hand_overs: stats.hand_overs,
            rings: stats.rings,
            looks: stats.looks,
            renewals: stats.renewals,
            releases: stats.releases,
            release_failures: stats.release_failures,
            lost_expired: stats.lost_expired,
            lost_unreachable: stats.lost_unreachable,
            lost_taken: stats.lost_taken,
            lost_row_gone: stats.lost_row_gone,
            lost_otherwise: stats.lost_otherwise,
            retries_blocked: stats.retries_blocked,
            retries_unavailable: stats.retries_unavailable,
            retries_lost: stats.retries_lost,
            gate_fallbacks: stats.gate_fallbacks,
            resolved: stats.resolved,
            panics: stats.panics,
            waiting: stats.waiting,
            connections: stats.connections,
            waiting_connections: stats.waiting_connections,
        };
        // SAFETY: `writable` bytes are writable, and `all` is as long.
        unsafe {
            stats_out.cast::<u8>().copy_from_nonoverlapping((&raw const all).cast(), writable)
        };
        Ok(())
    })
}
