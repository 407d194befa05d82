//! Identifies the process at the other end of a local TCP connection: address → socket → process → its ancestors.
//!
//! Only for requests with effects. A peer without a visible process (a tunnel, another user's, one that hides its
//! descriptors) is unknown, which is enough for a signed-in device and not for the token (a19).

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

/// Whose process is at the other end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PeerProcess {
    /// A person's.
    Person,
    /// An agent's, in words.
    Agent(String),
    /// Nobody can tell.
    Unknown,
}

/// A connection, and whose process is at its other end once that has been looked up. The result is cached for the life
/// of the connection: the processes that hold a connected socket belong to the one that opened it.
#[derive(Debug)]
pub(crate) struct Seat {
    ends: ConnectionEnds,
    process: tokio::sync::OnceCell<PeerProcess>,
}

impl Seat {
    pub(crate) fn new(ends: ConnectionEnds) -> Self {
        Self { ends, process: tokio::sync::OnceCell::new() }
    }

    /// Whose process is at the other end.
    pub(crate) async fn process(&self) -> Result<&PeerProcess, tokio::task::JoinError> {
        let ends = self.ends;
        let look = || tokio::task::spawn_blocking(move || process_at(ends));
        self.process.get_or_try_init(look).await
    }
}

/// A socket of this machine is found in its table whatever address it used; one of another machine is not there.
fn process_at(ends: ConnectionEnds) -> PeerProcess {
    let Some((user, inode)) = socket(ends) else { return PeerProcess::Unknown };
    // Another user's person is none of ours.
    if user != rustix::process::getuid().as_raw() {
        return PeerProcess::Unknown;
    }
    judged(holders(inode).into_iter().map(ancestry::above))
}

/// One agent's process among the holders of a socket is enough, and all must be known for a person's.
fn judged(holders: impl Iterator<Item = Ancestry>) -> PeerProcess {
    let holders: Vec<Ancestry> = holders.collect();
    let is_agents = |ancestry: &&Ancestry| matches!(ancestry, Ancestry::Agents(_) | Ancestry::Member);
    if let Some(who) = holders.iter().find(is_agents).and_then(Ancestry::agent_in_words) {
        return PeerProcess::Agent(who);
    }
    match !holders.is_empty() && holders.iter().all(|ancestry| *ancestry == Ancestry::Person) {
        true => PeerProcess::Person,
        false => PeerProcess::Unknown,
    }
}

/// The user and the inode of the socket at the other end, from the kernel's table.
fn socket(ends: ConnectionEnds) -> Option<(u32, u64)> {
    ["/proc/net/tcp", "/proc/net/tcp6"].iter().find_map(|table| {
        let text = fs::read_to_string(table).ok().filter(|text| text.len() < TABLE_CAP)?;
        text.lines().skip(1).find_map(|line| {
            let mut words = line.split_whitespace().skip(1);
            let (local, remote) = (address(words.next()?)?, address(words.next()?)?);
            let user = words.nth(4)?.parse().ok()?;
            let inode = words.nth(1)?.parse().ok()?;
            (local == plain(ends.peer) && remote == plain(ends.own)).then_some((user, inode))
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
            let (user, inode) = socket(ConnectionEnds { peer, own }).unwrap();
            assert_eq!(user, rustix::process::getuid().as_raw());
            assert_eq!(holders(inode), [i32::try_from(std::process::id()).unwrap()], "{host}");
            assert_eq!(socket(ConnectionEnds { peer: own, own }), None);
            assert_eq!(process_at(ConnectionEnds { peer, own }), PeerProcess::Person, "{host}");
            assert_eq!(process_at(ConnectionEnds { peer: own, own }), PeerProcess::Unknown, "{host}");
        }
    }

    #[test]
    fn a19_only_holders_that_are_all_known_make_a_person() {
        let agent = || Ancestry::Agents(Vec::new());
        let of = |all: Vec<Ancestry>| judged(all.into_iter());
        assert_eq!(of(vec![]), PeerProcess::Unknown);
        assert_eq!(of(vec![Ancestry::Unknown]), PeerProcess::Unknown);
        assert_eq!(of(vec![Ancestry::Person, Ancestry::Unknown]), PeerProcess::Unknown);
        assert_eq!(of(vec![Ancestry::Person, Ancestry::Person]), PeerProcess::Person);
        for by in [agent(), Ancestry::Member] {
            let words = by.agent_in_words().unwrap();
            assert_eq!(of(vec![Ancestry::Person, by]), PeerProcess::Agent(words));
        }
    }
}
