//! The black-box suite: one binary, run against every server that
//! DLEASE_TEST_URLS names, and against servers of its own where a test needs
//! other options or breaks things. Nothing in here imitates a server.

#![allow(unreachable_pub, reason = "one binary, with modules for order alone")]
#![allow(unsafe_code, reason = "signals to servers, and the C interface")]
#![allow(clippy::unwrap_used, reason = "a test fails by it")]
#![allow(clippy::disallowed_types, reason = "tests measure with std's clock")]
#![allow(clippy::disallowed_methods, reason = "tests start threads as users do")]

mod asynchronous;
mod basics;
mod blocked;
mod connections;
mod cost;
mod crowded;
mod failed;
mod faults;
mod full_disk;
mod ghosts;
mod guard;
mod hostile;
mod keys;
mod leftovers;
mod login;
mod loss;
mod operators;
mod outages;
mod owners;
mod ownership;
mod queueing;
mod renewing;
mod resolving;
mod schema;
mod silence;
mod stands;
mod statements;
mod steps;
mod support;
mod time;
mod undone;
mod unknown;
mod waiting;
mod zones;
