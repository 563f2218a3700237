//! What a session is asked and told before it is used. The server's defaults,
//! its init_connect and its replication settings must not matter to any
//! statement: whatever one depends on is set here.

use std::collections::HashMap;

use super::NOW_US;

/// Session variables and what they are set to, where the server has them.
const PINS: &[(&str, &str)] = &[
    // Nothing of ours reads local time, but people's view may be joined to it.
    ("time_zone", "'+00:00'"),
    // init_connect may have frozen the clock.
    ("timestamp", "DEFAULT"),
    // Never ANSI_QUOTES, PIPES_AS_CONCAT, NO_BACKSLASH_ESCAPES, ORACLE; and a
    // value that does not fit is an error instead of being cut.
    ("sql_mode", "'STRICT_ALL_TABLES'"),
    ("autocommit", "1"),
    // CHAIN would open a transaction after each commit, and what the next
    // statement did would be seen by nobody.
    ("completion_type", "'NO_CHAIN'"),
    // DDL or a global read lock: 1205 after a second, and then a retry.
    ("lock_wait_timeout", "1"),
    ("wait_timeout", "28800"),
    ("sql_safe_updates", "0"),
    ("sql_auto_is_null", "0"),
    ("sql_quote_show_create", "1"),
    ("unique_checks", "1"),
    // Limits on statements and idle transactions, MySQL's and MariaDB's.
    ("max_execution_time", "0"),
    ("max_statement_time", "0"),
    ("idle_transaction_timeout", "0"),
    ("idle_write_transaction_timeout", "0"),
    ("idle_readonly_transaction_timeout", "0"),
    // Would answer 1020 where a row has changed since a snapshot.
    ("innodb_snapshot_isolation", "OFF"),
];

/// `begin`: what comes before everything else. The server's init_connect may
/// have opened a transaction, in which a grant would never be committed (and a
/// global completion_type could open the next one, or end the session); and
/// global limits on result sets would cut what is asked next.
pub(crate) const BEGIN: [&str; 2] = [
    "ROLLBACK AND NO CHAIN NO RELEASE",
    "SET SESSION sql_select_limit = 18446744073709551615, SESSION sql_big_selects = 1",
];

/// What else must be known of the server.
const FACTS: &[&str] = &[
    "version",
    "read_only",
    "super_read_only",
    "innodb_read_only",
    "server_uuid",
    "hostname",
    "port",
    "binlog_format",
    "log_bin",
    "innodb_lock_wait_timeout",
];

/// `facts`: the values of all of these variables that the server has.
pub(crate) fn facts() -> String {
    let names = PINS.iter().map(|(name, _)| *name).chain(FACTS.iter().copied());
    let list: Vec<String> = names.map(|name| format!("'{name}'")).collect();
    format!("SHOW VARIABLES WHERE Variable_name IN ({})", list.join(", "))
}

/// `clock`: this session's id and the server's clock.
pub(crate) fn clock() -> String {
    format!("SELECT CONNECTION_ID(), {NOW_US}")
}

/// `uptime`: how long the server runs, in seconds. With its clock it gives the
/// start, and with the start one incarnation of a server is told from the next.
pub(crate) const UPTIME: &str = "SHOW GLOBAL STATUS LIKE 'Uptime'";

/// `pin`: the charset and every variable of the list that the server has.
pub(crate) fn pin(facts: &HashMap<String, String>, row_wait_s: u32) -> String {
    let mut text = "SET NAMES utf8mb4".to_owned();
    for (name, value) in PINS {
        if facts.contains_key(*name) {
            text.push_str(&format!(", SESSION {name} = {value}"));
        }
    }
    text.push_str(&format!(", SESSION innodb_lock_wait_timeout = {row_wait_s}"));
    text
}

/// `isolation`: READ COMMITTED, which locks no gaps. Where the binary log holds
/// statements InnoDB refuses to write under it (1665), and a plain user may not
/// change the format: REPEATABLE READ there, under which every statement of
/// the library is right too, since each goes by the full primary key.
pub(crate) fn isolation(repeatable_read: bool) -> &'static str {
    if repeatable_read {
        "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ WRITE"
    } else {
        "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE"
    }
}

/// `kill`: ends the session `id` of the same account, for which no right is
/// needed. Error 1094 says that it has left the list of sessions, and with it
/// whatever it was doing is committed or rolled back.
pub(crate) fn kill(id: u64) -> String {
    format!("KILL {id}")
}

/// `ping`: a round trip that touches nothing.
pub(crate) const PING: &str = "DO 1";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_server_has_is_pinned() {
        let facts = HashMap::from([("time_zone".to_owned(), "SYSTEM".to_owned())]);
        let expected = "SET NAMES utf8mb4, SESSION time_zone = '+00:00', \
                        SESSION innodb_lock_wait_timeout = 1";
        assert_eq!(pin(&facts, 1), expected);
    }
}
