//! Acquire, renew, release.

use std::ffi::{CString, c_char};
use std::mem::offset_of;
use std::time::Duration;

use super::boundary;
use super::cancel::dl_cancel;
use super::client::{dl_client, own};
use super::convert::{self, Sized0};
use super::error::dl_error;
use super::status::{DL_STATUS_NOT_HELD, DL_STATUS_OK, dl_status};
use crate::error::{Error, Result};
use crate::grant::LostCause;
use crate::lock::Lock;
use crate::options::{AcquireOptions, Kind, Wait};

/// A lock that was acquired. Usable from any thread, and not bound to the one
/// that acquired it. To be freed by dl_lock_free(), before or after its client.
pub struct dl_lock {
    pub(super) lock: Lock,
    pub(super) key: CString,
}

/// For wait_ms: wait for ever.
pub const DL_WAIT_FOREVER: u64 = u64::MAX;

/// A row with an expiry. The one kind so far.
pub const DL_KIND_LEASE: i32 = 0;
/// A row lock in an open transaction. Not yet: UNSUPPORTED.
pub const DL_KIND_ROW: i32 = 1;
/// A named lock of the server's. Not yet: UNSUPPORTED.
pub const DL_KIND_NAMED: i32 = 2;

/// The library does not renew the lease; dl_renew() does.
pub const DL_ACQUIRE_MANUAL_RENEW: u32 = 1;
/// Takes the lock if it is free, though others wait for it already; waits in its
/// turn otherwise. A single try always does.
pub const DL_ACQUIRE_UNFAIR: u32 = 2;
/// Release may return before it is done. No effect yet: it is done.
pub const DL_ACQUIRE_LAZY_RELEASE: u32 = 4;

/// Not lost.
pub const DL_LOST_NOT: i32 = 0;
/// Its time ran out without a renewal; also where another owner was granted the key
/// after that.
pub const DL_LOST_EXPIRED: i32 = 1;
/// It could not be renewed in time: the server was not reached.
pub const DL_LOST_UNREACHABLE: i32 = 2;
/// Another owner was granted the key before its time had run out, as the handle
/// counts it.
pub const DL_LOST_TAKEN: i32 = 3;
/// An operator released it by force.
pub const DL_LOST_FORCED: i32 = 4;
/// Its row is gone from the table.
pub const DL_LOST_ROW_GONE: i32 = 5;
/// The connection that it lived on is gone.
pub const DL_LOST_CONNECTION: i32 = 6;
/// The handle was made before a fork, in the parent.
pub const DL_LOST_FORKED: i32 = 7;
/// The client was closed.
pub const DL_LOST_CLOSED: i32 = 8;
/// It was held for as long as it might be.
pub const DL_LOST_MAX_HOLD: i32 = 9;

/// Options of an acquire. Begin with DL_ACQUIRE_OPTIONS_INIT; zero and NULL
/// mean the default.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct dl_acquire_options {
    /// sizeof(dl_acquire_options).
    pub size: usize,
    /// How long to wait: 0 makes one try, DL_WAIT_FOREVER waits for ever.
    pub wait_ms: u64,
    /// The length of the lease, 10 ms to 366 days; 0: the client's default.
    pub ttl_ms: u64,
    /// The library renews the lease no longer than this: then it ends, and the lock
    /// is lost by MAX_HOLD. 0: for ever. No effect with MANUAL_RENEW.
    pub max_hold_ms: u64,
    /// The owner, 1 to 255 bytes: an acquire of the same key by the same owner
    /// shares the grant. Each handle is released once, the last release frees
    /// the key, and a loss ends all. NULL: every acquire is its own owner.
    pub owner: *const c_char,
    /// A note for people who look at the table, at most 255 bytes.
    pub note: *const c_char,
    /// Ends the call when it is fired; NULL: nothing does.
    pub cancel: *mut dl_cancel,
    /// DL_KIND_…
    pub kind: i32,
    /// DL_ACQUIRE_…, or-ed.
    pub flags: u32,
}

impl Sized0 for dl_acquire_options {
    const NAME: &'static str = "dl_acquire_options";
    const FIELDS: &'static [usize] = &[
        offset_of!(Self, wait_ms),
        offset_of!(Self, ttl_ms),
        offset_of!(Self, max_hold_ms),
        offset_of!(Self, owner),
        offset_of!(Self, note),
        offset_of!(Self, cancel),
        offset_of!(Self, kind),
        offset_of!(Self, flags),
    ];
}

