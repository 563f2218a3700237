//! The C interface: one file a chapter of the header, in the header's order.
//! Converts, calls the crate's own API, and converts back; holds no policy.
//!
//! The comments on items are the header's, written for those who read that.

#![allow(unsafe_code, reason = "this is the boundary to C")]
#![allow(non_camel_case_types, reason = "the names are C's")]
#![allow(unreachable_pub, reason = "exported by their C names")]
#![allow(clippy::missing_safety_doc, reason = "the header states what C has to keep to")]

mod boundary;
mod convert;

pub mod cancel;
pub mod client;
pub mod error;
pub mod events;
pub mod holding;
pub mod lock;
pub mod operate;
pub mod stats;
pub mod status;
pub mod version;
