//! For operators: who holds a lock, and its end by force.

use std::ffi::c_char;
use std::time::Duration;

use super::boundary;
use super::client::{dl_client, own};
use super::convert::{self, Sized0};
use super::error::dl_error;
use super::lock::kind_of;
use super::status::dl_status;
use crate::error::{Error, Status};
use crate::kinds::lease::operate::Holder;

/// Who holds a lock. Begin with DL_HOLDER_INIT. For people: by the time that it is
/// read it may be over.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct dl_holder {
    /// sizeof(dl_holder).
    pub size: usize,
    /// The fencing token of the grant.
    pub token: u64,
    /// How much of the lease is left.
    pub remaining_ms: u64,
    /// For how long it has been held.
    pub held_ms: u64,
    /// The length of the lease.
    pub ttl_ms: u64,
    /// How many hold it: several of one owner, perhaps.
    pub holds: u32,
    /// The number of the holder's process on its machine.
    pub pid: u32,
    /// The owner text; "" where the caller gave none.
    pub owner: [c_char; 256],
    /// The holder's program, as it named itself.
    pub application: [c_char; 72],
    /// Its machine.
    pub host: [c_char; 256],
    /// Its note.
    pub note: [c_char; 256],
}

impl Sized0 for dl_holder {
    const NAME: &'static str = "dl_holder";
    const FIELDS: &'static [usize] = &[];
}

/// Tells who holds a lock.
///
/// @param client A client.
/// @param key The lock's name, as for dl_acquire().
/// @param kind DL_KIND_…
/// @param holder_out Receives the holder; its size is to be set before.
/// @param error_out Receives the error of a failure; may be NULL.
/// @return OK; NOT_HELD if nobody holds it; INVALID_ARGUMENT, UNAVAILABLE, SERVER,
/// CONFIG, UNSUPPORTED, CLOSED, FORKED, INTERNAL, PANIC.
///
/// Blocks: for a round trip; up to io_timeout_ms. Threads: any, also at the same
/// time. After fork: FORKED.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn dl_peek(
    client: *mut dl_client,
    key: *const c_char,
    kind: i32,
    holder_out: *mut dl_holder,
    error_out: *mut *mut dl_error,
) -> dl_status {
    // SAFETY: NULL or valid by the contract.
    let client = unsafe { own(client) };
    boundary::call(client.as_ref().map(|client| &**client.shared()), error_out, || {
        // SAFETY: each is NULL or valid by the contract, and checked for NULL.
        unsafe {
            convert::sized_out("holder_out", holder_out)?;
            let client = convert::there("client", &client)?;
            let key = convert::bytes("key", key)?;
            let holder = client.peek(key, kind_of(kind)?)?.ok_or_else(nobody)?;
            let size = (*holder_out).size;
            holder_out.write(filled(size, &holder));
        }
        Ok(())
    })
}

/// Releases a lock by force, whoever holds it. Its token is no longer valid, no
/// guard with it passes, and its holder is told that it was FORCED at its next
/// renewal at the latest. An open guard of the holder's is waited for.
///
/// @param client A client.
/// @param key The lock's name, as for dl_acquire().
/// @param kind DL_KIND_…
/// @param error_out Receives the error of a failure; may be NULL.
/// @return OK: it was held, and is not any more. NOT_HELD: nobody held it.
/// INVALID_ARGUMENT, UNAVAILABLE, SERVER, CONFIG, UNSUPPORTED, CLOSED, FORKED,
/// INTERNAL, PANIC.
///
/// Blocks: for a few round trips; up to io_timeout_ms. Threads: any, also at the
/// same time. After fork: FORKED.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn dl_force_release(
    client: *mut dl_client,
    key: *const c_char,
    kind: i32,
    error_out: *mut *mut dl_error,
) -> dl_status {
    // SAFETY: NULL or valid by the contract.
    let client = unsafe { own(client) };
    boundary::call(client.as_ref().map(|client| &**client.shared()), error_out, || {
        // SAFETY: each is NULL or valid by the contract, and checked for NULL.
        let (client, key) =
            unsafe { (convert::there("client", &client)?, convert::bytes("key", key)?) };
        client.force_release(key, kind_of(kind)?)?.then_some(()).ok_or_else(nobody)
    })
}

fn nobody() -> Error {
    Error::new(Status::NotHeld, "nobody holds it")
}

fn filled(size: usize, holder: &Holder) -> dl_holder {
    let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    dl_holder {
        size,
        token: holder.token,
        remaining_ms: ms(holder.remaining),
        held_ms: ms(holder.held),
        ttl_ms: ms(holder.ttl),
        holds: holder.holds,
        pid: holder.pid,
        owner: text(&holder.owner),
        application: text(&holder.application),
        host: text(&holder.host),
        note: text(&holder.note),
    }
}

/// As much of a text as there is room for, with its NUL.
fn text<const N: usize>(bytes: &[u8]) -> [c_char; N] {
    let mut room = [0; N];
    for (to, from) in room[..N - 1].iter_mut().zip(bytes) {
        *to = *from as c_char;
    }
    room
}
