//! Where the server is: its addresses, the host names that are its own, and the links to it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use http::StatusCode;

use crate::error::Problem;
use crate::options::Exposure;

/// The server as browsers see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Site {
    scheme: &'static str,
    /// The one that links have; then the others that are ours.
    hosts: Vec<String>,
    pub(crate) address: SocketAddr,
}

impl Site {
    /// On loopback a name of our own comes first: its cookies reach no other port's pages.
    pub(crate) fn new(name: &str, address: SocketAddr, exposure: &Exposure) -> Self {
        let port = address.port();
        let local = |ip: IpAddr| [format!("{name}.localhost:{port}"), SocketAddr::new(ip, port).to_string()];
        let near = match address.ip() {
            ip if ip.is_loopback() => Some(ip),
            IpAddr::V4(ip) if ip.is_unspecified() => Some(Ipv4Addr::LOCALHOST.into()),
            IpAddr::V6(ip) if ip.is_unspecified() => Some(Ipv6Addr::LOCALHOST.into()),
            _ => None,
        };
        let own = near.map_or_else(|| vec![address.to_string()], |ip| local(ip).to_vec());
        let (scheme, first) = match exposure {
            Exposure::Loopback => ("http", None),
            Exposure::Tls { host, .. } => {
                let default = if port == 443 { String::new() } else { format!(":{port}") };
                ("https", host.as_ref().map(|host| format!("{host}{default}")))
            }
            Exposure::Proxy { scheme, host } => (scheme.word(), Some(host.clone())),
        };
        let hosts = first.map(|host| host.to_ascii_lowercase()).into_iter().chain(own).collect();
        Self { scheme, hosts, address }
    }

    /// `http://caliban-1a2b3c4d.localhost:8000`.
    pub(crate) fn origin(&self) -> String {
        format!("{}://{}", self.scheme, self.hosts.first().map_or("", String::as_str))
    }

    /// Where a link leads.
    pub(crate) fn link(&self, token: &str) -> String {
        format!("{}/#t={token}", self.origin())
    }

    /// Whether cookies go over TLS only.
    pub(crate) fn is_secure(&self) -> bool {
        self.scheme == "https"
    }

    /// A rebound name is not ours.
    pub(crate) fn check_host(&self, host: Option<&str>) -> Result<(), Problem> {
        let host = host.unwrap_or_default().to_ascii_lowercase();
        if self.hosts.contains(&host) {
            return Ok(());
        }
        let shown = caliban_core::inert::line(&host).into_owned();
        Err(Problem::new(
            StatusCode::MISDIRECTED_REQUEST,
            "wrong_host",
            format!("this server is not {shown}"),
        )
        .hint(format!("it is {}", self.origin())))
    }

    /// A page of another origin gets nothing.
    pub(crate) fn check_origin(&self, origin: Option<&str>) -> Result<(), Problem> {
        let Some(origin) = origin else { return Ok(()) };
        let host = origin.to_ascii_lowercase();
        let host = ["http://", "https://"].iter().find_map(|scheme| host.strip_prefix(scheme));
        if host.is_some_and(|host| self.hosts.iter().any(|own| own == host)) {
            return Ok(());
        }
        Err(Problem::new(
            StatusCode::FORBIDDEN,
            "wrong_origin",
            "this request comes from a page of another site",
        ))
    }
}
