//! Distributed leases on the MySQL or MariaDB that you already run.
//!
//! A [`Client`] acquires [`Lock`]s: rows with an expiry by the server's own
//! clock, and with fencing tokens that only grow. The same crate is the C
//! library `libdlease`, whose header is `dlease.h`.
//!
//! ```no_run
//! use std::time::Duration;
//! use dlease::{AcquireOptions, Client};
//!
//! # fn main() -> dlease::Result<()> {
//! let client = Client::open("mysql://user:password@localhost/app")?;
//! let options = AcquireOptions::new().wait(Duration::from_secs(10));
//! let lock = client.acquire("nightly-report", &options)?;
//! println!("token {}", lock.token());
//! lock.release()?;
//! # Ok(())
//! # }
//! ```

mod call;
mod calls;
mod cancel;
mod client;
mod error;
mod events;
mod ffi;
mod grant;
mod grants;
mod keeper;
mod key;
mod kinds;
mod lock;
mod options;
mod random;
mod resolve;
mod session;
mod shared;
mod sql;
mod stats;
mod sync;
mod sys;
mod url;
mod wait;

pub use cancel::Cancel;
pub use client::{Builder, Client};
pub use error::{Error, Result, Status};
pub use events::{Event, Outcome};
pub use grant::LostCause;
pub use kinds::lease::operate::Holder;
pub use lock::Lock;
pub use options::{AcquireOptions, Kind};
pub use stats::Stats;
