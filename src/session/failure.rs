//! Sorts what a server or a connection answers, by error number and never by
//! text, into what the library does about it.

use std::io;

use mysql::DriverError;
use mysql_common::proto::codec::error::PacketCodecError;

use crate::error::{Error, Status};

/// Why a statement did not do what it says.
#[derive(Clone, Debug)]
pub(crate) enum Failure {
    /// The server refused it, and it had no effect.
    Refused(Refusal),
    /// No reply, or one that says that the session is over: the statement may
    /// or may not have had its effect.
    Lost(Refusal),
}

/// The server's words, or the connection's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// 0 where no server said it.
    pub(crate) errno: u16,
    pub(crate) sqlstate: String,
    pub(crate) message: String,
    /// The driver's own refusal that people must mend: a certificate, an
    /// authentication method, a file that is not there.
    pub(crate) is_config: bool,
}

/// What to do about a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// A row or table is locked by a transaction for now, or the statement was
    /// the victim of a deadlock or an interruption: again, after a moment.
    Blocked,
    /// The key is there already.
    Duplicate,
    /// The table is not there.
    NoTable,
    /// The server takes no writes: look for one that does.
    ReadOnly,
    /// No place for one more session, or the server is going away: again,
    /// after a moment.
    Crowded,
    /// Wrong password, rights, schema: people must help.
    Config,
    /// Anything else.
    Other,
}

impl Refusal {
    pub(crate) fn class(&self) -> Class {
        match self.errno {
            0 if self.is_config => Class::Config,
            // Lock wait timeout, deadlock, record has changed, NOWAIT, user
            // lock deadlock, interrupted, statement time limits, rolled back
            // by a group, a commit certified against.
            1205 | 1213 | 1020 | 3572 | 3058 | 1317 | 1969 | 3024 | 3100 | 3101 => Class::Blocked,
            1062 => Class::Duplicate,
            1146 => Class::NoTable,
            1290 | 1836 | 3906 => Class::ReadOnly,
            1040 | 1053 | 1135 | 1152 | 1158..=1161 | 1184 | 1203 | 1226 | 3032 => Class::Crowded,
            // Access denied in all its forms, unknown database, host not
            // allowed, plugins, passwords, TLS demanded, tables that are not
            // ours: views, unknown columns, missing keys, values too long.
            1044 | 1045 | 1049 | 1054 | 1103 | 1130 | 1142 | 1143 | 1176 | 1227 | 1251 | 1264
            | 1265 | 1288 | 1300 | 1347 | 1348 | 1364 | 1366 | 1370 | 1406 | 1410 | 1449 | 1471
            | 1524 | 1698 | 1792 | 1820 | 1862 | 3118 | 3159 | 4151 => Class::Config,
            _ => Class::Other,
        }
    }

    /// True if it ended a wait for a named lock as it was to be ended: by its
    /// time, by a KILL QUERY, or by a circle of waiting.
    pub(crate) fn ends_a_wait(&self) -> bool {
        matches!(self.errno, 1317 | 3024 | 1969 | 3058 | 1213 | 1205)
    }

    /// True if it has nothing to do with what was asked for.
    pub(crate) fn is_transient(&self) -> bool {
        self.errno == 0 || matches!(self.class(), Class::ReadOnly | Class::Crowded)
    }

    /// The error for the caller, where `what` could not be done.
    pub(crate) fn error(&self, what: &str) -> Error {
        let status = match self.class() {
            Class::Config | Class::NoTable => Status::Config,
            Class::ReadOnly | Class::Crowded => Status::Unavailable,
            _ if self.errno == 0 => Status::Unavailable,
            _ => Status::Server,
        };
        let error = if self.errno == 0 {
            Error::new(status, format!("{what}: {}", self.message))
        } else {
            let message = format!("{what}: {} (server error {})", self.message, self.errno);
            Error::new(status, message).with_server(self.errno, &self.sqlstate)
        };
        // Disk full and the like pass without anybody touching the client.
        let passes = self.class() == Class::Blocked || matches!(self.errno, 3 | 1021 | 1114);
        if passes { error.retriable() } else { error }
    }
}

