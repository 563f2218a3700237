//! Random numbers from the system: ids that never meet, and jitter.

/// An id of 128 random bits. If the system had none to give, ids could meet
/// and locks with them: that ends the call by a panic, caught at the boundary.
#[allow(clippy::missing_panics_doc, reason = "private, and caught at the boundary")]
pub(crate) fn id() -> [u8; 16] {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).expect("the system has no random numbers");
    bytes
}

/// A number below `bound`, for jitter.
pub(crate) fn below(bound: u64) -> u64 {
    let [a, b, c, d, e, f, g, h, ..] = id();
    u64::from_le_bytes([a, b, c, d, e, f, g, h]) % bound.max(1)
}
