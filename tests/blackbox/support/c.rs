//! The C interface, for what Rust's cannot say: a handle that outlives its
//! release. As in include/dlease.h.

use std::ffi::{CString, c_char};
use std::{panic, ptr};

/// Opaque.
#[repr(C)]
struct Client([u8; 0]);
#[repr(C)]
struct Handle([u8; 0]);
#[repr(C)]
struct Error([u8; 0]);

#[repr(C)]
struct AcquireOptions {
    size: usize,
    wait_ms: u64,
    ttl_ms: u64,
    max_hold_ms: u64,
    owner: *const c_char,
    note: *const c_char,
    cancel: *const u8,
    kind: i32,
    flags: u32,
}

unsafe extern "C" {
    fn dl_client_open(
        url: *const c_char,
        options: *const u8,
        client_out: *mut *mut Client,
        error_out: *mut *mut Error,
    ) -> i32;
    fn dl_client_close(client: *mut Client);
    fn dl_acquire(
        client: *mut Client,
        key: *const c_char,
        options: *const AcquireOptions,
        lock_out: *mut *mut Handle,
        error_out: *mut *mut Error,
    ) -> i32;
    fn dl_renew(lock: *mut Handle, ttl_ms: u64, error_out: *mut *mut Error) -> i32;
    fn dl_release(lock: *mut Handle, error_out: *mut *mut Error) -> i32;
    fn dl_lock_free(lock: *mut Handle);
    fn dl_lock_state(lock: *const Handle) -> i32;
    fn dl_lock_token(lock: *const Handle) -> u64;
}

pub const OK: i32 = 0;
pub const NOT_ACQUIRED: i32 = 1;
pub const TIMED_OUT: i32 = 2;
pub const NOT_HELD: i32 = 4;
pub const INVALID_ARGUMENT: i32 = -1;
pub const UNAVAILABLE: i32 = -2;

/// A client of the C interface.
#[derive(Debug)]
pub struct CClient(*mut Client);

impl CClient {
    pub fn open(url: &str) -> CClient {
        let url = CString::new(url).expect("no NUL");
        let mut client = ptr::null_mut();
        // The C interface silences panics, which here would be the tests'.
        let hook = panic::take_hook();
        // SAFETY: a text, no options, a place for the client, and none for the error.
        let status =
            unsafe { dl_client_open(url.as_ptr(), ptr::null(), &mut client, ptr::null_mut()) };
        panic::set_hook(hook);
        assert_eq!(status, OK);
        CClient(client)
    }

    /// Acquires: the lock, or the status. `ttl_ms` 0 is the default.
    pub fn acquire(
        &self,
        key: &str,
        owner: Option<&str>,
        wait_ms: u64,
        ttl_ms: u64,
    ) -> Result<CLock, i32> {
        let key = CString::new(key).expect("no NUL");
        let owner = owner.map(|text| CString::new(text).expect("no NUL"));
        let options = AcquireOptions {
            size: size_of::<AcquireOptions>(),
            wait_ms,
            ttl_ms,
            max_hold_ms: 0,
            owner: owner.as_ref().map_or(ptr::null(), |text| text.as_ptr()),
            note: ptr::null(),
            cancel: ptr::null(),
            kind: 0,
            // A lease of a given length is not renewed by the library.
            flags: u32::from(ttl_ms != 0),
        };
        let mut lock = ptr::null_mut();
        // SAFETY: the client is open; texts and options outlive the call.
        let status =
            unsafe { dl_acquire(self.0, key.as_ptr(), &options, &mut lock, ptr::null_mut()) };
        assert_eq!(status == OK, !lock.is_null(), "an output is written on success alone");
        if status == OK { Ok(CLock(lock)) } else { Err(status) }
    }
}

impl Drop for CClient {
    fn drop(&mut self) {
        // SAFETY: opened by `open`, closed once.
        unsafe { dl_client_close(self.0) };
    }
}

/// A lock of the C interface.
#[derive(Debug)]
pub struct CLock(*mut Handle);

impl CLock {
    /// What a failed acquire leaves in the caller's variable.
    pub fn null() -> CLock {
        CLock(ptr::null_mut())
    }

    pub fn renew(&self, ttl_ms: u64) -> i32 {
        // SAFETY: valid until it is dropped, or NULL.
        unsafe { dl_renew(self.0, ttl_ms, ptr::null_mut()) }
    }

    pub fn release(&self) -> i32 {
        // SAFETY: as above.
        unsafe { dl_release(self.0, ptr::null_mut()) }
    }

    pub fn state(&self) -> i32 {
        // SAFETY: as above.
        unsafe { dl_lock_state(self.0) }
    }

    pub fn token(&self) -> u64 {
        // SAFETY: as above.
        unsafe { dl_lock_token(self.0) }
    }
}

impl Drop for CLock {
    fn drop(&mut self) {
        // SAFETY: valid or NULL, and freed once.
        unsafe { dl_lock_free(self.0) };
    }
}
