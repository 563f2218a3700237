//! A test on every server at the same time, for tests that mostly wait.

use std::cell::RefCell;
use std::thread;

use super::server::{Server, each_kind, each_server};

/// Like [`each_server`], on all at once.
pub fn each_server_at_once(test: impl Fn(&Server) + Sync) {
    let servers = RefCell::new(Vec::new());
    each_server(|server| servers.borrow_mut().push(server.clone()));
    at_once(&servers.into_inner(), test);
}

/// Like [`each_kind`], with all at once.
pub fn each_kind_at_once(test: impl Fn(&str) + Sync) {
    let kinds = RefCell::new(Vec::new());
    each_kind(|kind| kinds.borrow_mut().push(kind.to_owned()));
    at_once(&kinds.into_inner(), |kind| test(kind));
}

/// Runs `test` with each of `items`, all at once.
pub fn at_once<T: Sync>(items: &[T], test: impl Fn(&T) + Sync) {
    thread::scope(|scope| {
        for item in items {
            let test = &test;
            scope.spawn(move || test(item));
        }
    });
}
