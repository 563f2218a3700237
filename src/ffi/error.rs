//! Errors.

use std::ffi::{CString, c_char};

use super::boundary;
use super::status::dl_status;
use crate::error::{Error, Status};

/// What went wrong in one call. Belongs to the caller, who frees it by
/// dl_error_free(); no later call changes it.
pub struct dl_error {
    status: dl_status,
    pub(super) message: CString,
    server_errno: u32,
    sqlstate: CString,
    is_retriable: bool,
}

impl dl_error {
    pub(super) fn new(error: &Error) -> dl_error {
        let text = |text: &str| CString::new(text.replace('\0', "\\0")).unwrap_or_default();
        dl_error {
            status: error.status().code(),
            message: text(error.message()),
            server_errno: error.server_errno().into(),
            sqlstate: text(error.sqlstate()),
            is_retriable: error.is_retriable(),
        }
    }
}

/// The status that the failed call returned.
///
/// @param error An error; NULL gives INVALID_ARGUMENT.
/// @return The status, below zero.
///
/// Blocks: no. Threads: any, also at the same time. After fork: works.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dl_error_status(error: *const dl_error) -> dl_status {
    // SAFETY: NULL or valid by the contract.
    let error = unsafe { error.as_ref() };
    error.map_or(Status::InvalidArgument.code(), |error| error.status)
}

/// What happened, in English, for people and logs. Never holds a password.
/// The wording may change with any version.
///
/// @param error An error; NULL gives "".
/// @return A text that lives as long as the error.
///
/// Blocks: no. Threads: any, also at the same time. After fork: works.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dl_error_message(error: *const dl_error) -> *const c_char {
    // SAFETY: NULL or valid by the contract.
    let error = unsafe { error.as_ref() };
    error.map_or(c"".as_ptr(), |error| error.message.as_ptr())
}

/// The server's error number.
///
/// @param error An error; NULL gives 0.
/// @return The number, 0 if the server sent none.
///
/// Blocks: no. Threads: any, also at the same time. After fork: works.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dl_error_server_errno(error: *const dl_error) -> u32 {
    // SAFETY: NULL or valid by the contract.
    let error = unsafe { error.as_ref() };
    error.map_or(0, |error| error.server_errno)
}

/// The server's SQLSTATE, five characters.
///
/// @param error An error; NULL gives "".
/// @return A text that lives as long as the error, "" if the server sent none.
///
/// Blocks: no. Threads: any, also at the same time. After fork: works.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dl_error_sqlstate(error: *const dl_error) -> *const c_char {
    // SAFETY: NULL or valid by the contract.
    let error = unsafe { error.as_ref() };
    error.map_or(c"".as_ptr(), |error| error.sqlstate.as_ptr())
}

/// Whether the same call may succeed later without anybody's help.
///
/// @param error An error; NULL gives 0.
/// @return 1 if it may, else 0.
///
/// Blocks: no. Threads: any, also at the same time. After fork: works.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dl_error_is_retriable(error: *const dl_error) -> i32 {
    // SAFETY: NULL or valid by the contract.
    let error = unsafe { error.as_ref() };
    error.map_or(0, |error| error.is_retriable.into())
}

/// Frees an error.
///
/// @param error An error, not used by anybody any more; NULL does nothing.
///
/// Blocks: no. Threads: any. After fork: works.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dl_error_free(error: *mut dl_error) {
    boundary::read((), || {
        if !error.is_null() {
            // SAFETY: made by Box::into_raw, and freed once by the contract.
            drop(unsafe { Box::from_raw(error) });
        }
    });
}
