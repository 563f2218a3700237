//! Opens sessions: finds a server that takes writes, logs in, pins what
//! statements depend on, and judges the tables. Runs in the client's own
//! threads alone: looking up a name, or connecting to a stopped server over a
//! socket file, has no time-out.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use mysql::consts::{CapabilityFlags, StatusFlags};
use mysql::prelude::Queryable;
use mysql::{Conn, DriverError, OptsBuilder, SslOpts};

use mysql_common::packets::HandshakePacket;
use once_cell::race::OnceBool;

use super::failure::{Class, Failure, Refusal};
use super::server::{Clock, Server, is_on};
use super::{Cells, Session, number, rows};
use crate::call::Call;
use crate::error::{Error, Result, Status};
use crate::options::Settings;
use crate::sql::{self, Names};
use crate::sync::Arc;
use crate::sys::clock::Instant;
use crate::sys::fork;
use crate::url::{Target, Tls};

/// After how many seconds of silence the server ends a session that waits: for
/// so long a stopped process may keep the others waiting.
const WAITING_IDLE_S: u32 = 2;
/// How often such a session says something, to be kept: well within that.
pub(crate) const KEEP_UP: Duration = Duration::from_millis(600);

/// What every session of a client is opened with.
#[derive(Debug)]
pub(crate) struct Connector {
    pub(crate) target: Target,
    pub(crate) settings: Settings,
    pub(crate) names: Names,
}

impl Connector {
    /// Opens a session to the first address whose server takes writes.
    pub(crate) fn open(&self) -> Result<Session> {
        let mut first_error = None;
        for address in 0..self.target.hosts.len().max(1) {
            match self.open_at(address) {
                Ok(session) => return Ok(session),
                // Wrong on one server is told at once; it is not for another
                // server to cover up.
                Err(error) if error.status() == Status::Config => return Err(error),
                Err(error) => first_error = first_error.or(Some(error)),
            }
        }
        Err(first_error.unwrap_or_else(|| Error::new(Status::Internal, "no address")))
    }

    /// Opens a session that may keep others waiting, and that the server ends
    /// where nothing is heard of it for a while.
    pub(crate) fn open_for_waiting(&self) -> Result<Session> {
        let mut session = self.open()?;
        let call = Call::new(Instant::now().after(self.settings.connect_timeout));
        let limit = sql::gate::idle_limit(WAITING_IDLE_S);
        session.execute(&call, &limit).map_err(|f| f.refusal().error("cannot wait"))?;
        Ok(session)
    }

    /// Opens a session to one address of the URL, by its number.
    pub(crate) fn open_at(&self, address: usize) -> Result<Session> {
        let what = format!("cannot connect to {}", self.address_name(address));
        let conn = self.log_in(address).map_err(|failure| failure.refusal().error(&what))?;
        let opened = self.meet(conn, address, &what).and_then(|mut session| {
            self.judge_schema(&mut session)?;
            Ok(session)
        });
        // A table that is locked for now is no reason to give up.
        opened.map_err(Error::unavailable_if_retriable)
    }

    /// All addresses as an error names them.
    pub(crate) fn address_names(&self) -> String {
        let names = (0..self.target.hosts.len().max(1)).map(|address| self.address_name(address));
        names.collect::<Vec<String>>().join(", ")
    }

    /// One address as an error names it.
    fn address_name(&self, address: usize) -> String {
        match (&self.target.socket, self.target.hosts.get(address)) {
            (Some(socket), _) => format!("socket {socket}"),
            (None, Some((host, port))) if host.contains(':') => format!("[{host}]:{port}"),
            (None, Some((host, port))) => format!("{host}:{port}"),
            (None, None) => "?".to_owned(),
        }
    }

