//! The client's own threads that work for those who wait, started when there is
//! work, and ended when there was none for a while.

use std::panic::{self, AssertUnwindSafe};
use std::time::Duration;

use super::attempt::Tried;
use super::{Leases, ended};
use crate::error::{Error, Status};
use crate::key::Key;
use crate::stats::Counter;
use crate::sync::Arc;
use crate::sys::clock::Instant;
use crate::sys::thread;
use crate::wait::{Errand, State};

/// How long a thread stays when there is nothing to do.
const IDLE: Duration = Duration::from_secs(1);

impl Leases {
    /// Starts the threads for which there is work.
    pub(crate) fn muster(self: &Arc<Leases>) {
        let settings = &self.connector.settings;
        let (standers, runners, watcher) = self
            .waiting
            .muster(settings.max_waiting_connections, settings.max_connections.div_ceil(2));
        for _ in 0..standers {
            self.start("dlease-gate", Leases::stand_for_keys, |state| &mut state.standers);
        }
        for _ in 0..runners {
            self.start("dlease-errand", Leases::run_errands, |state| &mut state.runners);
        }
        if watcher {
            self.start("dlease-look", Leases::keep_watch, |state| &mut state.watchers);
        }
    }

    /// Without a thread the work waits for the next muster: whoever waits comes
    /// by at the deadline at the latest.
    fn start(
        self: &Arc<Leases>,
        name: &str,
        body: fn(&Arc<Leases>),
        crew: fn(&mut State) -> &mut crate::wait::Crew,
    ) {
        let leases = Arc::clone(self);
        if thread::start(name, move || body(&leases)).is_err() {
            self.waiting.not_started(crew);
        }
    }

    fn stand_for_keys(self: &Arc<Leases>) {
        let most = self.connector.settings.max_waiting_connections;
        while let Some(place) = self.waiting.next_to_stand(Instant::now().after(IDLE), most) {
            let stand = place.stand;
            let standing = AssertUnwindSafe(|| {
                if let Some((key, session)) = place.bell {
                    let limit = Instant::now().after(self.connector.settings.io_timeout);
                    self.ring(self.calls.begin(limit).as_ref(), &key, session);
                }
                self.stand(&stand);
            });
            if panic::catch_unwind(standing).is_err() {
                self.stats.count(Counter::Panics);
                self.waiting.stood(&stand, Instant::now().after(IDLE));
            }
        }
    }

    fn keep_watch(self: &Arc<Leases>) {
        while panic::catch_unwind(AssertUnwindSafe(|| self.watch())).is_err() {
            self.stats.count(Counter::Panics);
        }
    }

    fn run_errands(self: &Arc<Leases>) {
        while let Some(errand) = self.waiting.next_errand(Instant::now().after(IDLE)) {
            let key = match &errand {
                Errand::Try(key) => Some(key.clone()),
                Errand::Run(_) => None,
            };
            let running = AssertUnwindSafe(|| match errand {
                Errand::Try(key) => self.try_for_head(&key),
                Errand::Run(run) => run(),
            });
            if panic::catch_unwind(running).is_err() {
                self.stats.count(Counter::Panics);
                if let Some(key) = key {
                    self.waiting.tried(&key);
                }
            }
        }
    }

    /// Told to all who wait for the key: it concerns them all.
    pub(super) fn refuse_all(&self, key: &Key, error: &Error) {
        for waiter in self.waiting.all(key) {
            let _ = waiter.deliver(Err(error.clone()));
        }
    }

    /// One attempt for the first in the queue: it has just come, or its row was
    /// seen free.
    fn try_for_head(self: &Arc<Leases>, key: &Key) {
        while let Some(head) = self.waiting.head(key) {
            let begun = self.calls.begin(Instant::now().after(self.connector.settings.io_timeout));
            // Those at the gate come first, unless they let the lease lie.
            let fair = !head.request.unfair && !self.waiting.is_overtaken(key);
            let until = head.call.deadline();
            match self.attempt(begun.as_ref(), until, &head.request, fair, true) {
                Tried::Granted(granted) => {
                    self.serve(&head, granted);
                    break;
                }
                Tried::Failed(error) if error.status() == Status::Config => {
                    self.refuse_all(key, &error);
                    continue;
                }
                Tried::Failed(error) => {
                    let _ = head.deliver(Err(error));
                    self.waiting.told(&head);
                    continue;
                }
                Tried::Ended(status) => {
                    let _ = head.deliver(Err(ended(status)));
                    self.waiting.told(&head);
                }
                Tried::Held(_) | Tried::Queued | Tried::Blocked(_) => {
                    head.saw_held();
                    if head.has_to_wait() {
                        self.stats.count(Counter::Waits);
                    }
                    self.waiting.saw_held(key);
                }
                Tried::Unready(error) => self.waiting.failed(key, error.into_unavailable()),
            }
            break;
        }
        self.waiting.tried(key);
        self.muster();
    }
}
