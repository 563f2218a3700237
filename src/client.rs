//! The client: one for a process and a database. Opens without a word to the
//! server, lends its sessions to calls, and on closing releases what it holds.

use std::fmt;
use std::os::fd::RawFd;
use std::time::Duration;

use crate::call::Call;
use crate::error::{Result, Status};
use crate::events::Event;
use crate::grant::Grant;
use crate::key::Key;
use crate::kinds::lease::Leases;
use crate::kinds::lease::operate::Holder;
use crate::lock::Lock;
use crate::options::{AcquireOptions, ClientOptions, Kind, SHORTEST_TTL, Wait, check_kind};
use crate::session::connect::{self, Connector};
use crate::shared::Shared;
use crate::sql::Names;
use crate::stats::Stats;
use crate::sync::Arc;
use crate::sys::clock::Instant;
use crate::sys::{fork, host};
use crate::url;
use crate::wait::waiter::Request;

/// A client of one database. Clones are the same client; it is closed when the
/// last one is dropped, or by [`Client::close`].
#[derive(Clone)]
pub struct Client(Arc<Owner>);

/// Closes the client when its last clone goes; locks do not count.
struct Owner(Arc<Shared>);

/// Options of a client; what is not set is taken from the URL, or has its
/// default. Made by [`Client::builder`].
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct Builder {
    pub(crate) options: ClientOptions,
}

impl Builder {
    /// The name of the program, for people; at most 64 bytes.
    pub fn application(mut self, name: impl AsRef<[u8]>) -> Builder {
        self.options.application = Some(name.as_ref().to_vec());
        self
    }

    /// Keys of different namespaces are different locks; at most 64 bytes.
    pub fn namespace(mut self, name: impl AsRef<[u8]>) -> Builder {
        self.options.namespace = Some(name.as_ref().to_vec());
        self
    }

    /// What the tables' names begin with; `dl_` by default.
    pub fn table_prefix(mut self, prefix: impl Into<String>) -> Builder {
        self.options.table_prefix = Some(prefix.into());
        self
    }

    /// How long one connect, and each step of a log-in, may take; 5 s by default.
    pub fn connect_timeout(mut self, limit: Duration) -> Builder {
        self.options.connect_timeout = Some(limit);
        self
    }

    /// How long one reply is waited for; 5 s by default.
    pub fn io_timeout(mut self, limit: Duration) -> Builder {
        self.options.io_timeout = Some(limit);
        self
    }

    /// The TTL of leases that name none; 30 s by default.
    pub fn default_ttl(mut self, ttl: Duration) -> Builder {
        self.options.default_ttl = Some(ttl);
        self
    }

    /// The most connections at a time; 8 by default.
    pub fn max_connections(mut self, count: u32) -> Builder {
        self.options.max_connections = Some(count);
        self
    }

    /// The most connections that wait for a lock, apart from those; 8 by
    /// default: one for each key that is waited for. Beyond them rows are looked at,
    /// order is not kept, and who waits so may wait for as long as others queue.
    pub fn max_waiting_connections(mut self, count: u32) -> Builder {
        self.options.max_waiting_connections = Some(count);
        self
    }

    /// How long a process may serve its own callers before the next process has
    /// its turn; 200 ms by default.
    pub fn fairness(mut self, limit: Duration) -> Builder {
        self.options.fairness = Some(limit);
        self
    }

    /// Whether missing tables are made; yes by default.
    pub fn create_schema(mut self, yes: bool) -> Builder {
        self.options.create_schema = Some(yes);
        self
    }

    /// Opens a client. Talks to no server: a wrong address or password shows
    /// at the first call that needs one.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for a URL or an option that cannot be.
    pub fn open(self, url: &str) -> Result<Client> {
        fork::register();
        connect::warm_up();
        let (target, from_url) = url::parse(url)?;
        let settings = self.options.or(from_url).complete()?;
        let names = Names::new(&target.database, &settings.table_prefix);
        let connector = Arc::new(Connector { target, settings, names });
        let leases = Leases::new(connector, host::name(), host::pid());
        Ok(Client(Arc::new(Owner(Arc::new(Shared::new(leases))))))
    }
}

impl Client {
    /// Options to open a client with.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Opens a client with the URL's options and the defaults.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for a URL that cannot be.
    pub fn open(url: &str) -> Result<Client> {
        Client::builder().open(url)
    }

    /// Makes one round trip to the server, within `timeout`.
    ///
    /// # Errors
    /// UNAVAILABLE if it was not reached in time; CONFIG if it does not let us
    /// in, or its tables are not ours; CLOSED, FORKED.
    pub fn ping(&self, timeout: Duration) -> Result<()> {
        self.shared().check()?;
        let call = self.shared().begin(Instant::now().after(timeout));
        self.shared().leases.ping(call.as_ref())
    }

