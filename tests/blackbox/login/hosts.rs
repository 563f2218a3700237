//! Where the server is: addresses that lead nowhere, servers that are down for
//! now or take no writes, and several to choose from.

use std::net::TcpListener;
use std::thread;

use dlease::{AcquireOptions, Client, Error, Status};

use super::assert_hidden;
use crate::support::server::percent_encoded;
use crate::support::{Own, each_kind_at_once, each_server, ms, take, timed, try_it, unique};

/// The error of an acquire without a server: of one try, within its io_timeout;
/// of a wait, at its end and not before.
fn assert_unavailable(url: &str, address: &str) {
    let limits = |b: dlease::Builder| b.connect_timeout(ms(300)).io_timeout(ms(300));
    let client = limits(Client::builder()).open(url).expect("open");
    for wait in [0, 400] {
        let options = AcquireOptions::new().wait(ms(wait));
        let (result, took) = timed(|| client.acquire("k", &options));
        let error: Error = result.expect_err(address);
        assert_eq!(error.status(), Status::Unavailable, "{error:?}");
        assert!(error.is_retriable());
        assert!(error.message().contains(address), "{address}: {error}");
        assert!(took >= ms(wait) && took < ms(2_000), "{address}: {took:?}");
        assert_hidden("topsecret", &[&error, &client]);
    }
}

#[test]
fn an_address_that_leads_nowhere_is_named_in_time_and_without_the_password() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = silent.local_addr().unwrap().to_string();
    for address in ["127.0.0.1:1", "name.invalid:3307", "[::1]:1", &silent] {
        // An IPv6 address has its brackets only in the URL.
        let named = address.trim_start_matches('[').split(']').next().unwrap();
        assert_unavailable(&format!("mysql://u:topsecret@{address}/d"), named);
    }
    let missing = "/nowhere/server.sock";
    assert_unavailable(&format!("mysql://u:topsecret@/d?socket={missing}"), missing);
    let several = "mysql://u:topsecret@127.0.0.1:1,127.0.0.1:2/d";
    assert_unavailable(several, "127.0.0.1:1");
}

#[test]
fn a_server_that_is_down_is_used_once_it_is_up() {
    each_kind_at_once(|kind| {
        let own = Own::start(kind, "login-later", &[]);
        let path: String = own.root().row("SELECT @@socket").unwrap();
        let socket = own.server.url_with(&format!("socket={}", percent_encoded(&path)));
        let clients = [own.server.client(), Client::open(&socket).unwrap()];
        // Killed with the file left, or stopped in order without it.
        own.kill();
        assert_unavailable(&own.server.url, &format!("127.0.0.1:{}", own.server.port()));
        assert_unavailable(&socket, &path);
        let _ = std::fs::remove_file(&path);
        assert_unavailable(&socket, &path);
        thread::scope(|scope| {
            let waits = |client| {
                move || {
                    let options = AcquireOptions::new().wait(ms(60_000));
                    client_acquire(client, &options)
                }
            };
            let waiting = clients.each_ref().map(|client| scope.spawn(waits(client)));
            thread::sleep(ms(300));
            own.restart();
            let (tokens, took) = timed(|| waiting.map(|one| one.join().unwrap()));
            assert!(tokens[0] != tokens[1]);
            // The pause between two connects is half a second at most.
            assert!(took < ms(5_000), "{took:?}");
        });
    });
}

fn client_acquire(client: &Client, options: &AcquireOptions) -> u64 {
    let lock = client.acquire("k", options).expect("granted once the server is up");
    let token = lock.token();
    lock.release().expect("release");
    token
}

#[test]
fn dead_hosts_are_passed_over() {
    each_server(|server| {
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let silent = silent.local_addr().unwrap().to_string();
        let live = format!("127.0.0.1:{}", server.port());
        for dead in ["127.0.0.1:1", "name.invalid", &silent, "127.0.0.1:1,127.0.0.1:2"] {
            let url = server.url_at(&format!("{dead},{live}"));
            let client = Client::builder().connect_timeout(ms(300)).open(&url).unwrap();
            let (lock, took) = timed(|| take(&client, unique("passed-over")));
            assert!(took < ms(3_000), "{dead}: {took:?}");
            lock.release().unwrap();
        }
    });
}

#[test]
fn read_only_hosts_are_passed_over_and_found_again() {
    each_kind_at_once(|kind| {
        let first = Own::start(kind, "login-first", &[]);
        let second = Own::start(kind, "login-second", &[]);
        for own in [&first, &second] {
            own.account("dl_both", "ALL");
        }
        let server = first.server.logged_in_as("dl_both", "a password");
        let (one, two) = (first.server.port(), second.server.port());
        let url = server.url_at(&format!("127.0.0.1:{one},127.0.0.1:{two}"));
        let read_only = |own: &Own, yes: bool| {
            own.root().run(&format!("SET GLOBAL read_only = {}", u8::from(yes)));
        };
        let has = |own: &Own, key: &str| {
            let text = format!("SELECT COUNT(*) FROM dl_lock WHERE lock_key = '{key}'");
            own.root().row::<u32>(&text) == Some(1)
        };
        let old = Client::open(&url).unwrap();
        let acquire = |key: &str| {
            for client in [&old, &Client::open(&url).unwrap()] {
                take(client, key).release().unwrap();
            }
        };
        // The tables are on both, as replication would have it.
        take(&second.server.client(), "made").release().unwrap();

        acquire("to the first");
        assert!(has(&first, "to the first") && !has(&second, "to the first"));
        read_only(&first, true);
        acquire("to the second");
        assert!(has(&second, "to the second") && !has(&first, "to the second"));

        read_only(&second, true);
        for client in [&old, &Client::open(&url).unwrap()] {
            let options = AcquireOptions::new().wait(ms(500));
            let (result, took) = timed(|| client.acquire("nowhere", &options));
            let error = result.unwrap_err();
            assert_eq!(error.status(), Status::Unavailable, "{error:?}");
            assert!(error.message().contains("read-only"), "{error}");
            assert!(error.is_retriable());
            assert!(took >= ms(500) && took < ms(2_000), "{took:?}");
        }
        read_only(&first, false);
        acquire("to the first again");
        assert!(has(&first, "to the first again"));

        read_only(&second, false);
        first.kill();
        acquire("to the one that lives");
        assert!(has(&second, "to the one that lives"));
        assert!(try_it(&old, "to the one that lives").is_some());
    });
}
