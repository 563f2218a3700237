//! The kinds of lock, one module each.

pub(crate) mod lease;
