//! Reads `mysql://user:password@host:port,host2:port2/database?option=value`.
//! The password goes into a [`Secret`] at once, and no error quotes the URL.

use std::fmt;
use std::time::Duration;

use percent_encoding::percent_decode_str;
use url::Url;

use crate::error::{Error, Result};
use crate::options::ClientOptions;

/// A text that is never shown.
#[derive(Clone, Default)]
pub(crate) struct Secret(pub(crate) String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// How much TLS is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tls {
    /// None.
    Off,
    /// If the server offers it.
    Preferred,
    /// Or no connection.
    Required,
    /// And the certificate is signed by a known authority.
    VerifyCa,
    /// And it names the host.
    VerifyIdentity,
}

/// Where the servers are, and how to log in.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    /// Host and port, in the order of the URL; empty with a socket.
    pub(crate) hosts: Vec<(String, u16)>,
    pub(crate) socket: Option<String>,
    pub(crate) user: String,
    pub(crate) password: Secret,
    pub(crate) database: String,
    pub(crate) tls: Tls,
    pub(crate) tls_ca: Option<String>,
}

/// Reads a URL into a target and the client options it carries.
pub(crate) fn parse(text: &str) -> Result<(Target, ClientOptions)> {
    let Some(rest) = text.strip_prefix("mysql://") else {
        return Err(Error::invalid("invalid URL: it does not begin with mysql://"));
    };
    let authority_end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, tail) = rest.split_at(authority_end);
    let (login, hosts) = match authority.rsplit_once('@') {
        Some((login, hosts)) => (Some(login), hosts),
        None => (None, authority),
    };
    // It may be a password with such a character in it that stands there, and
    // is then neither used nor shown.
    if tail.contains('@') {
        let message = "invalid URL: an '@' after the first / ? or # \
                       (in a password, write these as %2F %3F %23; elsewhere '@' as %40)";
        return Err(Error::invalid(message));
    }
    if text.chars().any(|c| c.is_control() || c == ' ') {
        return Err(Error::invalid("invalid URL: a blank or a control character"));
    }
    let mut found = Vec::new();
    for host in hosts.split(',') {
        found.push(parse_one(login, host, tail)?);
    }
    // Every one has the same login and tail; the first stands for all.
    let first = found.first().ok_or_else(|| Error::invalid("invalid URL: no host"))?;
    let database = decode("database", first.path().trim_start_matches('/'))?;
    if database.is_empty() {
        return Err(Error::invalid("invalid URL: it names no database"));
    }
    if first.fragment().is_some() {
        let message = "invalid URL: it has a '#' (in a password, write it as %23)";
        return Err(Error::invalid(message));
    }
    let mut target = Target {
        hosts: Vec::new(),
        socket: None,
        user: decode("user", first.username())?,
        password: Secret(decode("password", first.password().unwrap_or(""))?),
        database,
        tls: Tls::Preferred,
        tls_ca: None,
    };
    let mut options = ClientOptions::default();
    for pair in first.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        set_option(&mut target, &mut options, name, value)?;
    }
    if target.socket.is_none() {
        for url in &found {
            let host = url.host_str().filter(|host| !host.is_empty());
            let host = host.ok_or_else(|| Error::invalid("invalid URL: no host and no socket"))?;
            let host = host.trim_start_matches('[').trim_end_matches(']');
            target.hosts.push((decode("host", host)?, url.port().unwrap_or(3306)));
        }
    }
    Ok((target, options))
}

/// The URL library knows one host; it reads each with the common parts.
fn parse_one(login: Option<&str>, host: &str, tail: &str) -> Result<Url> {
    // Without a host it refuses a login; a name that cannot be one stands in.
    let text = match (login, host) {
        (Some(login), "") => format!("mysql://{login}@socket.invalid{tail}"),
        (Some(login), host) => format!("mysql://{login}@{host}{tail}"),
        (None, host) => format!("mysql://{host}{tail}"),
    };
    let url = Url::parse(&text).map_err(|e| Error::invalid(format!("invalid URL: {e}")))?;
    if host.is_empty() && !tail.contains("socket=") {
        return Err(Error::invalid("invalid URL: no host and no socket"));
    }
    Ok(url)
}

fn decode(what: &str, text: &str) -> Result<String> {
    let decoded = percent_decode_str(text).decode_utf8();
    let decoded =
        decoded.map_err(|_| Error::invalid(format!("invalid URL: {what} is not UTF-8")))?;
    if decoded.contains('\0') {
        return Err(Error::invalid(format!("invalid URL: {what} contains a NUL byte")));
    }
    Ok(decoded.into_owned())
}

