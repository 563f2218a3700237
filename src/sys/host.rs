//! Who this process is, for people who look at the table: host and pid.

/// The host's name, at most 255 bytes; "?" if the system does not tell.
pub(crate) fn name() -> Vec<u8> {
    let mut buffer = [0u8; 256];
    // SAFETY: the buffer is writable for its length less one, and the last
    // byte stays 0, so a name cut by the system is terminated all the same.
    let failed = unsafe { libc::gethostname(buffer.as_mut_ptr().cast(), buffer.len() - 1) } != 0;
    let length = buffer.iter().position(|&byte| byte == 0).unwrap_or(0);
    if failed || length == 0 { b"?".to_vec() } else { buffer[..length].to_vec() }
}

/// The process id.
pub(crate) fn pid() -> u32 {
    std::process::id()
}
