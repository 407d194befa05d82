//! Which addresses may be connected to.
//!
//! The policy is applied to resolved addresses, and the connection goes to exactly those, so that a
//! name cannot change its mind between the check and the use.

use std::net::IpAddr;

use caliban_core::address::is_public;

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
    /// The first of the addresses that is not allowed.
    pub(crate) fn first_forbidden(self, addresses: impl IntoIterator<Item = IpAddr>) -> Option<IpAddr> {
        match self {
            Self::Any => None,
            Self::PublicOnly => addresses.into_iter().find(|address| !is_public(*address)),
        }
    }
}
