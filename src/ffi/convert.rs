//! What C passes, checked and made into what the crate takes.

use std::ffi::{CStr, c_char};
use std::time::Duration;

use crate::error::{Error, Result};

/// No structure will ever be larger: a size beyond is an uninitialised one.
const LARGEST: usize = 65_536;

/// A structure that begins with its own size.
pub(super) trait Sized0: Copy {
    /// What the structure is called in errors.
    const NAME: &'static str;
    /// Where each field begins: an older structure ends at one of these.
    const FIELDS: &'static [usize];
}

/// Copies an option structure that may be older or newer than this library:
/// what an older one lacks is zero, and a newer one's unknown tail must be.
///
/// # Safety
/// `given` is NULL or points to a structure of as many readable bytes as its
/// first field, a `size_t`, says.
pub(super) unsafe fn options<T: Sized0>(given: *const T) -> Result<T> {
    // SAFETY: T is a structure of integers and raw pointers; all zero is valid.
    let mut copy: T = unsafe { std::mem::zeroed() };
    if given.is_null() {
        return Ok(copy);
    }
    // SAFETY: the first field is a size_t, readable by the contract.
    let size = unsafe { given.cast::<usize>().read_unaligned() };
    let known = size_of::<T>();
    // A size in the middle of a field would make half a pointer.
    let is_older = size > 0 && T::FIELDS.contains(&size);
    if size > LARGEST || (size < known && !is_older) {
        return Err(Error::invalid(format!("invalid {}: size is {size}", T::NAME)));
    }
    // SAFETY: `size` bytes are readable by the contract, `known` writable.
    unsafe {
        let bytes = given.cast::<u8>();
        bytes.copy_to_nonoverlapping((&raw mut copy).cast(), size.min(known));
        for offset in known..size {
            if *bytes.add(offset) != 0 {
                let text = format!("invalid {}: it asks for what is not known here", T::NAME);
                return Err(Error::invalid(text));
            }
        }
    }
    Ok(copy)
}

/// A text that must be there.
///
/// # Safety
/// `text` is NULL or NUL-terminated.
pub(super) unsafe fn bytes<'a>(what: &str, text: *const c_char) -> Result<&'a [u8]> {
    // SAFETY: passed on.
    unsafe { optional(text) }.ok_or_else(|| Error::invalid(format!("invalid {what}: it is NULL")))
}

/// A text that may be NULL.
///
/// # Safety
/// `text` is NULL or NUL-terminated.
pub(super) unsafe fn optional<'a>(text: *const c_char) -> Option<&'a [u8]> {
    // SAFETY: not NULL, so NUL-terminated by the contract.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_bytes())
}

/// A text that must be UTF-8.
pub(super) fn utf8<'a>(what: &str, bytes: &'a [u8]) -> Result<&'a str> {
    std::str::from_utf8(bytes).map_err(|_| Error::invalid(format!("invalid {what}: not UTF-8")))
}

/// What a pointer of C's points to.
///
/// # Safety
/// `pointer` is NULL or valid for as long as the result is used.
pub(super) unsafe fn handle<'a, T>(what: &str, pointer: *const T) -> Result<&'a T> {
    // SAFETY: passed on.
    unsafe { pointer.as_ref() }.ok_or_else(|| Error::invalid(format!("invalid {what}: it is NULL")))
}

/// What was made of a pointer of C's that must not be NULL.
pub(super) fn there<'a, T>(what: &str, made: &'a Option<T>) -> Result<&'a T> {
    made.as_ref().ok_or_else(|| Error::invalid(format!("invalid {what}: it is NULL")))
}

/// An out-parameter, set to `empty`.
///
/// # Safety
/// `pointer` is NULL or writable.
pub(super) unsafe fn out<T>(what: &str, pointer: *mut T, empty: T) -> Result<()> {
    if pointer.is_null() {
        return Err(Error::invalid(format!("invalid {what}: it is NULL")));
    }
    // SAFETY: not NULL, so writable by the contract.
    unsafe { pointer.write(empty) };
    Ok(())
}

/// A structure that the library fills: its size is checked, the rest set to
/// zero, as much of it as both sides know.
///
/// # Safety
/// `pointer` is NULL or points to a structure of as many writable bytes as its
/// first field, a `size_t`, says.
pub(super) unsafe fn sized_out<T: Sized0>(what: &str, pointer: *mut T) -> Result<usize> {
    if pointer.is_null() {
        return Err(Error::invalid(format!("invalid {what}: it is NULL")));
    }
    // SAFETY: the first field is a size_t, readable by the contract.
    let size = unsafe { pointer.cast::<usize>().read_unaligned() };
    let known = size_of::<T>();
    let is_older = size > 0 && T::FIELDS.contains(&size);
    if size > LARGEST || (size < known && !is_older) {
        return Err(Error::invalid(format!("invalid {}: size is {size}", T::NAME)));
    }
    let writable = size.min(known);
    let first = size_of::<usize>();
    // SAFETY: `writable` bytes are by the contract; zero is valid for all fields.
    unsafe { pointer.cast::<u8>().add(first).write_bytes(0, writable - first) };
    Ok(writable)
}

/// A time to wait, where `DL_WAIT_FOREVER` has no end.
pub(super) fn timeout(given: u64) -> Duration {
    if given == u64::MAX { Duration::MAX } else { Duration::from_millis(given) }
}

/// A duration, where 0 means that none was given.
pub(super) fn millis(given: u64) -> Option<Duration> {
    (given != 0).then(|| Duration::from_millis(given))
}
