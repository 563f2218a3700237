//! While a lock is held: waiting for its loss, and the guard.

use std::ffi::c_char;

use super::boundary;
use super::convert;
use super::error::dl_error;
use super::lock::dl_lock;
use super::status::{
    DL_STATUS_NOT_HELD, DL_STATUS_OK, DL_STATUS_PANIC, DL_STATUS_TIMED_OUT, dl_status,
};
use crate::error::Error;

/// Waits until the lock is lost. Needs no network.
///
/// @param lock A lock; NULL is not held.
/// @param timeout_ms How long to wait; 0: not at all; DL_WAIT_FOREVER.
/// @return OK: it is lost; dl_lock_lost_cause() says why. TIMED_OUT: it was not.
/// NOT_HELD once it is released, also by another thread in the meantime. PANIC.
///
/// Blocks: up to timeout_ms; told within 50 ms of the loss, of which the lock's own
/// deadline is the latest. Threads: any, also at the same time; the lock must not be
/// freed meanwhile. After fork: OK.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn dl_lock_wait_lost(lock: *const dl_lock, timeout_ms: u64) -> dl_status {
    boundary::read(DL_STATUS_PANIC, || {
        // SAFETY: NULL or valid by the contract.
        let Some(lock) = (unsafe { lock.as_ref() }) else { return DL_STATUS_NOT_HELD };
        match lock.lock.wait_lost(convert::timeout(timeout_ms)) {
            Ok(true) => DL_STATUS_OK,
            Ok(false) => DL_STATUS_TIMED_OUT,
            Err(error) => error.status().code(),
        }
    })
}

/// The text of the guard: one locking read, for the caller to run inside its own
/// open transaction, first thing in it, on its own connection. One row comes back
/// if the lock is still the last grant of its key, and until that transaction ends
/// no later grant can be made: what it writes cannot be late. No row: roll back at
/// once, the lock is lost. Server errors 1205, 1213 and 1020 mean "begin again".
///
/// It does not reach autocommit, XA PREPARE, Galera and groups with several
/// primaries; and it is gone without a word after DDL, a second BEGIN, COMMIT AND
/// CHAIN, or a deadlock that was caught.
///
/// @param lock A lock.
/// @param buffer Receives the text with its NUL, if the capacity suffices.
/// @param capacity The bytes of the buffer; 0 with NULL asks for the length.
/// @param length_out Receives the length of the text, without NUL, in any case.
/// @param error_out Receives the error of a failure; may be NULL.
/// @return OK; INVALID_ARGUMENT if the capacity is not greater than the length, with
/// the buffer as it was; NOT_HELD if the lock is lost or released; FORKED, PANIC.
///
/// Blocks: no, and needs no network. Threads: any, also at the same time. After
/// fork: FORKED.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn dl_lock_guard_sql(
    lock: *const dl_lock,
    buffer: *mut c_char,
    capacity: usize,
    length_out: *mut usize,
    error_out: *mut *mut dl_error,
) -> dl_status {
    // SAFETY: NULL or valid by the contract.
    let shared = unsafe { lock.as_ref() }.map(|lock| lock.lock.shared());
    boundary::call(shared, error_out, || {
        // SAFETY: each is NULL or valid by the contract, and checked for NULL.
        unsafe {
            convert::out("length_out", length_out, 0)?;
            let text = convert::handle("lock", lock)?.lock.guard_sql()?;
            length_out.write(text.len());
            if buffer.is_null() || capacity <= text.len() {
                let needed = text.len() + 1;
                return Err(Error::invalid(format!("invalid capacity: {needed} bytes are needed")));
            }
            buffer.copy_from_nonoverlapping(text.as_ptr().cast(), text.len());
            buffer.add(text.len()).write(0);
        }
        Ok(())
    })
}
