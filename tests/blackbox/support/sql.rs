//! Another session: a plain SQL client that looks on or interferes.

use mysql::prelude::{FromRow, Queryable};

/// A connection with the test account's rights.
#[derive(Debug)]
pub struct Other(mysql::Conn);

impl Other {
    pub fn open(url: &str) -> Other {
        let plain = url.split('?').next().expect("a URL");
        let options = mysql::Opts::from_url(plain).expect("a URL");
        let options = mysql::OptsBuilder::from_opts(options).prefer_socket(false);
        Other(mysql::Conn::new(options).expect("another session"))
    }

    /// Runs a statement.
    pub fn run(&mut self, text: &str) {
        self.0.query_drop(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    }

    /// Runs a statement that may fail: its error number, 0 if it did not.
    pub fn errno(&mut self, text: &str) -> u16 {
        match self.0.query_drop(text) {
            Ok(()) => 0,
            Err(mysql::Error::MySqlError(error)) => error.code,
            Err(error) => panic!("{text}: {error}"),
        }
    }

    /// The first row of a query.
    pub fn row<T: FromRow>(&mut self, text: &str) -> Option<T> {
        self.0.query_first(text).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    /// All rows of a query.
    pub fn rows<T: FromRow>(&mut self, text: &str) -> Vec<T> {
        self.0.query(text).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    /// The token in the row of a key, if there is one (default prefix and
    /// namespace).
    pub fn token(&mut self, key: &str) -> Option<u64> {
        self.row(&format!("SELECT token FROM dl_lock WHERE lock_key = '{key}' AND namespace = ''"))
    }

    /// True if the key's row says that it is held, by the server's clock.
    pub fn is_held(&mut self, key: &str) -> bool {
        let text = format!("SELECT state FROM dl_locks WHERE lock_key = '{key}'");
        self.row::<String>(&text).is_some_and(|state| state == "held")
    }
}
