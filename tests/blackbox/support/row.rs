//! What another session sees of a key's row (default prefix and namespace).

use std::time::Duration;

use super::Other;

const NOW_US: &str = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))";

impl Other {
    /// The server's clock, in microseconds since 1970.
    pub fn now_us(&mut self) -> u64 {
        self.row(&format!("SELECT {NOW_US}")).expect("a row")
    }

    /// How long the key's lease still lasts by the server's clock.
    pub fn left(&mut self, key: &str) -> Duration {
        let text = format!("IF(expires_us > {NOW_US}, expires_us - {NOW_US}, 0)");
        Duration::from_micros(self.cell(key, &text))
    }

    /// A number in the key's row: a column, or an expression of columns.
    pub fn cell(&mut self, key: &str, what: &str) -> u64 {
        let text =
            format!("SELECT {what} FROM dl_lock WHERE lock_key = '{key}' AND namespace = ''");
        self.row(&text).expect("a row")
    }

    /// All of the key's row.
    pub fn whole(&mut self, key: &str) -> Vec<Option<Vec<u8>>> {
        let text = format!("SELECT * FROM dl_lock WHERE lock_key = '{key}' AND namespace = ''");
        let row: mysql::Row = self.row(&text).expect("a row");
        row.unwrap().into_iter().map(mysql::from_value).collect()
    }

    /// Changes the key's row, as by hand.
    pub fn set(&mut self, key: &str, what: &str) {
        self.run(&format!("UPDATE dl_lock SET {what} WHERE lock_key = '{key}'"));
    }

    /// Deletes the key's row, as by hand.
    pub fn delete(&mut self, key: &str) {
        self.run(&format!("DELETE FROM dl_lock WHERE lock_key = '{key}'"));
    }
}
