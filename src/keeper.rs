//! The two threads that keep what is held: the renewer, which renews leases before
//! they end, and the teller, which tells of those that are lost. The teller talks
//! to no server: a loss is told in time whatever the network does.

use std::panic::{self, AssertUnwindSafe};
use std::time::Duration;

use crate::grant::Grant;
use crate::grants::{ToStart, Which};
use crate::shared::Shared;
use crate::stats::Counter;
use crate::sync::Arc;
use crate::sys::thread;

/// After a panic, before the thread goes on.
const REST: Duration = Duration::from_millis(20);

impl Shared {
    /// Starts the threads that a grant needs. Where one cannot be started, the
    /// next grant tries again; a loss shows in the handle all the same.
    pub(crate) fn start_keepers(self: &Arc<Shared>, to_start: ToStart) {
        if to_start.renewer {
            self.start_keeper(Which::Renewer, "dlease-renew", Shared::renew_until_idle);
        }
        if to_start.teller {
            self.start_keeper(Which::Teller, "dlease-loss", Shared::tell_until_idle);
        }
    }

    fn start_keeper(self: &Arc<Shared>, which: Which, name: &str, body: fn(&Arc<Shared>)) {
        let shared = Arc::clone(self);
        let run = move || {
            while panic::catch_unwind(AssertUnwindSafe(|| body(&shared))).is_err() {
                shared.leases.stats.count(Counter::Panics);
                std::thread::sleep(REST);
            }
        };
        if thread::start(name, run).is_err() {
            self.leases.grants.not_started(which);
        }
    }

    fn renew_until_idle(self: &Arc<Shared>) {
        while let Some(due) = self.leases.grants.next_renewals() {
            self.leases.renew_due(&due);
            for grant in &due {
                self.tell_if_lost(grant);
            }
        }
    }

    fn tell_until_idle(self: &Arc<Shared>) {
        while let Some(lost) = self.leases.grants.next_losses() {
            for grant in &lost {
                self.tell_if_lost(grant);
            }
        }
    }

    /// Tells of a loss, once: it is counted, and those who asked for an event get
    /// it.
    pub(crate) fn tell_if_lost(&self, grant: &Grant) {
        let Some(cause) = grant.lost_cause() else { return };
        if !self.leases.grants.remove(grant) {
            return;
        }
        self.leases.stats.count_loss(cause);
        self.tell_watchers(grant, cause);
        if grant.needs_an_end() {
            self.leases.give_back(grant);
        }
    }
}
