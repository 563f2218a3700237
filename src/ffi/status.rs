//! Statuses.

use std::ffi::c_char;

/// The result of a call: 0 done, above 0 an outcome to expect, below 0 a
/// failure. The numbers are frozen.
pub type dl_status = i32;

/// Done.
pub const DL_STATUS_OK: i32 = 0;
/// One try was made, and someone else has the lock.
pub const DL_STATUS_NOT_ACQUIRED: i32 = 1;
/// The deadline passed while someone else had the lock.
pub const DL_STATUS_TIMED_OUT: i32 = 2;
/// The call was ended by its dl_cancel.
pub const DL_STATUS_CANCELLED: i32 = 3;
/// The lock is not held: lost, taken over, or already released.
pub const DL_STATUS_NOT_HELD: i32 = 4;
/// The version has moved on.
pub const DL_STATUS_CONFLICT: i32 = 5;
/// An argument is outside of what the call takes.
pub const DL_STATUS_INVALID_ARGUMENT: i32 = -1;
/// The server cannot be reached, or cannot serve now.
pub const DL_STATUS_UNAVAILABLE: i32 = -2;
/// The server refused; errno and SQLSTATE are in the error.
pub const DL_STATUS_SERVER: i32 = -3;
/// The client was closed.
pub const DL_STATUS_CLOSED: i32 = -4;
/// The handle was made before a fork, in the parent.
pub const DL_STATUS_FORKED: i32 = -5;
/// Password, rights, schema or server are wrong: trying again cannot help.
pub const DL_STATUS_CONFIG: i32 = -6;
/// This server or kind of lock cannot do what was asked.
pub const DL_STATUS_UNSUPPORTED: i32 = -7;
/// The library is in a state it should never be in; close the client.
pub const DL_STATUS_INTERNAL: i32 = -98;
/// The library panicked; close the client.
pub const DL_STATUS_PANIC: i32 = -99;

/// The name of a status without its prefix: "NOT_HELD" for 4.
///
/// @param status Any number.
/// @return A static text; "UNKNOWN" for a number that is none.
///
/// Blocks: no. Threads: any. After fork: works.
#[unsafe(no_mangle)]
pub extern "C" fn dl_status_name(status: dl_status) -> *const c_char {
    let name = match status {
        DL_STATUS_OK => c"OK",
        DL_STATUS_NOT_ACQUIRED => c"NOT_ACQUIRED",
        DL_STATUS_TIMED_OUT => c"TIMED_OUT",
        DL_STATUS_CANCELLED => c"CANCELLED",
        DL_STATUS_NOT_HELD => c"NOT_HELD",
        DL_STATUS_CONFLICT => c"CONFLICT",
        DL_STATUS_INVALID_ARGUMENT => c"INVALID_ARGUMENT",
        DL_STATUS_UNAVAILABLE => c"UNAVAILABLE",
        DL_STATUS_SERVER => c"SERVER",
        DL_STATUS_CLOSED => c"CLOSED",
        DL_STATUS_FORKED => c"FORKED",
        DL_STATUS_CONFIG => c"CONFIG",
        DL_STATUS_UNSUPPORTED => c"UNSUPPORTED",
        DL_STATUS_INTERNAL => c"INTERNAL",
        DL_STATUS_PANIC => c"PANIC",
        _ => c"UNKNOWN",
    };
    name.as_ptr()
}