fn set_option(
    target: &mut Target,
    options: &mut ClientOptions,
    name: &str,
    value: &str,
) -> Result<()> {
    // Names of keys' namespaces are bytes; all else is text.
    if let "application" | "namespace" = name {
        let bytes: Vec<u8> = percent_decode_str(value).collect();
        match name {
            "namespace" => options.namespace = Some(bytes),
            _ => options.application = Some(bytes),
        }
        return Ok(());
    }
    let value = decode("an option", value)?;
    match name {
        "table_prefix" => options.table_prefix = Some(value),
        "connect_timeout_ms" => options.connect_timeout = Some(millis(name, &value)?),
        "io_timeout_ms" => options.io_timeout = Some(millis(name, &value)?),
        "default_ttl_ms" => options.default_ttl = Some(millis(name, &value)?),
        "fairness_ms" => options.fairness = Some(millis(name, &value)?),
        "max_connections" => options.max_connections = Some(count(name, &value)?),
        "max_waiting_connections" => {
            options.max_waiting_connections = Some(count(name, &value)?);
        }
        "create_schema" => options.create_schema = Some(yes_or_no(name, &value)?),
        "socket" => target.socket = Some(value),
        "tls" => target.tls = tls(&value)?,
        "tls_ca" => target.tls_ca = Some(value),
        _ if name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_') => {
            return Err(Error::invalid(format!("invalid URL: unknown option {name:?}")));
        }
        _ => return Err(Error::invalid("invalid URL: unknown option")),
    }
    Ok(())
}

fn millis(name: &str, value: &str) -> Result<Duration> {
    let number = value.parse().map_err(|_| bad_value(name, "a number of milliseconds"))?;
    Ok(Duration::from_millis(number))
}

fn count(name: &str, value: &str) -> Result<u32> {
    value.parse().map_err(|_| bad_value(name, "a number"))
}

fn yes_or_no(name: &str, value: &str) -> Result<bool> {
    match value {
        "yes" => Ok(true),
        "no" => Ok(false),
        _ => Err(bad_value(name, "yes or no")),
    }
}

fn tls(value: &str) -> Result<Tls> {
    match value {
        "off" => Ok(Tls::Off),
        "preferred" => Ok(Tls::Preferred),
        "required" => Ok(Tls::Required),
        "verify_ca" => Ok(Tls::VerifyCa),
        "verify_identity" => Ok(Tls::VerifyIdentity),
        _ => Err(bad_value("tls", "off, preferred, required, verify_ca or verify_identity")),
    }
}

fn bad_value(name: &str, wanted: &str) -> Error {
    Error::invalid(format!("invalid URL: {name} takes {wanted}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(text: &str) -> Target {
        parse(text).unwrap().0
    }

    #[test]
    fn reads_every_part() {
        let (target, options) = parse(
            "mysql://us%40er:p%3Aw%2F%23@one:1,[::1]:2,three/da%20ta?tls=required&io_timeout_ms=7\
             &create_schema=no&namespace=n%26",
        )
        .unwrap();
        let hosts = [("one".into(), 1), ("::1".into(), 2), ("three".into(), 3306)];
        assert_eq!(target.hosts, hosts);
        assert_eq!(target.user, "us@er");
        assert_eq!(target.password.0, "p:w/#");
        assert_eq!(target.database, "da ta");
        assert_eq!(target.tls, Tls::Required);
        assert_eq!(options.io_timeout, Some(Duration::from_millis(7)));
        assert_eq!(options.create_schema, Some(false));
        assert_eq!(options.namespace.as_deref(), Some(&b"n&"[..]));
    }

    #[test]
    fn options_are_bytes_and_a_plus_is_a_plus() {
        let (target, options) =
            parse("mysql://h/d?namespace=%ff&application=a+b&tls_ca=/a+b%40.pem").unwrap();
        assert_eq!(options.namespace.as_deref(), Some(&b"\xff"[..]));
        assert_eq!(options.application.as_deref(), Some(&b"a+b"[..]));
        assert_eq!(target.tls_ca.as_deref(), Some("/a+b@.pem"));
    }

    #[test]
    fn a_socket_needs_no_host() {
        let target = target("mysql://u:p@/d?socket=/run/my%20sql.sock");
        assert_eq!(target.socket.as_deref(), Some("/run/my sql.sock"));
        assert!(target.hosts.is_empty());
    }

    #[test]
    fn a_password_may_hold_an_at_sign() {
        assert_eq!(target("mysql://u:a@b@h/d").password.0, "a@b");
    }

    #[test]
    fn refuses_what_it_does_not_know_and_tells_no_secret() {
        for bad in [
            "",
            "http://h/d",
            "mysql://",
            "mysql://h",
            "mysql://h/",
            "mysql:///d",
            "mysql://u:topsecret@h/d?nonsense=1",
            "mysql://u:topsecret@h:99999/d",
            "mysql://u:topsecret@h/d?tls=maybe",
            "mysql://u:topsecret@h/d#x",
            "mysql://u:topsecret@h/d?io_timeout_ms=-1",
            "mysql://u:topsecret@/d",
            "mysql://u:topsecret@h, /d",
            "mysql://u:12/topsecret@h/d",
            "mysql://u:12/x?topsecret@h/d",
            "mysql://u:12#topsecret@h/d",
            "mysql://u:p@ss/topsecret@h/d",
            "mysql://u:p@ss/d?topsecret@h/d",
            "mysql://u:p@h/d?Topsecret=1",
            "mysql://u:top\tsecret@h/d",
            "mysql://u:topsecret%ff@h/d",
        ] {
            let error = parse(bad).map(|_| bad).unwrap_err();
            assert!(!format!("{error} {error:?}").contains("topsecret"), "{bad}");
        }
        let target = target("mysql://u:topsecret@h/d");
        assert!(!format!("{target:?}").contains("topsecret"));
    }
}
