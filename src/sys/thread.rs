//! Starts the library's own threads.

use std::io;
use std::thread::{Builder, JoinHandle};

use super::signals;

/// Starts a thread with every signal blocked: the host's handlers run in the
/// host's threads, and a broken connection raises no SIGPIPE in ours.
pub(crate) fn start<F>(name: &str, run: F) -> io::Result<JoinHandle<()>>
where
    F: FnOnce() + Send + 'static,
{
    let builder = Builder::new().name(name.to_owned());
    signals::all_blocked(|| builder.spawn(run))
}
