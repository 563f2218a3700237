//! Versions.

use std::ffi::c_char;

/// The number of this header's binary interface; dl_abi_version() tells the
/// library's.
pub const DL_ABI_VERSION: u32 = 0;

/// The library's version, such as "0.1.0". Compare with DL_VERSION_STRING.
///
/// @return A static text; never NULL.
///
/// Blocks: no. Threads: any. After fork: works.
#[unsafe(no_mangle)]
pub extern "C" fn dl_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// The number of the library's binary interface. A program, and above all a
/// wrapper that finds the library at run time, compares it with the
/// DL_ABI_VERSION that it was written for.
///
/// @return The number.
///
/// Blocks: no. Threads: any. After fork: works.
#[unsafe(no_mangle)]
pub extern "C" fn dl_abi_version() -> u32 {
    DL_ABI_VERSION
}