    fn log_in(&self, address: usize) -> Result<Conn, Failure> {
        let is_v6 = self.target.hosts.get(address).is_some_and(|(host, _)| host.contains(':'));
        let any_v4 = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
        let any_v6 = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), 0);
        if self.target.socket.is_some() {
            return self.log_in_from(address, None);
        }
        if is_v6 {
            return self.log_in_from(address, Some(any_v6));
        }
        // A local address makes the driver try each of a name's addresses of
        // that family; without one it gives up at the first that fails.
        self.log_in_from(address, Some(any_v4)).or_else(|first| match &first {
            Failure::Lost(refusal) if refusal.errno == 0 => {
                self.log_in_from(address, Some(any_v6)).map_err(|second| match second {
                    Failure::Refused(_) => second,
                    Failure::Lost(_) => first,
                })
            }
            _ => Err(first),
        })
    }

    fn log_in_from(&self, address: usize, local: Option<SocketAddr>) -> Result<Conn, Failure> {
        let tls = if self.target.socket.is_some() { Tls::Off } else { self.target.tls };
        let with_tls = (tls != Tls::Off).then(|| self.tls_options(tls));
        match open_conn(self.options(address, local, with_tls)) {
            Err(mysql::Error::DriverError(DriverError::TlsNotSupported))
                if tls == Tls::Preferred =>
            {
                open_conn(self.options(address, local, None))
            }
            result => result,
        }
        .map_err(Failure::from)
    }

    fn options(
        &self,
        address: usize,
        local: Option<SocketAddr>,
        tls: Option<SslOpts>,
    ) -> OptsBuilder {
        let (target, settings) = (&self.target, &self.settings);
        let (host, port) = match target.hosts.get(address) {
            Some((host, port)) => (Some(host.clone()), *port),
            None => (None, 3306),
        };
        let options = OptsBuilder::new()
            .socket(target.socket.clone())
            .ip_or_hostname(host)
            .tcp_port(port)
            .user(Some(target.user.clone()))
            .pass(Some(target.password.0.clone()))
            .db_name(Some(target.database.clone()))
            .ssl_opts(tls)
            .prefer_socket(false)
            .tcp_connect_timeout(Some(settings.connect_timeout))
            .read_timeout(Some(settings.connect_timeout))
            .write_timeout(Some(settings.connect_timeout))
            .tcp_keepalive_time_ms(Some(30_000))
            // Nothing is prepared: nothing piles up on the server.
            .stmt_cache_size(0)
            .max_allowed_packet(Some(1 << 20));
        match local {
            Some(local) => options.bind_address(Some(local)),
            None => options,
        }
    }

    fn tls_options(&self, tls: Tls) -> SslOpts {
        let ca = self.target.tls_ca.as_ref().map(PathBuf::from);
        SslOpts::default()
            .with_root_cert_path(ca)
            .with_danger_accept_invalid_certs(matches!(tls, Tls::Preferred | Tls::Required))
            .with_danger_skip_domain_validation(tls != Tls::VerifyIdentity)
    }

    /// Finds out who the server is, and sets the session up.
    fn meet(&self, mut conn: Conn, address: usize, what: &str) -> Result<Session> {
        let fail = |error: mysql::Error| Failure::from(error).refusal().error(what);
        for text in sql::session::BEGIN {
            conn.query_drop(text).map_err(fail)?;
        }
        let facts = pairs(rows(&mut conn, &sql::session::facts()).map_err(fail)?);
        let asked = Instant::now();
        let uptime = pairs(rows(&mut conn, sql::session::UPTIME).map_err(fail)?);
        let sent = Instant::now();
        let clock = rows(&mut conn, &sql::session::clock()).map_err(fail)?;
        let (id, server_us) = (number(&clock, 0), number(&clock, 1));
        let uptime_s = uptime.values().next().and_then(|text| text.parse().ok()).unwrap_or(0);
        let apart = Instant::now().since(asked);
        let server = Server::from_facts(&facts, server_us, uptime_s, apart, address)?;
        if ["read_only", "super_read_only", "innodb_read_only"].iter().any(|n| is_on(&facts, n)) {
            let message = format!("{what}: the server is read-only");
            return Err(Error::new(Status::Unavailable, message));
        }
        // MariaDB can refuse a locked row at once, which leaves no doubt about
        // the outcome; MySQL's least is a second.
        let row_wait_s = if server.is_mariadb { 0 } else { 1 };
        let statement_log = is_on(&facts, "log_bin")
            && facts.get("binlog_format").is_some_and(|format| format == "STATEMENT");
        let pin = sql::session::pin(&facts, row_wait_s);
        for text in [pin.as_str(), sql::session::isolation(statement_log)] {
            conn.query_drop(text).map_err(fail)?;
        }
        let clock = Clock { read_at: sent, server_us };
        Ok(Session {
            conn: Some(conn),
            generation: fork::generation(),
            opened_at: sent,
            idle_since: sent,
            id,
            server: Arc::new(server),
            clock,
            clock_is_old: false,
            logs_statements: statement_log,
            is_tls: self.target.socket.is_none() && self.target.tls != Tls::Off,
            io_timeout: self.settings.io_timeout,
            timeouts: self.settings.connect_timeout,
            broken: false,
        })
    }

    /// Checks the tables, and makes those that are missing if it may.
    fn judge_schema(&self, session: &mut Session) -> Result<()> {
        let call = Call::new(Instant::now().after(self.settings.connect_timeout));
        let missing = match session.query(&call, &sql::schema::show_create(&self.names)) {
            Ok(rows) => {
                self.judge_definition(&rows)?;
                match session.query(&call, &sql::schema::version(&self.names)) {
                    Ok(rows) if rows.is_empty() => true,
                    Ok(rows) => return self.judge_version(number(&rows, 0)),
                    Err(failure) => self.is_missing(failure)?,
                }
            }
            Err(failure) => self.is_missing(failure)?,
        };
        debug_assert!(missing);
        if !self.settings.create_schema {
            return Err(self.schema_missing("create_schema is off", None));
        }
        for text in sql::schema::create(&self.names) {
            if let Err(failure) = session.execute(&call, &text) {
                let refusal = failure.refusal();
                return Err(match refusal.class() {
                    Class::Config => self.schema_missing(&refusal.message, Some(refusal)),
                    _ => refusal.error("cannot create the tables"),
                });
            }
        }
        if let Err(Failure::Lost(refusal)) =
            session.execute(&call, &sql::schema::create_view(&self.names))
        {
            return Err(refusal.error("cannot create the view"));
        }
        // What was there before may be another's table of the same name.
        let rows = session.query(&call, &sql::schema::show_create(&self.names));
        self.judge_definition(&rows.map_err(|f| f.refusal().error("cannot read the tables"))?)
    }

    /// True if the failure says that a table is not there.
    fn is_missing(&self, failure: Failure) -> Result<bool> {
        let refusal = failure.refusal();
        if refusal.class() == Class::NoTable {
            return Ok(true);
        }
        Err(refusal.error("cannot read the tables"))
    }

    fn judge_definition(&self, rows: &[Cells]) -> Result<()> {
        let text = rows.first().and_then(|row| row.get(1)).and_then(Option::as_deref);
        let text = String::from_utf8_lossy(text.unwrap_or_default());
        let judged = if text.starts_with("CREATE TABLE") {
            sql::schema::judge(&text)
        } else {
            Err("it is not a table".to_owned())
        };
        judged.map_err(|why| {
            let lock = &self.names.lock;
            let message = format!("wrong schema: {lock} is not dlease's table: {why}");
            Error::new(Status::Config, message)
        })
    }

    fn judge_version(&self, found: u64) -> Result<()> {
        if found == u64::from(sql::schema::VERSION) {
            return Ok(());
        }
        let (schema, known) = (&self.names.schema, sql::schema::VERSION);
        let message = format!("wrong schema: {schema} says version {found}, this is {known}");
        Err(Error::new(Status::Config, message))
    }

    fn schema_missing(&self, why: &str, refusal: Option<&Refusal>) -> Error {
        let mut ddl = sql::schema::create(&self.names).join(";\n");
        ddl.push_str(";\n");
        // May be run again, like the rest; the library itself replaces no view.
        let view = sql::schema::create_view(&self.names);
        ddl.push_str(&view.replacen("CREATE ", "CREATE OR REPLACE ", 1));
        let message = format!("schema missing: {why}. To be run by someone who may:\n{ddl};");
        let error = Error::new(Status::Config, message);
        match refusal {
            Some(refusal) => error.with_server(refusal.errno, &refusal.sqlstate),
            None => error,
        }
    }
}

