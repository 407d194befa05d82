//! Connections that have not sent a whole request yet. Each peer has few of them: the oldest one is closed for a new
//! one, so that nobody takes the places of the others, and a real client on the same address still gets in.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::oneshot;

/// Maximum number of half-open connections of one peer. A browser opens six at once.
const PER_PEER: usize = 32;

type Waiting = VecDeque<(u64, oneshot::Sender<()>)>;

#[derive(Debug, Default)]
struct Table {
    next: u64,
    peers: HashMap<IpAddr, Waiting>,
}

/// All half-open connections.
#[derive(Debug, Clone, Default)]
pub(crate) struct HalfOpen(Arc<Mutex<Table>>);

/// A connection's place among them, until its first request has come or it is closed.
#[derive(Debug)]
pub(crate) struct HalfOpenPlace {
    table: HalfOpen,
    peer: IpAddr,
    number: u64,
}

impl HalfOpen {
    /// Takes a place. The receiver gets a message when the connection has to make room for a newer one.
    pub(crate) fn enter(&self, peer: IpAddr) -> (HalfOpenPlace, oneshot::Receiver<()>) {
        let peer = network(peer);
        let (close, closed) = oneshot::channel();
        let mut table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        table.next += 1;
        let number = table.next;
        let waiting = table.peers.entry(peer).or_default();
        if waiting.len() >= PER_PEER
            && let Some((_, oldest)) = waiting.pop_front()
        {
            let _gone = oldest.send(());
        }
        waiting.push_back((number, close));
        (HalfOpenPlace { table: self.clone(), peer, number }, closed)
    }
}

impl Drop for HalfOpenPlace {
    fn drop(&mut self) {
        let mut table = self.table.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(waiting) = table.peers.get_mut(&self.peer) {
            waiting.retain(|(number, _)| *number != self.number);
            if waiting.is_empty() {
                table.peers.remove(&self.peer);
            }
        }
    }
}

/// One host has a whole IPv6 network of 64 bits.
fn network(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64)).into(),
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a19_the_oldest_half_open_connection_of_a_peer_makes_room_and_nobody_elses() {
        let table = HalfOpen::default();
        let (one, other): (IpAddr, IpAddr) = ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
        let (_kept, mut of_other) = table.enter(other);
        let mut places: Vec<_> = (0..PER_PEER).map(|_| table.enter(one)).collect();
        assert!(places[0].1.try_recv().is_err());
        let _newer = table.enter(one);
        assert_eq!(places[0].1.try_recv(), Ok(()));
        assert!(places[1].1.try_recv().is_err() && of_other.try_recv().is_err());
        // One that has sent its request leaves a place.
        drop(places.remove(1));
        let _more = table.enter(one);
        assert!(places[1].1.try_recv() == Err(oneshot::error::TryRecvError::Empty));
    }

    #[test]
    fn a19_one_ipv6_network_is_one_peer() {
        let of = |text: &str| network(text.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"));
    }
}
