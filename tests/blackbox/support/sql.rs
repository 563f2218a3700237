//! Another session: a plain SQL client that looks on or interferes.

use std::time::Duration;

use mysql::prelude::{FromRow, Queryable};

/// A connection with the test account's rights.
#[derive(Debug)]
pub struct Other(mysql::Conn);

impl Other {
    pub fn open(url: &str) -> Other {
        Other::try_open(url).expect("another session")
    }

    /// The same, where the server may refuse.
    pub fn try_open(url: &str) -> Result<Other, mysql::Error> {
        let plain = url.split('?').next().expect("a URL");
        let options = mysql::Opts::from_url(plain).expect("a URL");
        let options = mysql::OptsBuilder::from_opts(options).prefer_socket(false);
        mysql::Conn::new(options).map(Other)
    }

    /// root, over the server's socket file.
    pub fn root(socket: &str, password: &str) -> Other {
        let options = mysql::OptsBuilder::new()
            .user(Some("root"))
            .pass(Some(password))
            .socket(Some(socket))
            .db_name(Some("dlease"));
        Other(mysql::Conn::new(options).expect("root's session"))
    }

    /// Runs a statement.
    pub fn run(&mut self, text: &str) {
        self.0.query_drop(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    }

    /// Runs a statement: how many rows it changed.
    pub fn changed(&mut self, text: &str) -> u64 {
        self.run(text);
        self.0.affected_rows()
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

    /// The same of a query that may fail.
    pub fn try_row<T: FromRow>(&mut self, text: &str) -> Result<Option<T>, mysql::Error> {
        self.0.query_first(text)
    }

    /// All rows of a query.
    pub fn rows<T: FromRow>(&mut self, text: &str) -> Vec<T> {
        self.0.query(text).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    /// How many statements others sent to the server in `time`.
    pub fn questions_in(&mut self, time: Duration) -> u64 {
        let mut count =
            || self.row::<(String, u64)>("SHOW GLOBAL STATUS LIKE 'Questions'").expect("a row").1;
        let before = count();
        std::thread::sleep(time);
        count() - before - 1
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

    /// Locks the key's row for as long as the transaction lasts, and no other
    /// row, as it would if it did not give the whole primary key. The error
    /// number, 0 if it is locked.
    pub fn lock_row(&mut self, key: &str) -> u16 {
        let it = format!("namespace = '' AND kind = 0 AND lock_key = '{key}'");
        self.errno(&format!("SELECT token FROM dl_lock WHERE {it} FOR UPDATE"))
    }

    /// The server's number for this session.
    pub fn id(&mut self) -> u64 {
        self.row("SELECT CONNECTION_ID()").expect("a row")
    }

    /// The sessions of this account (of all, for root).
    pub fn sessions(&mut self) -> Vec<Session> {
        let rows: Vec<mysql::Row> = self.rows("SHOW FULL PROCESSLIST");
        let port = |host: String| host.rsplit_once(':').and_then(|(_, p)| p.parse().ok());
        let session = |mut row: mysql::Row| Session {
            id: row.take("Id").expect("a number"),
            port: row.take("Host").and_then(port).unwrap_or(0),
            command: row.take("Command").expect("a command"),
            statement: row.take::<Option<String>, _>("Info").flatten().unwrap_or_default(),
        };
        rows.into_iter().map(session).collect()
    }

    /// The sessions that a proxy has open at this server.
    pub fn sessions_of(&mut self, proxy: &super::proxy::Proxy) -> Vec<Session> {
        let ports = proxy.ports();
        self.sessions().into_iter().filter(|session| ports.contains(&session.port)).collect()
    }
}

/// A line of the process list.
#[derive(Clone, Debug)]
pub struct Session {
    pub id: u64,
    /// Of its client's end; 0 if it has none.
    pub port: u16,
    pub command: String,
    pub statement: String,
}
