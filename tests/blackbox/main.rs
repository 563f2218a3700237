//! The black-box suite: one binary, run against every server that
//! DLEASE_TEST_URLS names, and against servers of its own where a test needs
//! other options or breaks things. Nothing in here imitates a server.

#![allow(unreachable_pub, reason = "one binary, with modules for order alone")]
#![allow(unsafe_code, reason = "signals to servers, and the C interface")]
#![allow(clippy::disallowed_types, reason = "tests measure with std's clock")]
#![allow(clippy::disallowed_methods, reason = "tests start threads as users do")]

mod basics;
mod connections;
mod faults;
mod keys;
mod login;
mod loss;
mod ownership;
mod schema;
mod statements;
mod support;
mod time;
mod unknown;
mod waiting;