    /// Makes one try: `None` if someone else has the lock.
    ///
    /// # Errors
    /// As [`Client::acquire`].
    pub fn try_acquire(
        &self,
        key: impl AsRef<[u8]>,
        options: &AcquireOptions,
    ) -> Result<Option<Lock>> {
        let options = options.clone().wait(Duration::ZERO);
        match self.acquire(key, &options) {
            Ok(lock) => Ok(Some(lock)),
            Err(error) if error.status() == Status::NotAcquired => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Acquires a lock, waiting as long as the options say. Blocks until then.
    ///
    /// # Errors
    /// TIMED_OUT or (for a single try) NOT_ACQUIRED if someone else has it;
    /// CANCELLED by its token; UNAVAILABLE if the server was not reached;
    /// SERVER, CONFIG, INVALID_ARGUMENT, UNSUPPORTED, CLOSED, FORKED.
    pub fn acquire(&self, key: impl AsRef<[u8]>, options: &AcquireOptions) -> Result<Lock> {
        let shared = self.shared();
        shared.check()?;
        options.check()?;
        let (request, deadline) = self.request(Key::new(key.as_ref())?, options);
        let call = shared.begin(deadline);
        let call = call.as_ref();
        if let Some(cancel) = &options.cancel {
            cancel.attach(call);
        }
        if let Some(lock) = shared.join(call, &request)? {
            return Ok(lock);
        }
        match shared.leases.acquire(call, request.clone()) {
            Ok(granted) => shared.keep(Grant::new(&request, &granted)),
            // The row has no place for another hold; one of them may be a grant
            // of this client's that was not there before.
            Err(error) if error.status() == Status::Unsupported => {
                shared.join(call, &request)?.ok_or(error)
            }
            Err(error) => Err(error),
        }
    }

    /// Who holds the lock, if somebody does. For people: by the time that it is
    /// read it may be over. Blocks for a round trip, and for the client's
    /// `io_timeout` at most.
    ///
    /// # Errors
    /// INVALID_ARGUMENT, UNAVAILABLE, SERVER, CONFIG, UNSUPPORTED, CLOSED, FORKED.
    pub fn peek(&self, key: impl AsRef<[u8]>, kind: Kind) -> Result<Option<Holder>> {
        self.ask_about(key.as_ref(), kind, Leases::peek)
    }

    /// Releases the lock by force, whoever holds it: its token is no longer valid,
    /// no guard with it passes, and its holder is told that it was
    /// [`Forced`](crate::LostCause::Forced) at its next renewal. False if nobody
    /// held it. A guard that is open is waited for. Blocks for a few round trips,
    /// and for the client's `io_timeout` at most.
    ///
    /// # Errors
    /// As [`Client::peek`].
    pub fn force_release(&self, key: impl AsRef<[u8]>, kind: Kind) -> Result<bool> {
        self.ask_about(key.as_ref(), kind, Leases::force_release)
    }

    fn ask_about<T>(
        &self,
        key: &[u8],
        kind: Kind,
        ask: fn(&Leases, &Arc<Call>, &Key) -> Result<T>,
    ) -> Result<T> {
        let shared = self.shared();
        shared.check()?;
        check_kind(kind)?;
        let key = Key::new(key)?;
        let call = shared.begin(shared.io_deadline());
        ask(&shared.leases, call.as_ref(), &key)
    }

    /// Begins to acquire a lock, and returns at once; [`Client::next_event`]
    /// gives the outcome, with this tag. Waits take no thread.
    ///
    /// # Errors
    /// INVALID_ARGUMENT, UNSUPPORTED, CLOSED, FORKED; all others come as events.
    pub fn acquire_async(
        &self,
        key: impl AsRef<[u8]>,
        options: &AcquireOptions,
        tag: u64,
    ) -> Result<()> {
        self.shared().check()?;
        options.check()?;
        let (request, deadline) = self.request(Key::new(key.as_ref())?, options);
        self.shared().acquire_async(request, deadline, options.cancel.as_ref(), tag);
        Ok(())
    }

    /// The next outcome of an acquire that was begun, waiting for it until
    /// `timeout`: `None` if there was none. From any thread; each event goes to
    /// one of those who wait.
    ///
    /// # Errors
    /// CLOSED once the client is closed and every event has been taken; FORKED.
    pub fn next_event(&self, timeout: Duration) -> Result<Option<Event>> {
        self.shared().check_forked()?;
        self.shared().events.next(Instant::now().after(timeout))
    }

    /// A descriptor that is readable while events wait, for poll and its like:
    /// not to be read from or closed. -1 if the system has none to give, and in
    /// a forked child.
    pub fn event_fd(&self) -> RawFd {
        if self.shared().is_forked() { -1 } else { self.shared().events.descriptor() }
    }

    /// Counters of what this client did, and what it has open now. Does not
    /// block. In a forked child all are 0.
    pub fn stats(&self) -> Stats {
        if self.shared().is_forked() { Stats::default() } else { self.shared().leases.numbers() }
    }

    fn request(&self, key: Key, options: &AcquireOptions) -> (Request, Instant) {
        let settings = &self.shared().leases.connector.settings;
        let renews = !options.manual_renew;
        let max_hold = options.max_hold.filter(|_| renews);
        let ttl = options.ttl.unwrap_or(settings.default_ttl);
        // What is to end is not to be longer from the start.
        let ttl = max_hold.map_or(ttl, |limit| ttl.min(limit.max(SHORTEST_TTL)));
        let deadline = match options.wait {
            Wait::Try => Instant::now().after(settings.io_timeout.min(ttl)),
            Wait::For(limit) => Instant::now().after(limit),
            Wait::Forever => Instant::NEVER,
        };
        let request = Request {
            key,
            owner: options.owner.clone(),
            note: options.note.clone(),
            ttl,
            one_try: options.wait == Wait::Try,
            unfair: options.unfair,
            renews,
            max_hold,
        };
        (request, deadline)
    }

    /// Releases what is held, ends every call with CLOSED, and joins the
    /// client's threads, within 2 s. Locks of this client are lost from then on.
    pub fn close(&self) {
        self.shared().close();
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.0.0
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("target", &self.shared().leases.connector.target).finish()
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.0.close();
        // A lock in an event that nobody took keeps what it is in. In a forked
        // child nothing is touched.
        if !self.0.is_forked() {
            self.0.events.clear();
        }
    }
}