/// Acquires a lock.
///
/// @param client A client.
/// @param key The lock's name: 1 to 255 bytes, any but NUL, compared byte for
/// byte.
/// @param options Options; NULL for one try with the defaults.
/// @param lock_out Receives the lock, to be freed by dl_lock_free().
/// @param error_out Receives the error of a failure; may be NULL.
/// @return OK; NOT_ACQUIRED if someone else has it and wait_ms is 0; TIMED_OUT
/// if it was not to be had until the deadline, and someone else was seen to have
/// it in this call; CANCELLED; UNAVAILABLE if the server was not reached, and it
/// was seen with nobody; SERVER if it refused; CONFIG, INVALID_ARGUMENT and
/// UNSUPPORTED at once; CLOSED, FORKED, INTERNAL, PANIC.
///
/// Blocks: up to wait_ms, or with 0 up to the lesser of io_timeout_ms and the
/// TTL. Threads: any, also at the same time. After fork: FORKED.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn dl_acquire(
    client: *mut dl_client,
    key: *const c_char,
    options: *const dl_acquire_options,
    lock_out: *mut *mut dl_lock,
    error_out: *mut *mut dl_error,
) -> dl_status {
    // SAFETY: NULL or valid by the contract.
    let client = unsafe { own(client) };
    boundary::call(client.as_ref().map(|client| &**client.shared()), error_out, || {
        // SAFETY: each is NULL or valid by the contract, and checked for NULL.
        unsafe {
            convert::out("lock_out", lock_out, std::ptr::null_mut())?;
            let client = convert::there("client", &client)?;
            let key = convert::bytes("key", key)?;
            let options = acquire_options(convert::options(options)?)?;
            let lock = client.acquire(key, &options)?;
            let key = CString::new(key).unwrap_or_default();
            lock_out.write(Box::into_raw(Box::new(dl_lock { lock, key })));
        }
        Ok(())
    })
}

/// # Safety
/// The texts are NULL or NUL-terminated, the token NULL or valid.
pub(super) unsafe fn acquire_options(given: dl_acquire_options) -> Result<AcquireOptions> {
    let known = DL_ACQUIRE_MANUAL_RENEW | DL_ACQUIRE_UNFAIR | DL_ACQUIRE_LAZY_RELEASE;
    if given.flags & !known != 0 {
        return Err(Error::invalid(format!("invalid flags: {:#x}", given.flags)));
    }
    let kind = kind_of(given.kind)?;
    // SAFETY: passed on.
    unsafe {
        Ok(AcquireOptions {
            wait: match given.wait_ms {
                0 => Wait::Try,
                DL_WAIT_FOREVER => Wait::Forever,
                wait_ms => Wait::For(Duration::from_millis(wait_ms)),
            },
            ttl: convert::millis(given.ttl_ms),
            max_hold: convert::millis(given.max_hold_ms),
            owner: convert::optional(given.owner).map(<[u8]>::to_vec),
            note: convert::optional(given.note).unwrap_or_default().to_vec(),
            cancel: given.cancel.as_ref().map(dl_cancel::token).transpose()?,
            kind,
            unfair: given.flags & DL_ACQUIRE_UNFAIR != 0,
            manual_renew: given.flags & DL_ACQUIRE_MANUAL_RENEW != 0,
        })
    }
}

pub(super) fn kind_of(given: i32) -> Result<Kind> {
    match given {
        DL_KIND_LEASE => Ok(Kind::Lease),
        DL_KIND_ROW => Ok(Kind::Row),
        DL_KIND_NAMED => Ok(Kind::Named),
        other => Err(Error::invalid(format!("invalid kind: {other}"))),
    }
}

/// Renews a lease: it runs for the TTL from now. One with an owner text is
/// never shortened.
///
/// @param lock A lock.
/// @param ttl_ms 10 ms to 366 days; 0: the grant's own.
/// @param error_out Receives the error of a failure; may be NULL.
/// @return OK; NOT_HELD if the lock is lost or released; UNAVAILABLE if the
/// server was not reached, with the lease as it was (or as short as was asked
/// for, since the server may have done it); SERVER, CONFIG, INVALID_ARGUMENT,
/// CLOSED, FORKED, INTERNAL, PANIC.
///
/// Blocks: for a round trip; up to io_timeout_ms, and not past the lease.
/// Threads: any, also at the same time. After fork: FORKED.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn dl_renew(
    lock: *mut dl_lock,
    ttl_ms: u64,
    error_out: *mut *mut dl_error,
) -> dl_status {
    // SAFETY: NULL or valid by the contract.
    let shared = unsafe { lock.as_ref() }.map(|lock| lock.lock.shared());
    boundary::call(shared, error_out, || {
        // SAFETY: as above.
        let lock = &unsafe { convert::handle("lock", lock) }?.lock;
        match convert::millis(ttl_ms) {
            None => lock.renew(),
            Some(ttl) => lock.renew_for(ttl),
        }
    })
}

