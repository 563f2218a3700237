//! Every SQL statement of the library, as text, and why each is right. One
//! module a kind; nothing outside holds SQL, nothing in here talks to a server.
//!
//! Three rules hold for all of them. Values are written as numbers or as hex
//! literals, so that no sql_mode, charset or quoting can change them. Time is
//! the server's, read once a statement, in UTC ([`NOW_US`]). And no assignment
//! reads a column that the same statement assigns, its own apart: servers and
//! sql_modes differ in whether it would see the old value or the new one.

pub(crate) mod gate;
pub(crate) mod lease;
pub(crate) mod renewal;
pub(crate) mod schema;
pub(crate) mod session;

/// The server's clock in microseconds since 1970, frozen at the statement's
/// start. UTC_TIMESTAMP knows no time zone and no daylight saving time;
/// TIMESTAMPDIFF of two DATETIMEs is plain arithmetic without 2038 in it.
pub(crate) const NOW_US: &str =
    "TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6))";

/// The tables' names, qualified and quoted.
#[derive(Clone, Debug)]
pub(crate) struct Names {
    pub(crate) lock: String,
    pub(crate) locks: String,
    pub(crate) schema: String,
}

impl Names {
    pub(crate) fn new(database: &str, prefix: &str) -> Names {
        let name =
            |table: &str| format!("{}.{}", quoted(database), quoted(&format!("{prefix}{table}")));
        Names { lock: name("lock"), locks: name("locks"), schema: name("schema") }
    }
}

/// An identifier in backticks, which every sql_mode understands.
fn quoted(identifier: &str) -> String {
    format!("`{}`", identifier.replace('`', "``"))
}

/// Bytes as a hex literal: a binary string whatever the sql_mode or charset.
pub(crate) fn hex(bytes: &[u8]) -> String {
    format!("x'{}'", hex_digits(bytes))
}

/// Bytes as lower-case hex digits.
pub(crate) fn hex_digits(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        text.push(DIGITS[usize::from(byte >> 4)].into());
        text.push(DIGITS[usize::from(byte & 15)].into());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_values_cannot_break_out() {
        let names = Names::new("a`b", "p;");
        assert_eq!(names.lock, "`a``b`.`p;lock`");
        assert_eq!(hex(b"a'\\\xff"), "x'61275cff'");
        assert_eq!(hex(b""), "x''");
    }
}
