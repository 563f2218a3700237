//! A TCP proxy between client and server that delays, goes silent, refuses,
//! and cuts: at once, or the reply to a statement after the server has done it.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// See the module's text. Ends with the process.
#[derive(Clone, Debug)]
pub struct Proxy {
    port: u16,
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    server: String,
    delay_ms: AtomicU64,
    silent: AtomicBool,
    /// Everything passes a byte at a time, with pauses.
    drips: AtomicBool,
    /// Connections accepted before this many were are silent.
    held_back: AtomicUsize,
    refuse: AtomicBool,
    /// Statements that contain this text lose their reply, this many times.
    cut_reply_of: Mutex<String>,
    cuts_left: AtomicUsize,
    /// Statements that contain this text are lost on their way, so often.
    lose: Mutex<(String, usize)>,
    /// In every statement the first text becomes the second, as long as it.
    replace: Mutex<(String, String)>,
    /// After the next statement that contains this text: silence.
    silent_after: Mutex<String>,
    statements: Mutex<Vec<String>>,
    ports: Mutex<Vec<u16>>,
    open: Mutex<Vec<TcpStream>>,
    pub accepted: AtomicUsize,
}

impl Proxy {
    /// A proxy to a server's port on loopback.
    pub fn start(server_port: u16) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let server = format!("127.0.0.1:{server_port}");
        let inner = Arc::new(Inner { server, ..Inner::default() });
        let proxy = Proxy { port, inner };
        let accepting = proxy.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                accepting.inner.accepted.fetch_add(1, Ordering::SeqCst);
                if accepting.inner.refuse.load(Ordering::SeqCst) {
                    continue;
                }
                accepting.connect(stream);
            }
        });
        proxy
    }

    /// Where it listens.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Delays every packet, in both directions.
    pub fn delay(&self, time: Duration) {
        self.inner.delay_ms.store(time.as_millis() as u64, Ordering::SeqCst);
    }

    /// Forwards nothing, and says nothing, until told otherwise.
    pub fn silence(&self, silent: bool) {
        self.inner.silent.store(silent, Ordering::SeqCst);
    }

    /// Passes everything on a byte at a time, one in 50 ms.
    pub fn drip(&self, drips: bool) {
        self.inner.drips.store(drips, Ordering::SeqCst);
    }

    /// Holds back what present connections send, or lets it go; later ones are
    /// not concerned.
    pub fn hold_back(&self, held: bool) {
        let present = if held { self.accepted() } else { 0 };
        self.inner.held_back.store(present, Ordering::SeqCst);
    }

    /// Closes new connections at once.
    pub fn refuse(&self, refuse: bool) {
        self.inner.refuse.store(refuse, Ordering::SeqCst);
    }

    /// Closes every open connection.
    pub fn cut(&self) {
        for stream in self.inner.open.lock().expect("not poisoned").drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// The next `times` statements that contain `text` reach the server, are
    /// done there, and their replies are cut off. Needs `tls=off`.
    pub fn cut_replies(&self, text: &str, times: usize) {
        *self.inner.cut_reply_of.lock().expect("not poisoned") = text.to_owned();
        self.inner.cuts_left.store(times, Ordering::SeqCst);
    }

    /// How many replies are still to be cut.
    pub fn cuts_left(&self) -> usize {
        self.inner.cuts_left.load(Ordering::SeqCst)
    }

    /// How many connections it has accepted.
    pub fn accepted(&self) -> usize {
        self.inner.accepted.load(Ordering::SeqCst)
    }

    /// The next `times` statements that contain `text` never reach the server:
    /// their connections are cut. Needs `tls=off`.
    pub fn cut_requests(&self, text: &str, times: usize) {
        *self.inner.lose.lock().expect("not poisoned") = (text.to_owned(), times);
    }

    /// How many requests are still to be cut.
    pub fn requests_left(&self) -> usize {
        self.inner.lose.lock().expect("not poisoned").1
    }

    /// Writes `with` in place of `text` in every statement: the server answers
    /// what it answers to that. Both as long. Needs `tls=off`.
    pub fn replace(&self, text: &str, with: &str) {
        assert_eq!(text.len(), with.len());
        *self.inner.replace.lock().expect("not poisoned") = (text.to_owned(), with.to_owned());
    }

    /// Sends the next statement that contains `text` on to the server, and is
    /// silent from then on. Needs `tls=off`.
    pub fn silence_after(&self, text: &str) {
        text.clone_into(&mut self.inner.silent_after.lock().expect("not poisoned"));
    }

    /// True if it is silent.
    pub fn is_silent(&self) -> bool {
        self.inner.silent.load(Ordering::SeqCst)
    }

    /// Every statement that was sent so far, also those that were cut. Needs
    /// `tls=off`.
    pub fn statements(&self) -> Vec<String> {
        self.inner.statements.lock().expect("not poisoned").clone()
    }

    /// Forgets the statements so far.
    pub fn forget_statements(&self) {
        self.inner.statements.lock().expect("not poisoned").clear();
    }

    /// The ports of its own ends of all connections that it has made to the
    /// server, by which a process list tells them.
    pub fn ports(&self) -> Vec<u16> {
        self.inner.ports.lock().expect("not poisoned").clone()
    }

    fn connect(&self, client: TcpStream) {
        let Ok(server) = TcpStream::connect(&self.inner.server) else { return };
        let port = server.local_addr().expect("an address").port();
        self.inner.ports.lock().expect("not poisoned").push(port);
        for stream in [&client, &server] {
            let _ = stream.set_nodelay(true);
            let copy = stream.try_clone().expect("a descriptor");
            self.inner.open.lock().expect("not poisoned").push(copy);
        }
        // Set by one direction for the other: the next reply is to be cut.
        let cut = Arc::new(AtomicBool::new(false));
        let clone = |stream: &TcpStream| stream.try_clone().expect("a descriptor");
        let number = self.accepted();
        let (up, down) = (Arc::clone(&self.inner), Arc::clone(&self.inner));
        let (a, b, flag) = (clone(&client), clone(&server), Arc::clone(&cut));
        thread::spawn(move || up.pump(number, a, b, |inner, bytes| inner.look_at(bytes, &flag)));
        thread::spawn(move || {
            down.pump(number, server, client, |_, _| !cut.load(Ordering::SeqCst))
        });
    }
}