/// Releases a lock. The handle stays valid, for its readers and for
/// dl_lock_free().
///
/// @param lock A lock.
/// @param error_out Receives the error of a failure; may be NULL.
/// @return OK the first time; NOT_HELD every later time, without asking the
/// server and without effect, and if the lock had been lost before;
/// UNAVAILABLE if the server was not reached: release may be called again;
/// SERVER, CONFIG, INVALID_ARGUMENT, CLOSED, FORKED, INTERNAL, PANIC.
///
/// Blocks: for a round trip; up to io_timeout_ms. Threads: any, also at the
/// same time. After fork: FORKED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dl_release(
    lock: *mut dl_lock,
    error_out: *mut *mut dl_error,
) -> dl_status {
    // SAFETY: NULL or valid by the contract.
    let shared = unsafe { lock.as_ref() }.map(|lock| lock.lock.shared());
    boundary::call(shared, error_out, || {
        // SAFETY: as above.
        unsafe { convert::handle("lock", lock) }?.lock.release_in_place()
    })
}

/// Frees a lock. One that is still held is left to the client's own thread for
/// release; where the process ends before that is done it lapses by its TTL:
/// call dl_release() or dl_client_close() before exit.
///
/// @param lock A lock that nobody uses any more; NULL does nothing.
///
/// Blocks: no. Threads: any. After fork: frees the child's copy; the parent's
/// grant stays.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dl_lock_free(lock: *mut dl_lock) {
    boundary::read((), || {
        if !lock.is_null() {
            // SAFETY: made by Box::into_raw, and freed once by the contract.
            drop(unsafe { Box::from_raw(lock) });
        }
    });
}

/// The fencing token: greater than that of every earlier grant of the key.
/// Kept after the lock has ended.
///
/// @param lock A lock; NULL gives 0.
/// @return The token.
///
/// Blocks: no. Threads: any, also at the same time. After fork: works.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dl_lock_token(lock: *const dl_lock) -> u64 {
    // SAFETY: NULL or valid by the contract.
    unsafe { lock.as_ref() }.map_or(0, |lock| lock.lock.token())
}

/// The key.
///
/// @param lock A lock; NULL gives "".
/// @return A text that lives as long as the lock.
///
/// Blocks: no. Threads: any, also at the same time. After fork: works.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dl_lock_key(lock: *const dl_lock) -> *const c_char {
    // SAFETY: NULL or valid by the contract.
    unsafe { lock.as_ref() }.map_or(c"".as_ptr(), |lock| lock.key.as_ptr())
}

/// How much of the lease is left by the server's clock at least, in whole
/// milliseconds. Needs no network. Runs down by 1 % faster than time, in case
/// the two clocks do not run at the same speed.
///
/// @param lock A lock; NULL gives 0.
/// @return The time left; 0 once the lock is not held.
///
/// Blocks: no. Threads: any, also at the same time. After fork: 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dl_lock_remaining_ms(lock: *const dl_lock) -> u64 {
    boundary::read(0, || {
        // SAFETY: NULL or valid by the contract.
        let lock = unsafe { lock.as_ref() };
        lock.map_or(0, |lock| u64::try_from(lock.lock.remaining().as_millis()).unwrap_or(0))
    })
}

/// Whether the lock is held, exactly and at any moment. Needs no network.
///
/// @param lock A lock; NULL is not held.
/// @return OK or NOT_HELD.
///
/// Blocks: no. Threads: any, also at the same time. After fork: NOT_HELD.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dl_lock_state(lock: *const dl_lock) -> dl_status {
    boundary::read(DL_STATUS_NOT_HELD, || {
        // SAFETY: NULL or valid by the contract.
        match unsafe { lock.as_ref() } {
            Some(lock) if lock.lock.is_held() => DL_STATUS_OK,
            _ => DL_STATUS_NOT_HELD,
        }
    })
}

/// Why the lock was lost.
///
/// @param lock A lock; NULL gives DL_LOST_NOT.
/// @return DL_LOST_…; DL_LOST_NOT while it is held, and once it was released.
///
/// Blocks: no. Threads: any, also at the same time. After fork: DL_LOST_FORKED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dl_lock_lost_cause(lock: *const dl_lock) -> i32 {
    boundary::read(DL_LOST_NOT, || {
        // SAFETY: NULL or valid by the contract.
        let cause = unsafe { lock.as_ref() }.and_then(|lock| lock.lock.lost_cause());
        cause.map_or(DL_LOST_NOT, number_of)
    })
}

pub(super) fn number_of(cause: LostCause) -> i32 {
    match cause {
        LostCause::Expired => DL_LOST_EXPIRED,
        LostCause::Unreachable => DL_LOST_UNREACHABLE,
        LostCause::Taken => DL_LOST_TAKEN,
        LostCause::Forced => DL_LOST_FORCED,
        LostCause::RowGone => DL_LOST_ROW_GONE,
        LostCause::Connection => DL_LOST_CONNECTION,
        LostCause::Forked => DL_LOST_FORKED,
        LostCause::Closed => DL_LOST_CLOSED,
        LostCause::MaxHold => DL_LOST_MAX_HOLD,
    }
}
