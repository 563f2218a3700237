//! Acquires without a thread to sleep in, for event loops and for very many
//! waiters.

use std::ffi::{CString, c_char};
use std::sync::atomic::Ordering;

use super::boundary;
use super::client::{dl_client, own};
use super::convert::{self, Sized0};
use super::error::dl_error;
use super::lock::{acquire_options, dl_acquire_options, dl_lock, number_of};
use super::status::{DL_STATUS_NOT_HELD, DL_STATUS_OK, DL_STATUS_TIMED_OUT, dl_status};
use crate::events::Outcome;

/// In dl_event: the lock is acquired, and the caller's to free.
pub const DL_EVENT_ACQUIRED: i32 = 1;
/// In dl_event: it is not; the error, if there is one, is the caller's to free.
pub const DL_EVENT_FAILED: i32 = 2;
/// In dl_event: a lock acquired by dl_acquire_async() was lost; it stays its
/// owner's. Sent once, and not any more once it is released or freed.
pub const DL_EVENT_LOST: i32 = 3;

/// What became of an acquire that was begun. Begin with DL_EVENT_INIT.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct dl_event {
    /// sizeof(dl_event).
    pub size: usize,
    /// The tag given to dl_acquire_async().
    pub tag: u64,
    /// ACQUIRED: the lock, to be freed by dl_lock_free(). LOST: that lock, which
    /// must not have been freed by another thread in the meantime. Else NULL.
    pub lock: *mut dl_lock,
    /// FAILED with a status below 0: the error, to be freed by
    /// dl_error_free(). Else NULL.
    pub error: *mut dl_error,
    /// How the acquire ended: as dl_acquire() returns it. LOST: NOT_HELD.
    pub status: dl_status,
    /// DL_EVENT_…; 0: none.
    pub r#type: i32,
    /// LOST: DL_LOST_…. Else 0.
    pub cause: i32,
}

impl Sized0 for dl_event {
    const NAME: &'static str = "dl_event";
    const FIELDS: &'static [usize] = &[];
}

/// Begins to acquire a lock, and returns at once. The outcome comes as an event,
/// once, with the tag: in ACQUIRED the lock, in FAILED the status that
/// dl_acquire() would have returned. Waits take no thread.
///
/// @param client A client.
/// @param key As for dl_acquire().
/// @param options As for dl_acquire(); NULL for one try with the defaults.
/// @param tag Any number, for the caller to know the event by.
/// @param error_out Receives the error of a failure; may be NULL.
/// @return OK: begun; INVALID_ARGUMENT, UNSUPPORTED, CLOSED, FORKED, INTERNAL,
/// PANIC: no event will come.
///
/// Blocks: no. Threads: any, also at the same time. After fork: FORKED.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn dl_acquire_async(
    client: *mut dl_client,
    key: *const c_char,
    options: *const dl_acquire_options,
    tag: u64,
    error_out: *mut *mut dl_error,
) -> dl_status {
    // SAFETY: NULL or valid by the contract.
    let client = unsafe { own(client) };
    boundary::call(client.as_ref().map(|client| &**client.shared()), error_out, || {
        // SAFETY: each is NULL or valid by the contract, and checked for NULL.
        unsafe {
            let client = convert::there("client", &client)?;
            let key = convert::bytes("key", key)?;
            let options = acquire_options(convert::options(options)?)?;
            client.acquire_async(key, &options, tag)
        }
    })
}

/// Takes the next event, waiting for it if there is none.
///
/// @param client A client.
/// @param timeout_ms How long to wait; 0: not at all; DL_WAIT_FOREVER.
/// @param event_out Receives the event; its size is to be set before.
/// @return OK; TIMED_OUT: there was none; CLOSED if the client is closed
/// meanwhile (no call may begin after that); INVALID_ARGUMENT, FORKED, PANIC.
///
/// Blocks: up to timeout_ms. Threads: any, also at the same time: each event
/// goes to one. After fork: FORKED.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn dl_client_next_event(
    client: *mut dl_client,
    timeout_ms: u64,
    event_out: *mut dl_event,
) -> dl_status {
    // SAFETY: NULL or valid by the contract.
    let client = unsafe { own(client) };
    let mut none = false;
    let shared = client.as_ref().map(|client| &**client.shared());
    let status = boundary::call(shared, std::ptr::null_mut(), || {
        // SAFETY: NULL or valid by the contract, and checked for NULL.
        unsafe { convert::sized_out("event_out", event_out)? };
        let client = convert::there("client", &client)?;
        let Some(event) = client.next_event(convert::timeout(timeout_ms))? else {
            none = true;
            return Ok(());
        };
        // SAFETY: checked above.
        let size = unsafe { (*event_out).size };
        let mut out = dl_event {
            size,
            tag: event.tag,
            lock: std::ptr::null_mut(),
            error: std::ptr::null_mut(),
            status: DL_STATUS_OK,
            r#type: DL_EVENT_ACQUIRED,
            cause: 0,
        };
        match event.outcome {
            Outcome::Acquired(lock) => {
                let key = CString::new(lock.key()).unwrap_or_default();
                out.lock = Box::into_raw(Box::new(dl_lock { lock, key }));
                // SAFETY: just made, and not anybody else's yet.
                unsafe { &*out.lock }.lock.is_at(out.lock.expose_provenance());
            }
            Outcome::Lost(cause) => {
                out.r#type = DL_EVENT_LOST;
                out.status = DL_STATUS_NOT_HELD;
                out.cause = number_of(cause);
                let handle = event.watcher.map_or(0, |w| w.handle.load(Ordering::Acquire));
                out.lock = std::ptr::with_exposed_provenance_mut(handle);
            }
            Outcome::Failed(error) => {
                out.r#type = DL_EVENT_FAILED;
                out.status = error.status().code();
                if out.status < 0 {
                    out.error = Box::into_raw(Box::new(dl_error::new(&error)));
                }
            }
        }
        // SAFETY: of the size that was checked.
        unsafe { event_out.write(out) };
        Ok(())
    });
    if status == DL_STATUS_OK && none { DL_STATUS_TIMED_OUT } else { status }
}

/// A descriptor that is readable while events wait, for poll, epoll and event
/// loops: when it is, take events by dl_client_next_event() with a timeout of 0,
/// until there is none. Not to be read from, written to or closed; it lives as long
/// as the client.
///
/// @param client A client; NULL gives -1.
/// @return The descriptor, the same each time; -1 if the system has none to
/// give, and after a fork.
///
/// Blocks: no. Threads: any, also at the same time. After fork: -1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dl_client_event_fd(client: *mut dl_client) -> i32 {
    // SAFETY: NULL or valid by the contract.
    let client = unsafe { own(client) };
    boundary::read(-1, || client.as_ref().map_or(-1, crate::client::Client::event_fd))
}
