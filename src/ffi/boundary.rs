//! Where a call from C enters and leaves: no panic passes, every failure
//! becomes a status, and an error object only where one is asked for.

use std::any::Any;
use std::panic::{self, AssertUnwindSafe};

use once_cell::race::OnceBool;

use super::error::dl_error;
use super::status::dl_status;
use crate::error::{Error, Result, Status};
use crate::shared::Shared;

/// Runs `body`, and makes a status of what it returns. Failures (below zero)
/// fill `error_out`; outcomes above zero and success leave it NULL. A panic
/// answers PANIC once, and leaves the client, if there is one, answering
/// INTERNAL.
pub(super) fn call(
    client: Option<&Shared>,
    error_out: *mut *mut dl_error,
    body: impl FnOnce() -> Result<()>,
) -> dl_status {
    if !error_out.is_null() {
        // SAFETY: not NULL, so by the contract a writable pointer.
        unsafe { *error_out = std::ptr::null_mut() };
    }
    let error = match panic::catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => return 0,
        Ok(Err(error)) => error,
        Err(payload) => {
            if let Some(client) = client {
                client.mark_broken();
            }
            Error::new(Status::Panic, format!("the library panicked: {}", text_of(&*payload)))
        }
    };
    let status = error.status().code();
    if status < 0 && !error_out.is_null() {
        // SAFETY: as above.
        unsafe { *error_out = Box::into_raw(Box::new(dl_error::new(&error))) };
    }
    status
}

/// Runs a `body` that cannot fail; a panic gives `otherwise`.
pub(super) fn read<T>(otherwise: T, body: impl FnOnce() -> T) -> T {
    panic::catch_unwind(AssertUnwindSafe(body)).unwrap_or(otherwise)
}

/// Keeps panics from writing to the host's standard error: their text is in
/// the error object. The hook is this library's own, for its copy of std.
pub(super) fn silence_panics() {
    static SILENT: OnceBool = OnceBool::new();
    SILENT.get_or_init(|| {
        panic::set_hook(Box::new(|_| {}));
        true
    });
}

fn text_of(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no text")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_a_status_with_its_text() {
        let mut error = std::ptr::null_mut();
        assert_eq!(call(None, &mut error, || panic!("planted")), Status::Panic.code());
        // SAFETY: filled by the call above, and freed once.
        let message = unsafe { Box::from_raw(error) }.message.clone();
        assert!(message.to_string_lossy().contains("planted"));
        assert_eq!(read(7, || panic!("planted")), 7);
    }

    #[test]
    fn outcomes_have_no_error_object() {
        let mut error = std::ptr::dangling_mut();
        let held = || Err(Error::new(Status::NotAcquired, "held"));
        assert_eq!(call(None, &mut error, held), 1);
        assert!(error.is_null());
    }
}
