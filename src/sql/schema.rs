//! The tables: how they are made, and how one that is found is judged. They
//! are part of the product, and people read them with plain SQL.

use super::{NOW_US, Names};

/// The version of the tables that this library works with.
pub(crate) const VERSION: u32 = 1;

/// The columns of the lock table, in the words of SHOW CREATE TABLE (display
/// widths of integers apart, which servers show or not).
const COLUMNS: &[&str] = &[
    "`namespace` varbinary(64) NOT NULL",
    "`kind` tinyint unsigned NOT NULL",
    "`lock_key` varbinary(255) NOT NULL",
    "`owner` varbinary(255) DEFAULT NULL",
    "`attempt` binary(16) NOT NULL",
    "`holds` varbinary(256) NOT NULL",
    "`token` bigint unsigned NOT NULL",
    "`ttl_us` bigint unsigned NOT NULL",
    "`acquired_us` bigint unsigned NOT NULL",
    "`renewed_us` bigint unsigned NOT NULL",
    "`expires_us` bigint unsigned NOT NULL",
    "`application` varbinary(64) NOT NULL",
    "`host` varbinary(255) NOT NULL",
    "`pid` int unsigned NOT NULL",
    "`note` varbinary(255) NOT NULL",
];

/// The keys. `fence` lets a guard in the caller's own transaction lock a token
/// without touching the row; there is none on the expiry, since it would
/// deadlock those who clean with those who acquire.
const KEYS: &[&str] = &[
    "PRIMARY KEY (`namespace`,`kind`,`lock_key`)",
    "UNIQUE KEY `fence` (`namespace`,`kind`,`lock_key`,`token`)",
];

/// `create_lock`, `create_schema`, `insert_version`: the tables that the
/// library needs. Each does nothing where it was done before, so any number of
/// processes may run all of them at the same time, and one that was cut short
/// is completed by the next. Everything that a server default could change
/// (engine, row format, charset, collation) is named.
pub(crate) fn create(names: &Names) -> [String; 3] {
    let Names { lock, schema, .. } = names;
    let parts: Vec<&str> = COLUMNS.iter().chain(KEYS).copied().collect();
    let table = "ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARACTER SET utf8mb4 \
                 COLLATE utf8mb4_bin";
    [
        format!("CREATE TABLE IF NOT EXISTS {lock} (\n  {}\n) {table}", parts.join(",\n  ")),
        format!(
            "CREATE TABLE IF NOT EXISTS {schema} (\n  `id` tinyint unsigned NOT NULL,\n  \
             `version` int unsigned NOT NULL,\n  PRIMARY KEY (`id`)\n) {table}"
        ),
        insert_version(names),
    ]
}

/// `insert_version`: the version of a schema that has none yet.
pub(crate) fn insert_version(names: &Names) -> String {
    format!("INSERT IGNORE INTO {} (id, version) VALUES (1, {VERSION})", names.schema)
}

/// `create_view`: the view for people. The library does not need it: that it
/// exists already (1050) or may not be made (1142, 1044) is no error.
pub(crate) fn create_view(names: &Names) -> String {
    let Names { lock, locks, .. } = names;
    let now = NOW_US;
    let text = |column: &str| {
        // Text where the bytes are UTF-8: converting and back gives the same.
        format!(
            "IF(CAST(CONVERT({column} USING utf8mb4) AS BINARY) <=> {column}, \
             CONVERT({column} USING utf8mb4), CONCAT('0x', HEX({column})))"
        )
    };
    let (namespace, key, note) = (text("namespace"), text("lock_key"), text("note"));
    let (application, host) = (text("application"), text("host"));
    format!(
        "CREATE ALGORITHM=MERGE SQL SECURITY INVOKER VIEW {locks} AS SELECT \
         {namespace} AS namespace, \
         CASE kind WHEN 0 THEN 'lease' WHEN 1 THEN 'row' ELSE 'named' END AS kind, \
         {key} AS lock_key, \
         CASE WHEN owner IS NULL THEN 'free' WHEN expires_us > {now} THEN 'held' \
         ELSE 'expired' END AS state, \
         IF(owner IS NOT NULL AND expires_us > {now}, \
         CONCAT({application}, '@', {host}, ':', pid), NULL) AS holder, \
         {note} AS note, token, \
         IF(owner IS NOT NULL AND expires_us > {now}, LENGTH(holds) DIV 16, 0) AS holds, \
         IF(owner IS NOT NULL AND expires_us > {now}, \
         ({now} - CAST(acquired_us AS SIGNED)) / 1000000, NULL) AS held_s, \
         IF(owner IS NOT NULL AND expires_us > {now}, \
         (CAST(expires_us AS SIGNED) - {now}) / 1000000, NULL) AS remaining_s \
         FROM {lock}"
    )
}

/// `show_create`: what the lock table is. Unlike information_schema it finds
/// the name by the server's own rules of letter case.
pub(crate) fn show_create(names: &Names) -> String {
    format!("SHOW CREATE TABLE {}", names.lock)
}

/// `version`: the version of the tables found.
pub(crate) fn version(names: &Names) -> String {
    format!("SELECT version FROM {} FORCE INDEX (PRIMARY) WHERE id = 1", names.schema)
}

/// What is wrong with a lock table of this definition, if anything: locks on a
/// table without transactions, with a folding collation or with short columns
/// would be granted twice.
pub(crate) fn judge(definition: &str) -> Result<(), String> {
    let mut found = definition.to_owned();
    for width in ["tinyint(3)", "int(10)", "bigint(20)"] {
        let (name, _) = width.split_once('(').unwrap_or((width, ""));
        found = found.replace(width, name);
    }
    if !found.contains("ENGINE=InnoDB") {
        return Err("its engine is not InnoDB".to_owned());
    }
    for part in COLUMNS.iter().chain(KEYS) {
        if !found.contains(part) {
            return Err(format!("it lacks {}", part.replace('`', "")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_definition_is_right_and_others_are_not() {
        let [lock, ..] = create(&Names::new("d", "dl_"));
        assert_eq!(judge(&lock), Ok(()));
        assert_eq!(judge(&lock.replace("bigint", "bigint(20)")), Ok(()));
        for (from, to) in [
            ("InnoDB", "MyISAM"),
            ("varbinary(255) NOT NULL", "varchar(255) NOT NULL"),
            ("`owner` varbinary(255)", "`owner` varbinary(10)"),
            ("UNIQUE KEY `fence`", "KEY `fence`"),
        ] {
            assert!(judge(&lock.replace(from, to)).is_err(), "{to}");
        }
    }
}
