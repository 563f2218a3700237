//! The names of databases and tables: any that the server takes, and one table
//! under each.

use dlease::{Client, Status};

use crate::support::place::{Database, Tables};
use crate::support::{
    Own, each_kind_at_once, each_server, refused_at_once, status, take, try_it, unique,
};

#[test]
fn names_of_databases_and_prefixes_may_need_quotes() {
    each_server(|server| {
        let dash = unique("dlease_a");
        let names = [
            format!("{dash}-b c"),
            format!("{dash}.select;"),
            format!("{dash}`quoted'\"\\"),
            format!("{dash}/%2F?#@"),
            format!("{dash}schlöß漢"),
        ];
        for name in &names {
            let database = Database::make(server, name);
            let server = &database.server;
            let client = server.client_with(|builder| builder.table_prefix("a `b\"-"));
            let lock = try_it(&client, "k").unwrap_or_else(|| panic!("{name}"));
            assert!(try_it(&client, "k").is_none());
            lock.renew().unwrap();
            lock.release().unwrap();
            let mut other = server.other();
            let text = "SELECT state FROM `a ``b\"-locks` WHERE lock_key = 'k'";
            assert_eq!(other.row::<String>(text).as_deref(), Some("free"), "{name}");
        }
        // No server has such names; it is told, not cut.
        let client = server.in_database("dlease_😀").client();
        assert_eq!(refused_at_once(&client, "k").status(), Status::Config);
        // The longest prefix, and one byte more.
        let tables = Tables { server: server.clone(), prefix: format!("{:_<50}", unique("p")) };
        assert!(try_it(&tables.client(), "k").is_some());
        let long = Client::builder().table_prefix("p".repeat(51)).open(&server.url);
        assert_eq!(status(long), Status::InvalidArgument);
    });
}

#[test]
fn letter_case_of_table_names_follows_the_server() {
    each_server(|server| {
        let mut other = server.other();
        let folds: u8 = other.row("SELECT @@lower_case_table_names").unwrap();
        assert_eq!(folds, 0, "DLEASE_TEST_URLS: a server on Linux with its defaults is needed");
        let lower = Tables::new(server);
        let upper = Tables { server: server.clone(), prefix: lower.prefix.to_uppercase() };
        let (one, two) = (lower.client(), upper.client());
        let _first = take(&one, "k");
        assert!(try_it(&two, "k").is_some(), "two tables");
    });
    each_kind_at_once(|kind| {
        let own = Own::start(kind, "schema-case", &["--lower-case-table-names=1"]);
        own.root().run("CREATE DATABASE `select`");
        own.root().run("GRANT ALL ON `select`.* TO dl@'%', dl@localhost");
        for (server, made_by, found_by) in [
            (own.server.clone(), "DL_", "dl_"),
            (own.server.clone(), "low_", "LOW_"),
            (own.server.in_database("select"), "DL_", "dl_"),
        ] {
            let client = |prefix| server.client_with(|builder| builder.table_prefix(prefix));
            let (one, two) = (client(made_by), client(found_by));
            let lock = take(&one, "k");
            assert!(try_it(&two, "k").is_none(), "one table under two spellings");
            lock.release().unwrap();
            assert!(try_it(&two, "k").is_some());
            let text = "SELECT COUNT(*) FROM information_schema.tables \
                        WHERE table_schema = DATABASE() AND table_name LIKE '%\\_lock'";
            let count: u32 = server.other().row(text).unwrap();
            assert_eq!(count, if made_by == "low_" { 2 } else { 1 });
        }
        let spoken = own.server.client();
        let shouted = own.server.in_database("DLEASE").client();
        let _lock = take(&spoken, "k");
        assert!(try_it(&shouted, "k").is_none(), "one database under two spellings");
    });
}
