//! Tables, rights and servers that are not what the library needs: each is
//! told at once with its cause, and none is taken for a lock that is held.

use dlease::{Client, Error, Status};

use crate::support::door::Door;
use crate::support::place::Tables;
use crate::support::{
    Own, Server, each_kind_at_once, each_server, refused_at_once, take, try_it, unique,
};

/// What good tables are spoilt by, and whether also a session that had found
/// them good meets it.
const SPOILT: &[(bool, &str)] = &[
    (true, "RENAME TABLE {lock} TO {locks}_; CREATE VIEW {lock} AS SELECT * FROM {locks}_"),
    (true, "ALTER TABLE {lock} MODIFY owner varbinary(10) NULL"),
    (true, "ALTER TABLE {lock} DROP COLUMN note"),
    (true, "ALTER TABLE {lock} RENAME COLUMN attempt TO tried"),
    (true, "ALTER TABLE {lock} ADD COLUMN site int NOT NULL"),
    // Locks nothing.
    (false, "ALTER TABLE {lock} ENGINE = MyISAM"),
    // Folds letter case; ignores spaces at the end; cuts.
    (false, "ALTER TABLE {lock} MODIFY lock_key varchar(63) COLLATE utf8mb4_general_ci NOT NULL"),
    (false, "ALTER TABLE {lock} MODIFY lock_key varchar(255) COLLATE utf8mb4_bin NOT NULL"),
    (false, "ALTER TABLE {lock} MODIFY lock_key varbinary(64) NOT NULL"),
    (false, "ALTER TABLE {lock} MODIFY namespace varbinary(16) NOT NULL"),
    (false, "DELETE FROM {lock}; ALTER TABLE {lock} MODIFY token int unsigned NOT NULL"),
    (false, "ALTER TABLE {lock} MODIFY expires_us bigint NOT NULL"),
    (false, "ALTER TABLE {lock} DROP PRIMARY KEY, ADD PRIMARY KEY (lock_key)"),
    (false, "ALTER TABLE {lock} DROP KEY fence"),
    (false, "ALTER TABLE {lock} DROP KEY fence, ADD KEY fence (namespace, kind, lock_key, token)"),
    (false, "UPDATE {schema} SET version = 2"),
    (false, "UPDATE {schema} SET version = 0"),
];

/// That both a key with a row and one without are refused, with the table's
/// name in the message.
fn assert_config(client: &Client, tables: &Tables, what: &str) {
    let error = refused_at_once(client, unique("new"));
    assert_eq!(error.status(), Status::Config, "{what}: {error:?}");
    assert!(!error.is_retriable());
    if error.server_errno() == 0 {
        assert!(error.message().contains(&tables.prefix), "{what}: {error}");
    }
}

#[test]
fn a_table_that_is_not_ours_is_told_at_once_and_not_taken_for_a_held_lock() {
    each_server(|server| {
        for (met_by_old, spoil) in SPOILT {
            let tables = Tables::new(server);
            let old = tables.client();
            take(&old, "old").release().unwrap();
            let spoil = spoil.replace("{locks}_", &format!("`{}x`", tables.prefix));
            tables.run(&spoil.split("; ").collect::<Vec<_>>());
            for may_create in [true, false] {
                let new = tables.client_with(|builder| builder.create_schema(may_create));
                assert_config(&new, &tables, &spoil);
            }
            if *met_by_old {
                assert_config(&old, &tables, &spoil);
            }
        }
    });
}

#[test]
fn missing_tables_that_may_not_be_made_are_told_at_once() {
    each_server(|server| {
        let tables = Tables::new(server);
        let client = |yes| tables.client_with(|builder| builder.create_schema(yes));
        let old = client(false);
        for gone in ["DROP TABLE {lock}, {schema}", "DROP TABLE {lock}", "DROP TABLE {schema}"] {
            take(&client(true), "k").release().unwrap();
            take(&old, "k").release().unwrap();
            tables.run(&[gone]);
            assert_config(&client(false), &tables, gone);
            // A session does not look at the version twice.
            if gone != "DROP TABLE {schema}" {
                assert_config(&old, &tables, gone);
            }
        }
        take(&client(true), "k").release().unwrap();
        take(&old, "k").release().unwrap();
    });
}

