//! Cancelling.

use super::boundary;
use crate::cancel::Cancel;
use crate::error::{Error, Result, Status};
use crate::sys::fork;

/// A token that ends calls from another thread. May be given to any number of
/// calls; once fired it stays fired, and ends those that come later too.
pub struct dl_cancel {
    cancel: Cancel,
    generation: u64,
}

impl dl_cancel {
    /// The token, if it is not the parent's in a forked child.
    pub(super) fn token(&self) -> Result<Cancel> {
        if self.generation == fork::generation() {
            return Ok(self.cancel.clone());
        }
        Err(Error::new(Status::Forked, "the cancel token was made before a fork, in the parent"))
    }
}

/// Makes a token.
///
/// @return The token, to be freed by dl_cancel_free(); NULL only if the
/// library panicked.
///
/// Blocks: no. Threads: any. After fork: works.
#[unsafe(no_mangle)]
pub extern "C" fn dl_cancel_new() -> *mut dl_cancel {
    fork::register();
    boundary::read(std::ptr::null_mut(), || {
        let generation = fork::generation();
        Box::into_raw(Box::new(dl_cancel { cancel: Cancel::new(), generation }))
    })
}

/// Ends every call that carries the token: each returns CANCELLED at once.
/// May be called again, which does nothing.
///
/// @param cancel A token; NULL does nothing.
///
/// Blocks: no. Threads: any, also at the same time. After fork: does nothing
/// in the child for a token of the parent's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dl_cancel_fire(cancel: *const dl_cancel) {
    boundary::read((), || {
        // SAFETY: NULL or valid by the contract.
        if let Some(Ok(token)) = unsafe { cancel.as_ref() }.map(dl_cancel::token) {
            token.fire();
        }
    });
}

/// Frees a token. Calls that carry it go on, and can no longer be ended by it; an
/// acquire that was begun by dl_acquire_async() likewise.
///
/// @param cancel A token, not used by anybody else any more; NULL does nothing.
///
/// Blocks: no. Threads: any. After fork: works.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dl_cancel_free(cancel: *mut dl_cancel) {
    boundary::read((), || {
        if !cancel.is_null() {
            // SAFETY: made by Box::into_raw, and freed once by the contract.
            drop(unsafe { Box::from_raw(cancel) });
        }
    });
}