impl Failure {
    pub(crate) fn into_refusal(self) -> Refusal {
        match self {
            Failure::Refused(refusal) | Failure::Lost(refusal) => refusal,
        }
    }

    pub(crate) fn refusal(&self) -> &Refusal {
        match self {
            Failure::Refused(refusal) | Failure::Lost(refusal) => refusal,
        }
    }

    /// A killed session has not ended yet.
    pub(crate) fn not_gone() -> Failure {
        Failure::Refused(Refusal {
            errno: 0,
            sqlstate: String::new(),
            message: "a killed session has not ended yet".to_owned(),
            is_config: false,
        })
    }

    /// True if the session can do nothing more.
    pub(crate) fn ends_session(&self) -> bool {
        match self {
            Failure::Lost(_) => true,
            // A server that stopped taking writes has handed its role over; the
            // next connection finds out who has it now.
            Failure::Refused(refusal) => refusal.class() == Class::ReadOnly,
        }
    }
}

impl From<mysql::Error> for Failure {
    fn from(error: mysql::Error) -> Failure {
        match error {
            mysql::Error::MySqlError(e) => {
                let refusal = Refusal {
                    errno: e.code,
                    sqlstate: e.state,
                    message: e.message,
                    is_config: false,
                };
                match refusal.errno {
                    // Server shutdown, error during commit, connection killed
                    // (MariaDB, MySQL), disconnected for inactivity.
                    1053 | 1180 | 1927 | 3169 | 4031 => Failure::Lost(refusal),
                    _ => Failure::Refused(refusal),
                }
            }
            other => Failure::Lost(Refusal {
                errno: 0,
                sqlstate: String::new(),
                message: plain_text(&other),
                is_config: is_config(&other),
            }),
        }
    }
}

/// The driver's text, without its wrapping.
fn plain_text(error: &mysql::Error) -> String {
    match (io_error(error), error) {
        (Some(e), _) if is_timeout(e) => "no reply in time".to_owned(),
        (Some(e), _) => e.to_string(),
        // The server names a method for users that it does not know, too.
        (None, mysql::Error::DriverError(e @ DriverError::UnknownAuthPlugin(_))) => {
            format!("{e} (or there is no such user)")
        }
        // The address is said already.
        (None, mysql::Error::DriverError(DriverError::CouldNotConnect(Some((_, why, _))))) => {
            why.clone()
        }
        (None, mysql::Error::DriverError(e)) => e.to_string(),
        (None, other) => other.to_string(),
    }
}

fn is_config(error: &mysql::Error) -> bool {
    match (io_error(error), error) {
        // rustls' refusal of a certificate; a file that cannot be read.
        (Some(e), _) => matches!(
            e.kind(),
            io::ErrorKind::InvalidData | io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied
        ),
        (None, mysql::Error::TlsError(_)) => true,
        (None, mysql::Error::DriverError(e)) => matches!(
            e,
            DriverError::TlsNotSupported
                | DriverError::UnknownAuthPlugin(_)
                | DriverError::OldMysqlPasswordDisabled
                | DriverError::CleartextPluginDisabled
        ),
        _ => false,
    }
}

/// The socket's error, where the driver wraps one.
fn io_error(error: &mysql::Error) -> Option<&io::Error> {
    match error {
        mysql::Error::IoError(e) | mysql::Error::CodecError(PacketCodecError::Io(e)) => Some(e),
        _ => None,
    }
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(errno: u16) -> Refusal {
        Refusal { errno, sqlstate: "HY000".into(), message: "no".into(), is_config: false }
    }

    #[test]
    fn errors_are_told_apart_by_number() {
        assert_eq!(refusal(1205).class(), Class::Blocked);
        assert_eq!(refusal(1045).error("x").status(), Status::Config);
        assert_eq!(refusal(1040).error("x").status(), Status::Unavailable);
        assert_eq!(refusal(1114).error("x").status(), Status::Server);
        assert!(refusal(1114).error("x").is_retriable());
        assert_eq!(refusal(1064).error("x").server_errno(), 1064);
        assert_eq!(refusal(0).error("x").status(), Status::Unavailable);
    }
}
