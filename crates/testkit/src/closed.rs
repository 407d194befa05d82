//! A port on which no process listens, for as long as the guard lives.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, SocketType, bind, getsockname, socket};

/// A local port that is bound but never listened on: connections to it are refused, and no other process can get it
/// meanwhile (a port that was merely closed again could be given to another test).
#[derive(Debug)]
pub struct ClosedPort {
    _socket: OwnedFd,
    port: u16,
}

impl ClosedPort {
    /// Takes a port.
    pub fn new() -> Self {
        let socket = socket(AddressFamily::INET, SocketType::STREAM, None).expect("cannot make a socket");
        bind(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)).expect("cannot take a port on loopback");
        let address = getsockname(&socket).expect("cannot ask a socket for its port");
        let address = SocketAddr::try_from(address).expect("the socket has an address");
        Self { _socket: socket, port: address.port() }
    }

    /// The port's number.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// `http://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }
}

impl Default for ClosedPort {
    fn default() -> Self {
        Self::new()
    }
}
