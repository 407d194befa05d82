//! The server's addresses, its own host names, and the links to it.
//!
//! With TLS the certificate lists our names: a browser accepts no other name, and a rebound DNS name is not in the
//! certificate.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use http::StatusCode;
use rustls::pki_types::{CertificateDer, ServerName};
use webpki::EndEntityCert;

use crate::error::Problem;
use crate::options::Exposure;

/// The server's address as browsers use it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Site {
    scheme: &'static str,
    /// The host name used in links, then our other host names.
    hosts: Vec<String>,
    /// The certificate; the names in it are ours, too.
    cert: Option<CertificateDer<'static>>,
    /// The host of the proxy in front of us.
    proxy: Option<String>,
    pub(crate) address: SocketAddr,
}

impl Site {
    /// On loopback our own host name comes first: cookies of that name do not reach pages of other ports.
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
        let first = first.map(|host| host.to_ascii_lowercase());
        let proxy = first.clone().filter(|_| matches!(exposure, Exposure::Proxy { .. }));
        let hosts = first.into_iter().chain(own).collect();
        Self { scheme, hosts, cert, proxy, address }
    }

    /// `http://caliban-1a2b3c4d.localhost:8000`.
    pub(crate) fn origin(&self) -> String {
        format!("{}://{}", self.scheme, self.hosts.first().map_or("", String::as_str))
    }

    /// The sign-in link with this token.
    pub(crate) fn link(&self, token: &str) -> String {
        format!("{}/#t={token}", self.origin())
    }

    /// Whether cookies are sent over TLS only.
    pub(crate) fn is_secure(&self) -> bool {
        self.scheme == "https"
    }

    /// Refuses a `Host` that is not ours (DNS rebinding).
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

    /// Whether a request was sent to the proxy in front of us.
    pub(crate) fn is_proxys(&self, host: Option<&str>) -> bool {
        let host = host.unwrap_or_default();
        self.proxy.as_deref().is_some_and(|proxy| proxy.eq_ignore_ascii_case(host))
    }

    /// Refuses requests of pages of another origin.
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

    /// Whether a host with its port is ours.
    fn is_own(&self, host: &str) -> bool {
        if self.hosts.iter().any(|own| own == host) {
            return true;
        }
        let port = self.address.port();
        let name = host.strip_suffix(&format!(":{port}")).or((port == 443).then_some(host));
        name.zip(self.cert.as_ref()).is_some_and(|(name, cert)| is_for(cert, name))
    }
}

/// The host name used in links: the first DNS name of the certificate, else one of our addresses that the certificate
/// covers.
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

/// Whether the certificate covers a name or an address, written as in a `Host` header.
fn is_for(cert: &CertificateDer<'_>, host: &str) -> bool {
    let plain = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let Ok(name) = ServerName::try_from(plain) else { return false };
    EndEntityCert::try_from(cert).is_ok_and(|cert| cert.verify_is_valid_for_subject_name(&name).is_ok())
}

/// The address under which other machines reach this one. Nothing is sent: the kernel only picks the route.
fn outward() -> Option<IpAddr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    // A documentation address (RFC 5737): no local network has it, so the kernel takes the default route.
    socket.connect((Ipv4Addr::new(192, 0, 2, 1), 9)).ok()?;
    socket.local_addr().ok().map(|address| address.ip())
}
