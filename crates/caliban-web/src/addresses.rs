//! Where the server is: its addresses, the host names that are its own, and the links to it.
//!
//! With TLS the certificate says which names are ours: a browser takes no other one, and a rebound name is not in it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use http::StatusCode;
use rustls::pki_types::{CertificateDer, ServerName};
use webpki::EndEntityCert;

use crate::error::Problem;
use crate::options::Exposure;

/// The server as browsers see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Site {
    scheme: &'static str,
    /// The one that links have; then the others that are ours.
    hosts: Vec<String>,
    /// What vouches for further names.
    cert: Option<CertificateDer<'static>>,
    pub(crate) address: SocketAddr,
}

impl Site {
    /// On loopback a name of our own comes first: its cookies reach no other port's pages.
    pub(crate) fn new(
        name: &str,
        address: SocketAddr,
        exposure: &Exposure,
        cert: Option<CertificateDer<'static>>,
    ) -> Self {
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
            Exposure::Tls { .. } => {
                let first = cert.as_ref().and_then(|cert| first_name(cert, address));
                ("https", first.map(|name| if port == 443 { name } else { format!("{name}:{port}") }))
            }
            Exposure::Proxy { scheme, host } => (scheme.word(), Some(host.clone())),
        };
        let hosts = first.map(|host| host.to_ascii_lowercase()).into_iter().chain(own).collect();
        Self { scheme, hosts, cert, address }
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
        if self.is_own(&host) {
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
        if host.is_some_and(|host| self.is_own(host)) {
            return Ok(());
        }
        Err(Problem::new(
            StatusCode::FORBIDDEN,
            "wrong_origin",
            "this request comes from a page of another site",
        ))
    }

    /// Whether a host, with its port, is ours.
    fn is_own(&self, host: &str) -> bool {
        if self.hosts.iter().any(|own| own == host) {
            return true;
        }
        let port = self.address.port();
        let name = host.strip_suffix(&format!(":{port}")).or((port == 443).then_some(host));
        name.zip(self.cert.as_ref()).is_some_and(|(name, cert)| is_for(cert, name))
    }
}

/// The name that links have: the first one of the certificate, else an address of ours that it is for.
fn first_name(cert: &CertificateDer<'_>, address: SocketAddr) -> Option<String> {
    let parsed = EndEntityCert::try_from(cert).ok()?;
    let named = parsed.valid_dns_names().find(|name| !name.contains('*')).map(str::to_owned);
    let ip = if address.ip().is_unspecified() { outward() } else { Some(address.ip()) };
    named.or_else(|| {
        let ip = ip?;
        let written = if ip.is_ipv6() { format!("[{ip}]") } else { ip.to_string() };
        is_for(cert, &written).then_some(written)
    })
}

/// Whether a certificate is for a name or an address, as a `Host` header writes it.
fn is_for(cert: &CertificateDer<'_>, host: &str) -> bool {
    let plain = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let Ok(name) = ServerName::try_from(plain) else { return false };
    EndEntityCert::try_from(cert).is_ok_and(|cert| cert.verify_is_valid_for_subject_name(&name).is_ok())
}

/// The address by which others reach this machine. Nothing is sent: the kernel only looks for the way.
fn outward() -> Option<IpAddr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    // An address of the documentation (RFC 5737), which is beyond every router.
    socket.connect((Ipv4Addr::new(192, 0, 2, 1), 9)).ok()?;
    socket.local_addr().ok().map(|address| address.ip())
}
