//! Waiting for a lock that somebody else holds.

pub(crate) mod backoff;
