//! Identifies the process at the other end of a local TCP connection: address → socket → process → its ancestors.
//!
//! Only for requests with effects. A peer without a visible process (a tunnel, another user's) is not judged here:
//! sign-in decides.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use caliban_contract::ancestry::{self, Ancestry};

/// Maximum size of the kernel's connection table.
const TABLE_CAP: usize = 16 * 1024 * 1024;

/// The two ends of a connection, as the server sees them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ConnectionEnds {
    pub(crate) peer: SocketAddr,
    pub(crate) own: SocketAddr,
}

/// A connection, and the agent at its other end once that has been looked up. The result is cached for the life of the
/// connection: the processes that hold a connected socket belong to the one that opened it.
#[derive(Debug)]
pub(crate) struct Seat {
    ends: ConnectionEnds,
    agent: tokio::sync::OnceCell<Option<String>>,
}

impl Seat {
    pub(crate) fn new(ends: ConnectionEnds) -> Self {
        Self { ends, agent: tokio::sync::OnceCell::new() }
    }

    /// The agent whose process is at the other end, as text.
    pub(crate) async fn agent(&self) -> Result<Option<&str>, tokio::task::JoinError> {
        let ends = self.ends;
        let found =
            self.agent.get_or_try_init(|| tokio::task::spawn_blocking(move || agent_at(ends))).await?;
        Ok(found.as_deref())
    }
}

/// The agent whose process is at the other end, as text; `None` if it belongs to a person, or is unknown.
fn agent_at(ends: ConnectionEnds) -> Option<String> {
    if !ends.peer.ip().is_loopback() {
        return None;
    }
    let inode = inode(ends)?;
    holders(inode).into_iter().find_map(|pid| match ancestry::above(pid) {
        agents @ Ancestry::Agents(_) => agents.agent_in_words(),
        Ancestry::Person | Ancestry::Unknown => None,
    })
}

/// The inode of the socket at the other end, from the kernel's table.
fn inode(ends: ConnectionEnds) -> Option<u64> {
    ["/proc/net/tcp", "/proc/net/tcp6"].iter().find_map(|table| {
        let text = fs::read_to_string(table).ok().filter(|text| text.len() < TABLE_CAP)?;
        text.lines().skip(1).find_map(|line| {
            let mut words = line.split_whitespace().skip(1);
            let (local, remote) = (address(words.next()?)?, address(words.next()?)?);
            let inode = words.nth(6)?.parse().ok()?;
            (local == plain(ends.peer) && remote == plain(ends.own)).then_some(inode)
        })
    })
}

/// An address in the table: hexadecimal words in the machine's byte order.
fn address(text: &str) -> Option<SocketAddr> {
    let (host, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let words: Option<Vec<[u8; 4]>> = (0..host.len() / 8)
        .map(|word| {
            let word = u32::from_str_radix(host.get(word * 8..word * 8 + 8)?, 16).ok()?;
            Some(word.to_ne_bytes())
        })
        .collect();
    let words = words?;
    let host = match words.as_slice() {
        [v4] => std::net::IpAddr::from(*v4),
        [_, _, _, _] => {
            let mut bytes = [0; 16];
            bytes.iter_mut().zip(words.concat()).for_each(|(to, from)| *to = from);
            std::net::IpAddr::from(bytes)
        }
        _ => return None,
    };
    Some(plain(SocketAddr::new(host, port)))
}

/// The canonical form: an IPv4-mapped IPv6 address becomes IPv4.
fn plain(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// The processes that hold a socket, as far as we may see them.
fn holders(inode: u64) -> Vec<i32> {
    let name = format!("socket:[{inode}]");
    let holds = |pid: i32| {
        let files = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        let mut links = files.filter_map(|file| fs::read_link(file.path()).ok());
        links.any(|link| link == Path::new(&name))
    };
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| holds(*pid)).collect()
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn the_process_at_the_other_end_is_found() {
        for host in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(host) else { continue };
            let own = listener.local_addr().unwrap();
            let client = TcpStream::connect(own).unwrap();
            let (_served, peer) = listener.accept().unwrap();
            assert_eq!(client.local_addr().unwrap(), peer);
            let inode = inode(ConnectionEnds { peer, own }).unwrap();
            assert_eq!(holders(inode), [i32::try_from(std::process::id()).unwrap()], "{host}");
            assert_eq!(super::inode(ConnectionEnds { peer: own, own }), None);
        }
    }
}