/// Has the driver fill its lazy cells, which it would do in the first connect.
/// Done before there is any thread of ours that a fork could interrupt in it.
pub(crate) fn warm_up() {
    static DONE: OnceBool = OnceBool::new();
    DONE.get_or_init(|| {
        fork::kept_off(|| {
            let none = None::<&[u8]>;
            let greeting = HandshakePacket::new(
                10,
                &b"8.0.22"[..],
                1,
                [0; 8],
                none,
                CapabilityFlags::empty(),
                0,
                StatusFlags::empty(),
                none,
            );
            let versions =
                (greeting.server_version_parsed(), greeting.maria_db_server_version_parsed());
            debug_assert_eq!(versions, (Some((8, 0, 22)), None));
        });
        true
    });
}

/// Opens a connection. The driver unwraps in places; a panic there must not
/// end the thread that callers wait for.
fn open_conn(options: OptsBuilder) -> Result<Conn, mysql::Error> {
    std::panic::catch_unwind(|| Conn::new(options)).unwrap_or_else(|_| {
        Err(mysql::Error::IoError(std::io::Error::other("the driver failed to connect")))
    })
}

/// Name and value rows as a map.
fn pairs(rows: Vec<Cells>) -> HashMap<String, String> {
    let text = |cell: Option<Vec<u8>>| String::from_utf8_lossy(&cell.unwrap_or_default()).into();
    let pair = |row: Cells| {
        let mut cells = row.into_iter();
        (text(cells.next().flatten()), text(cells.next().flatten()))
    };
    rows.into_iter().map(pair).collect()
}
