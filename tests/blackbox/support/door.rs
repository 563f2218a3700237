//! Another way in to a server: at an address of its own, and, if told so, with
//! texts of the server's replies exchanged for others of the same length.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::thread;

/// See the module's text. Ends with the process.
#[derive(Clone, Debug)]
pub struct Door {
    pub address: String,
}

impl Door {
    /// A door at `ip` (of 127.0.0.0/8) to a server's port on 127.0.0.1.
    pub fn at(ip: &str, server_port: u16) -> Door {
        Door::with(ip, server_port, Vec::new(), Vec::new())
    }

    /// A door that says `to` wherever the server says `from`. Needs `tls=off`.
    pub fn that_says(to: &str, from: &str, server_port: u16) -> Door {
        assert_eq!(to.len(), from.len(), "packets have their length in front");
        Door::with("127.0.0.1", server_port, from.into(), to.into())
    }

    fn with(ip: &str, server_port: u16, from: Vec<u8>, to: Vec<u8>) -> Door {
        let listener = TcpListener::bind((ip, 0)).expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(server) = TcpStream::connect(("127.0.0.1", server_port)) else { continue };
                let clone = |stream: &TcpStream| stream.try_clone().expect("a descriptor");
                let (client_in, server_out) = (clone(&client), clone(&server));
                thread::spawn(move || copy(client_in, server_out, &[], &[]));
                let (from, to) = (from.clone(), to.clone());
                thread::spawn(move || copy(server, client, &from, &to));
            }
        });
        Door { address }
    }
}

fn copy(mut source: TcpStream, mut sink: TcpStream, from: &[u8], to: &[u8]) {
    let mut buffer = [0; 65_536];
    while let Ok(count @ 1..) = source.read(&mut buffer) {
        for at in 0..count {
            if !from.is_empty() && buffer[at..count].starts_with(from) {
                buffer[at..at + to.len()].copy_from_slice(to);
            }
        }
        if sink.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    let _ = source.shutdown(Shutdown::Both);
    let _ = sink.shutdown(Shutdown::Both);
}
