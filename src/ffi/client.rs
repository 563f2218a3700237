//! The client.

use std::ffi::c_char;
use std::mem::offset_of;
use std::time::Duration;

use super::boundary;
use super::convert::{self, Sized0};
use super::error::dl_error;
use super::status::dl_status;
use crate::client::{Builder, Client};
use crate::error::{Error, Result};

/// A client of one database: connections, and whatever was acquired through
/// them. One for a process is enough. All calls may be made at the same time
/// from any threads, dl_client_close() apart.
pub struct dl_client {
    pub(super) client: Client,
}

/// Options of a client. Begin with DL_CLIENT_OPTIONS_INIT; zero and NULL mean
/// the default, or what the URL says under the same name.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct dl_client_options {
    /// sizeof(dl_client_options).
    pub size: usize,
    /// The program's name, for people who look at the table; at most 64 bytes.
    pub application: *const c_char,
    /// Keys of different name spaces are different locks; at most 64 bytes;
    /// "" by default. In the URL: namespace.
    pub name_space: *const c_char,
    /// What the tables' names begin with; at most 50 bytes; "dl_" by default.
    pub table_prefix: *const c_char,
    /// How long a connect, and each step of a log-in, may take; 5000.
    pub connect_timeout_ms: u64,
    /// How long one reply is waited for; 5000.
    pub io_timeout_ms: u64,
    /// The TTL of leases that name none, 10 ms to 366 days; 30000.
    pub default_ttl_ms: u64,
    /// The most connections at a time, 1 to 10000; 8.
    pub max_connections: u32,
    /// The most connections that wait for a lock, apart from those, one for each key
    /// that is waited for; 8. Beyond them rows are looked at now and then, order is
    /// not kept, and who waits so may wait for as long as others queue.
    pub max_waiting_connections: u32,
    /// How long a process may serve its own callers before the next process
    /// has its turn; 200.
    pub fairness_ms: u32,
    /// Whether missing tables are made: 0 default (yes), 1 yes, 2 no.
    pub create_schema: i32,
}

impl Sized0 for dl_client_options {
    const NAME: &'static str = "dl_client_options";
    const FIELDS: &'static [usize] = &[
        offset_of!(Self, application),
        offset_of!(Self, name_space),
        offset_of!(Self, table_prefix),
        offset_of!(Self, connect_timeout_ms),
        offset_of!(Self, io_timeout_ms),
        offset_of!(Self, default_ttl_ms),
        offset_of!(Self, max_connections),
        offset_of!(Self, max_waiting_connections),
        offset_of!(Self, fairness_ms),
        offset_of!(Self, create_schema),
    ];
}

/// Opens a client. Talks to no server: a wrong address, password or schema
/// shows at the first call that needs it.
///
/// @param url mysql://user:password@host:port,host2:port2/database?option=value
/// with percent-encoding. Several hosts: the first that can be reached and
/// takes writes. Options: every option of dl_client_options by its name (and
/// namespace; create_schema=yes|no), socket=/path,
/// tls=off|preferred|required|verify_ca|verify_identity (preferred; off on a
/// socket), tls_ca=FILE.
/// @param options Options, which win over the URL's; NULL for the defaults.
/// @param client_out Receives the client, to be closed by dl_client_close().
/// @param error_out Receives the error of a failure; may be NULL.
/// @return OK, INVALID_ARGUMENT, PANIC.
///
/// Blocks: no. Threads: any. After fork: works; a child may open its own.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn dl_client_open(
    url: *const c_char,
    options: *const dl_client_options,
    client_out: *mut *mut dl_client,
    error_out: *mut *mut dl_error,
) -> dl_status {
    boundary::silence_panics();
    boundary::call(None, error_out, || {
        // SAFETY: each is NULL or valid by the contract, and checked for NULL.
        unsafe {
            convert::out("client_out", client_out, std::ptr::null_mut())?;
            let url = convert::utf8("url", convert::bytes("url", url)?)?;
            let client = builder(convert::options(options)?)?.open(url)?;
            client_out.write(Box::into_raw(Box::new(dl_client { client })));
        }
        Ok(())
    })
}

/// # Safety
/// The texts are NULL or NUL-terminated.
unsafe fn builder(given: dl_client_options) -> Result<Builder> {
    let mut builder = Client::builder();
    let options = &mut builder.options;
    // SAFETY: passed on.
    unsafe {
        options.application = convert::optional(given.application).map(<[u8]>::to_vec);
        options.namespace = convert::optional(given.name_space).map(<[u8]>::to_vec);
        if let Some(prefix) = convert::optional(given.table_prefix) {
            options.table_prefix = Some(convert::utf8("table_prefix", prefix)?.to_owned());
        }
    }
    options.connect_timeout = convert::millis(given.connect_timeout_ms);
    options.io_timeout = convert::millis(given.io_timeout_ms);
    options.default_ttl = convert::millis(given.default_ttl_ms);
    options.max_connections = (given.max_connections != 0).then_some(given.max_connections);
    options.max_waiting_connections =
        (given.max_waiting_connections != 0).then_some(given.max_waiting_connections);
    options.fairness = convert::millis(given.fairness_ms.into());
    options.create_schema = match given.create_schema {
        0 => None,
        1 => Some(true),
        2 => Some(false),
        other => return Err(Error::invalid(format!("invalid create_schema: {other}"))),
    };
    Ok(builder)
}

/// A client of the call's own, so that closing may free the handle while the
/// call is still on its way out.
///
/// # Safety
/// `client` is NULL or valid.
pub(super) unsafe fn own(client: *const dl_client) -> Option<Client> {
    // SAFETY: passed on.
    unsafe { client.as_ref() }.map(|client| client.client.clone())
}

/// Makes one round trip to the server.
///
/// @param client A client.
/// @param timeout_ms How long it may take.
/// @param error_out Receives the error of a failure; may be NULL.
/// @return OK; UNAVAILABLE if the server was not reached in time; CONFIG if it
/// does not let us in, is too old, or its tables are not ours; SERVER, CLOSED,
/// FORKED, INVALID_ARGUMENT, INTERNAL, PANIC.
///
/// Blocks: up to timeout_ms. Threads: any, also at the same time. After fork:
/// FORKED.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn dl_client_ping(
    client: *mut dl_client,
    timeout_ms: u64,
    error_out: *mut *mut dl_error,
) -> dl_status {
    // SAFETY: NULL or valid by the contract.
    let client = unsafe { own(client) };
    boundary::call(client.as_ref().map(|client| &**client.shared()), error_out, || {
        convert::there("client", &client)?.ping(Duration::from_millis(timeout_ms))
    })
}

/// Closes a client and frees it: releases what it holds, ends the calls that
/// wait in it with CLOSED, and joins its threads. Acquires that were begun end,
/// too, and events that nobody has taken are dropped. Locks of the client may be
/// freed before or after; from here on they are lost, with the cause
/// DL_LOST_CLOSED.
///
/// @param client A client that no call begins to use any more; NULL does
/// nothing.
///
/// Blocks: up to 2 s. Threads: any, once. After fork: frees the child's copy
/// and touches nothing of the parent's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dl_client_close(client: *mut dl_client) {
    boundary::read((), || {
        if !client.is_null() {
            // SAFETY: made by Box::into_raw, and freed once by the contract.
            let client = unsafe { Box::from_raw(client) };
            client.client.close();
        }
    });
}