#[test]
fn columns_and_keys_that_people_add_do_no_harm() {
    each_server(|server| {
        let tables = Tables::new(server);
        let old = tables.client();
        take(&old, "old").release().unwrap();
        tables.run(&[
            "ALTER TABLE {lock} ADD COLUMN site int NOT NULL DEFAULT 7, ADD KEY by_host (host)",
            "ALTER TABLE {lock} COMMENT 'ours'",
        ]);
        for client in [old, tables.client()] {
            let locks = ["old", "new"].map(|key| try_it(&client, key).expect("free"));
            for lock in locks {
                lock.renew().unwrap();
                lock.release().unwrap();
            }
        }
    });
}

#[test]
fn what_the_server_refuses_is_told_at_once_by_its_number() {
    each_server(|server| {
        let tables = Tables::new(server);
        let client = tables.client();
        take(&client, "old").release().unwrap();
        tables.run(&["ALTER TABLE {lock} ADD CONSTRAINT short CHECK (ttl_us <= 30000000)"]);
        for key in ["old", "new"] {
            let too_long =
                tables.client_with(|b| b.default_ttl(std::time::Duration::from_secs(60)));
            let error = refused_at_once(&too_long, key);
            assert_eq!(error.status(), Status::Server, "{error:?}");
            // A check constraint is violated: MySQL's number, MariaDB's.
            assert!([3819, 4025].contains(&error.server_errno()), "{error:?}");
            assert_eq!(error.sqlstate().len(), 5);
            take(&client, key).release().unwrap();
        }
    });
}

#[test]
fn a_missing_right_is_told_at_once_and_once_granted_is_enough() {
    each_kind_at_once(|kind| {
        let own = Own::start(kind, "schema-grants", &[]);
        take(&own.server.client(), "old").release().unwrap();
        let all = ["SELECT", "INSERT", "UPDATE"];
        for missing in all {
            let user = format!("dl_{}", missing.to_lowercase());
            let rights = all.map(|right| if right == missing { "DELETE" } else { right });
            let client = own.account(&user, &rights.join(", ")).client();
            let error = refused_at_once(&client, unique("new"));
            assert_eq!(error.status(), Status::Config, "without {missing}: {error:?}");
            // Denied for the table, or for a column of it.
            assert!([1142, 1143].contains(&error.server_errno()), "{error:?}");
            assert!(error.message().contains(missing), "{error}");
            if missing == "INSERT" {
                take(&client, "old").release().unwrap();
            }
            let who = format!("{user}@'%', {user}@localhost");
            own.root().run(&format!("GRANT {missing} ON dlease.* TO {who}"));
            take(&client, unique("new")).release().unwrap();
        }
    });
}

fn unsupported(server: &Server) -> Error {
    let client = Client::open(&server.url_with("tls=off")).expect("open");
    let error = refused_at_once(&client, "k");
    assert_eq!(error.status(), Status::Config, "{error:?}");
    assert!(error.message().contains("unsupported server"), "{error}");
    error
}

#[test]
fn a_server_that_is_too_old_is_unsupported_whatever_it_calls_itself() {
    each_server(|server| {
        let version: String = server.other().row("SELECT VERSION()").unwrap();
        let old = match version.split_once('.') {
            // Of the same length: 10.11.19-MariaDB becomes 10.05.19-MariaDB.
            Some((major, rest)) if version.contains("MariaDB") => {
                let (_, patch) = rest.split_once('.').expect("three numbers");
                let minor = rest.len() - patch.len() - 1;
                format!("{major:1>2}.{:0>minor$}.{patch}", if minor > 1 { 5 } else { 0 })
            }
            // 9.7.4 becomes 5.7.4.
            Some((_, rest)) => format!("5.{rest}"),
            None => panic!("{version}"),
        };
        let door = Door::that_says(&old, &version, server.port());
        let error = unsupported(&Server { url: server.url_at(&door.address) });
        assert!(error.message().contains(&old), "{error}");
    });
    each_kind_at_once(|kind| {
        // MySQL's server cannot be told to give another version.
        if kind == "mariadb" {
            let start =
                |version| Own::start(kind, "schema-old", &[&format!("--version={version}")]);
            let old = start("5.5.5-10.5.0-MariaDB");
            let error = unsupported(&old.server);
            assert!(error.message().contains("5.5.5-10.5.0-MariaDB"), "{error}");
            drop(old);
            let disguised = start("5.5.5-10.6.0-MariaDB");
            take(&disguised.server.client(), "k").release().unwrap();
        }
    });
}