impl Inner {
    /// Copies until either end closes, or `may_pass` says no.
    fn pump(
        &self,
        number: usize,
        mut from: TcpStream,
        mut to: TcpStream,
        may_pass: impl Fn(&Inner, &[u8]) -> bool,
    ) {
        let mut buffer = [0; 65_536];
        while let Ok(count @ 1..) = from.read(&mut buffer) {
            while self.silent.load(Ordering::SeqCst)
                || number <= self.held_back.load(Ordering::SeqCst)
            {
                thread::sleep(Duration::from_millis(1));
            }
            thread::sleep(Duration::from_millis(self.delay_ms.load(Ordering::SeqCst)));
            if !may_pass(self, &buffer[..count]) || self.pass(&mut to, &buffer[..count]).is_err() {
                break;
            }
        }
        // Silence hides also that an end has gone.
        while self.silent.load(Ordering::SeqCst) {
            thread::sleep(Duration::from_millis(1));
        }
        let _ = from.shutdown(Shutdown::Both);
        let _ = to.shutdown(Shutdown::Both);
    }

    fn pass(&self, to: &mut TcpStream, bytes: &[u8]) -> std::io::Result<()> {
        let bytes = &self.replaced(bytes);
        if !self.drips.load(Ordering::SeqCst) {
            return to.write_all(bytes);
        }
        for byte in bytes {
            to.write_all(&[*byte])?;
            thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    fn replaced(&self, bytes: &[u8]) -> Vec<u8> {
        let (text, with) = self.replace.lock().expect("not poisoned").clone();
        let mut bytes = bytes.to_vec();
        if text.is_empty() {
            return bytes;
        }
        while let Some(at) = bytes.windows(text.len()).position(|part| part == text.as_bytes()) {
            bytes[at..at + text.len()].copy_from_slice(with.as_bytes());
        }
        bytes
    }

    /// Marks the reply for cutting if this is the statement; passes it unless
    /// it is to be lost.
    fn look_at(&self, bytes: &[u8], cut: &AtomicBool) -> bool {
        let contains =
            |text: &str| bytes.windows(text.len().max(1)).any(|part| part == text.as_bytes());
        // The first packet of a COM_QUERY.
        if let [_, _, _, 0, 3, text @ ..] = bytes {
            let text = String::from_utf8_lossy(text).into_owned();
            self.statements.lock().expect("not poisoned").push(text);
        }
        let mut silent_after = self.silent_after.lock().expect("not poisoned");
        if contains(&silent_after) {
            silent_after.clear();
            self.silent.store(true, Ordering::SeqCst);
        }
        let mut lose = self.lose.lock().expect("not poisoned");
        if lose.1 > 0 && contains(&lose.0) {
            lose.1 -= 1;
            return false;
        }
        let wanted = self.cut_reply_of.lock().expect("not poisoned").clone();
        let is_it =
            !wanted.is_empty() && bytes.windows(wanted.len()).any(|part| part == wanted.as_bytes());
        let one_less = |left: usize| left.checked_sub(1);
        if is_it
            && self.cuts_left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less).is_ok()
        {
            cut.store(true, Ordering::SeqCst);
        }
        true
    }
}
