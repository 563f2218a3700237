//! Tables and databases of a test's own on a shared server, gone with it
//! unless it fails: what it left may tell why.

use dlease::{Builder, Client};

use super::{Server, unique};

/// Tables under a prefix that no other test uses. Made by the first client
/// that may; dropped with this.
#[derive(Debug)]
pub struct Tables {
    pub server: Server,
    pub prefix: String,
}

impl Tables {
    pub fn new(server: &Server) -> Tables {
        Tables { server: server.clone(), prefix: format!("{}_", unique("t").replace('-', "_")) }
    }

    pub fn client(&self) -> Client {
        self.client_with(|builder| builder)
    }

    pub fn client_with(&self, options: impl FnOnce(Builder) -> Builder) -> Client {
        self.server.client_with(|builder| options(builder.table_prefix(&self.prefix)))
    }

    /// Runs statements in which `{lock}`, `{locks}` and `{schema}` stand for
    /// the tables' names.
    pub fn run(&self, statements: &[&str]) {
        let mut other = self.server.other();
        for text in statements {
            other.run(&self.named(text));
        }
    }

    /// The text with the tables' names in it.
    pub fn named(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for table in ["lock", "locks", "schema"] {
            text = text.replace(&format!("{{{table}}}"), &format!("`{}{table}`", self.prefix));
        }
        text
    }

    /// The names of the tables and views that there are.
    pub fn found(&self) -> Vec<String> {
        let pattern = self.prefix.replace('_', "\\_");
        self.server.other().rows(&format!("SHOW TABLES LIKE '{pattern}%'"))
    }
}

impl Drop for Tables {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        let mut other = self.server.other();
        for name in self.found() {
            // Each may be the one or the other.
            for text in [format!("DROP VIEW `{name}`"), format!("DROP TABLE `{name}`")] {
                other.errno(&text);
            }
        }
    }
}

/// A database that the test account may make (`dlease_…`); dropped with this.
#[derive(Debug)]
pub struct Database {
    pub server: Server,
    name: String,
}

impl Database {
    pub fn make(server: &Server, name: &str) -> Database {
        let (mut other, quoted) = (server.other(), name.replace('`', "``"));
        for text in ["DROP DATABASE IF EXISTS", "CREATE DATABASE"] {
            other.run(&format!("{text} `{quoted}`"));
        }
        Database { server: server.in_database(name), name: name.to_owned() }
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        let mut other = self.server.other();
        other.run(&format!("DROP DATABASE `{}`", self.name.replace('`', "``")));
    }
}
