//! TLS: used where it is asked for, and the server's certificate believed
//! where, and only where, it is right.

use std::path::Path;
use std::process::Command;

use dlease::{Client, Status};

use super::refused;
use crate::support::door::Door;
use crate::support::server::percent_encoded;
use crate::support::{Own, Server, each_kind_at_once, ms, refused_at_once, take};

fn client(server: &Server, address: &str, tls: &str, ca: Option<&Path>) -> Client {
    let server = Server { url: server.url_at(address) };
    let mut url = server.url_with(&format!("tls={tls}"));
    if let Some(ca) = ca {
        url = format!("{url}&tls_ca={}", percent_encoded(ca.to_str().expect("a text")));
    }
    Client::open(&url).expect("open")
}

fn gets_in(client: &Client) {
    client.ping(ms(5_000)).unwrap_or_else(|error| panic!("{error:?}: {client:?}"));
}

#[test]
fn a_certificate_is_believed_only_from_its_authority_and_for_its_host() {
    each_kind_at_once(|kind| {
        let own = Own::start(kind, "login-tls", &[]);
        // Nobody gets in without TLS: who does, has it.
        let server = own.account("dl_tls", "ALL");
        for host in ["%", "localhost"] {
            own.root().run(&format!("ALTER USER dl_tls@'{host}' REQUIRE SSL"));
        }
        let (ca, port) = (own.directory().join("ca.pem"), own.server.port());
        let loopback = format!("127.0.0.1:{port}");
        let by_name = format!("localhost:{port}");
        // The certificate is for 127.0.0.1 and localhost.
        let elsewhere = Door::at("127.0.0.2", port).address;

        let error = refused(&client(&server, &loopback, "off", None), "a password");
        assert_eq!(error.server_errno(), 1045);
        for address in [&loopback, &by_name, &elsewhere] {
            for tls in ["preferred", "required"] {
                gets_in(&client(&server, address, tls, None));
            }
            gets_in(&client(&server, address, "verify_ca", Some(&ca)));
        }
        for address in [&loopback, &by_name] {
            gets_in(&client(&server, address, "verify_identity", Some(&ca)));
        }
        take(&client(&server, &by_name, "verify_identity", Some(&ca)), "k").release().unwrap();

        let refuses = |address: &str, tls: &str, ca: Option<&Path>| {
            let error = refused(&client(&server, address, tls, ca), "a password");
            assert_eq!(error.server_errno(), 0);
            assert!(error.message().contains(address), "{error}");
        };
        refuses(&elsewhere, "verify_identity", Some(&ca));
        let stranger = own.directory().join("stranger.pem");
        make_authority(&stranger);
        let garbage = own.directory().join("garbage.pem");
        std::fs::write(&garbage, "-----BEGIN CERTIFICATE-----\nnone\n").unwrap();
        let missing = own.directory().join("missing.pem");
        for tls in ["verify_ca", "verify_identity"] {
            for ca in [None, Some(&*stranger), Some(&*garbage), Some(&*missing)] {
                refuses(&loopback, tls, ca);
            }
        }
    });
}

/// An authority of the same name that did not sign the server's certificate.
fn make_authority(file: &Path) {
    let key = file.with_extension("key");
    let output = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"])
        .args(["-days", "2", "-subj", "/CN=dlease test authority"])
        .args([Path::new("-keyout"), &key, Path::new("-out"), file])
        .output()
        .expect("openssl");
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn a_server_that_demands_tls_is_given_it_or_says_so_at_once() {
    each_kind_at_once(|kind| {
        let own = Own::start(kind, "login-demands", &["--require-secure-transport=ON"]);
        let address = format!("127.0.0.1:{}", own.server.port());
        let error = refused_at_once(&client(&own.server, &address, "off", None), "k");
        assert_eq!(error.status(), Status::Config, "{error}");
        // MariaDB says no more than that access is denied.
        assert_eq!(error.server_errno(), if kind == "mariadb" { 1045 } else { 3159 }, "{error}");
        let default = own.server.client();
        for client in ["preferred", "required"].map(|tls| client(&own.server, &address, tls, None))
        {
            gets_in(&client);
        }
        take(&default, "k").release().unwrap();
        // A socket is as good.
        let path: String = own.root().row("SELECT @@socket").unwrap();
        let on_socket = own.server.url_with(&format!("socket={}", percent_encoded(&path)));
        gets_in(&Client::open(&on_socket).unwrap());
    });
}

#[test]
fn a_server_without_tls_is_used_only_by_who_does_not_insist() {
    each_kind_at_once(|kind| {
        let option = if kind == "mariadb" { "--skip-ssl" } else { "--tls-version=" };
        let own = Own::start(kind, "login-without", &[option]);
        let address = format!("127.0.0.1:{}", own.server.port());
        let ca = own.directory().join("ca.pem");
        for tls in ["off", "preferred"] {
            let client = client(&own.server, &address, tls, None);
            take(&client, "k").release().unwrap();
        }
        for tls in ["required", "verify_ca", "verify_identity"] {
            let error = refused_at_once(&client(&own.server, &address, tls, Some(&ca)), "k");
            assert_eq!((error.status(), error.server_errno()), (Status::Config, 0), "{error}");
        }
    });
}
