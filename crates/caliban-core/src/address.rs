//! Which addresses are public: the one list for everything that connects somewhere on behalf of a model.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Which addresses may be connected to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum AddressPolicy {
    /// All of them.
    #[default]
    Any,
    /// Only public ones: no loopback, private, link-local, carrier-grade NAT, multicast or reserved
    /// address, also not wrapped in an IPv6 one.
    PublicOnly,
}

impl AddressPolicy {
    /// Whether private addresses may be connected to is a setting.
    #[must_use]
    pub fn with_private(is_allowed: bool) -> Self {
        if is_allowed { Self::Any } else { Self::PublicOnly }
    }

    /// The first of the addresses that is not allowed.
    #[must_use]
    pub fn first_forbidden(self, addresses: impl IntoIterator<Item = IpAddr>) -> Option<IpAddr> {
        match self {
            Self::Any => None,
            Self::PublicOnly => addresses.into_iter().find(|address| !is_public(*address)),
        }
    }
}

/// Whether an address belongs to the public internet.
pub fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => is_public_v4(v4),
        IpAddr::V6(v6) => is_public_v6(v6),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let special = match (a, b, c) {
        // This network, private, loopback, and everything from multicast up to broadcast.
        (0 | 10 | 127 | 224..=255, _, _) => true,
        // Carrier-grade NAT 100.64/10, private 172.16/12, benchmarks 198.18/15.
        (100, 64..=127, _) | (172, 16..=31, _) | (198, 18 | 19, _) => true,
        (169, 254, _) | (192, 168, _) => true,
        // Protocol assignments, documentation, the retired 6to4 relay.
        (192, 0, 0 | 2) | (192, 88, 99) | (198, 51, 100) | (203, 0, 113) => true,
        _ => false,
    };
    !special
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let s = address.segments();
    let low_v4 = || Ipv4Addr::from((u32::from(s[6]) << 16) | u32::from(s[7]));
    match s {
        // Mapped (::ffff:a.b.c.d) and translated (64:ff9b::a.b.c.d): as public as what is inside.
        [0, 0, 0, 0, 0, 0xffff, _, _] | [0x64, 0xff9b, 0, 0, 0, 0, _, _] => is_public_v4(low_v4()),
        // 6to4: the IPv4 address follows the prefix.
        [0x2002, high, low, ..] => is_public_v4(Ipv4Addr::from((u32::from(high) << 16) | u32::from(low))),
        // Teredo and the other protocol assignments 2001::/23, documentation.
        [0x2001, 0..=0x1ff | 0xdb8, ..] => false,
        // The global unicast block is the only public one.
        [first, ..] => first & 0xe000 == 0x2000,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_public_addresses_are_public() {
        let private = [
            "0.0.0.0",
            "10.1.2.3",
            "100.64.0.1",
            "100.127.255.255",
            "127.0.0.1",
            "127.9.9.9",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.8",
            "192.0.2.1",
            "192.168.1.1",
            "198.18.0.1",
            "198.51.100.7",
            "203.0.113.9",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "fc00::1",
            "fd12::1",
            "fe80::1",
            "fec0::1",
            "ff02::1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::127.0.0.1",
            "64:ff9b::10.0.0.1",
            "2002:7f00:1::",
            "2002:c0a8:101::1",
            "2001:db8::1",
            "2001::1",
            "100::1",
        ];
        let public = [
            "1.1.1.1",
            "8.8.8.8",
            "100.63.0.1",
            "100.128.0.1",
            "172.15.0.1",
            "172.32.0.1",
            "192.0.1.1",
            "198.20.0.1",
            "223.255.255.255",
            "2606:4700::1111",
            "::ffff:8.8.8.8",
            "64:ff9b::8.8.8.8",
            "2a00:1450::1",
        ];
        let check = |text: &&str| is_public(text.parse().unwrap());
        assert_eq!(private.iter().filter(|text| check(text)).collect::<Vec<_>>(), Vec::<&&str>::new());
        assert_eq!(public.iter().filter(|text| !check(text)).collect::<Vec<_>>(), Vec::<&&str>::new());
    }
}
