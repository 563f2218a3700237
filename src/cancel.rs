//! A token that ends calls from another thread.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::call::Call;
use crate::error::Status;
use crate::sync::{Arc, Mutex, Weak};

/// Ends the acquires that carry it, once fired. Clones are the same token; a
/// fired token stays fired, and may serve any number of calls.
#[derive(Clone, Default)]
pub struct Cancel(Arc<Inner>);

#[derive(Default)]
struct Inner {
    fired: AtomicBool,
    calls: Mutex<Vec<Weak<Call>>>,
}

impl Cancel {
    /// A token that has not been fired.
    pub fn new() -> Cancel {
        Cancel::default()
    }

    /// Ends every call that carries the token, now and in future. Does not
    /// block; may be called from any thread, and again.
    pub fn fire(&self) {
        self.0.fired.store(true, Ordering::Release);
        for call in self.0.calls.lock().drain(..) {
            if let Some(call) = call.upgrade() {
                call.interrupt(Status::Cancelled);
            }
        }
    }

    /// True once the token has been fired.
    pub fn is_fired(&self) -> bool {
        self.0.fired.load(Ordering::Acquire)
    }

    /// Has `call` interrupted when the token is fired, or at once if it was.
    pub(crate) fn attach(&self, call: &Arc<Call>) {
        let mut calls = self.0.calls.lock();
        calls.retain(|other| other.strong_count() > 0);
        calls.push(Arc::downgrade(call));
        drop(calls);
        // Looked at after the push: either `fire` found the call in the list,
        // or it had set the flag before and is seen here.
        if self.is_fired() {
            call.interrupt(Status::Cancelled);
        }
    }
}

impl fmt::Debug for Cancel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cancel").field("fired", &self.is_fired()).finish()
    }
}
