//! Which requests go through a proxy, and how it is asked.

use std::net::IpAddr;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use url::Url;

use crate::HttpError;

/// Proxy settings, as the usual environment variables hold them. Loopback hosts never use a proxy.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProxySettings {
    /// The proxy for `https` URLs.
    pub https: Option<String>,
    /// The proxy for `http` URLs.
    pub http: Option<String>,
    /// Hosts that are reached directly: names with their subdomains, addresses, networks in CIDR
    /// notation, each with an optional port, separated by commas; `*` is all of them.
    pub no_proxy: Option<String>,
}

/// One proxy, ready to be asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Hop {
    pub(crate) url: Url,
    /// The value of `Proxy-Authorization`.
    pub(crate) authorization: Option<String>,
}

impl ProxySettings {
    /// The proxy for a URL, or none where it is reached directly.
    pub(crate) fn hop_for(&self, url: &Url) -> Result<Option<Hop>, HttpError> {
        let value = match url.scheme() {
            "https" => self.https.as_deref(),
            _ => self.http.as_deref(),
        };
        let Some(value) = value.map(str::trim).filter(|value| !value.is_empty()) else { return Ok(None) };
        if self.is_direct(url) {
            return Ok(None);
        }
        let with_scheme = if value.contains("://") { value.to_owned() } else { format!("http://{value}") };
        let bad = |reason: String| HttpError::BadUrl { url: "the proxy setting".to_owned(), reason };
        let proxy = Url::parse(&with_scheme).map_err(|error| bad(error.to_string()))?;
        if !matches!(proxy.scheme(), "http" | "https") || proxy.host_str().is_none() {
            return Err(bad("a proxy is given as http://host:port".to_owned()));
        }
        let authorization = basic(&proxy);
        Ok(Some(Hop { url: proxy, authorization }))
    }

    fn is_direct(&self, url: &Url) -> bool {
        let host = bare_host(url);
        let address: Option<IpAddr> = host.parse().ok();
        if host == "localhost" || host.ends_with(".localhost") || address.is_some_and(|a| a.is_loopback()) {
            return true;
        }
        let entries = self.no_proxy.as_deref().unwrap_or_default().split([',', ' ']);
        entries
            .map(str::trim)
            .filter(|entry| !entry.is_empty())
            .any(|entry| entry == "*" || entry_matches(entry, &host, address, url.port_or_known_default()))
    }
}

/// The host without the brackets of an IPv6 address.
pub(crate) fn bare_host(url: &Url) -> String {
    url.host_str().unwrap_or_default().trim_start_matches('[').trim_end_matches(']').to_owned()
}

/// `Basic …` of a URL's user and password.
pub(crate) fn basic(url: &Url) -> Option<String> {
    if url.username().is_empty() && url.password().is_none() {
        return None;
    }
    let user = percent_decoded(url.username());
    let password = percent_decoded(url.password().unwrap_or_default());
    let pair = [user, b":".to_vec(), password].concat();
    Some(format!("Basic {}", STANDARD.encode(pair)))
}

fn percent_decoded(text: &str) -> Vec<u8> {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let hex = text.get(at + 1..at + 3).and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match (bytes[at], hex) {
            (b'%', Some(byte)) => {
                out.push(byte);
                at += 3;
            }
            (byte, _) => {
                out.push(byte);
                at += 1;
            }
        }
    }
    out
}

fn entry_matches(entry: &str, host: &str, address: Option<IpAddr>, port: Option<u16>) -> bool {
    if let Some(address) = address {
        if let Some((network, bits)) = entry.split_once('/') {
            let (Ok(network), Ok(bits)) = (network.parse(), bits.parse()) else { return false };
            return in_network(address, network, bits);
        }
        let bare = entry.trim_start_matches('[').trim_end_matches(']');
        if let Ok(listed) = bare.parse::<IpAddr>() {
            return listed == address;
        }
    }
    let (name, wanted_port) = match entry.rsplit_once(':') {
        Some((name, digits)) => match digits.parse::<u16>() {
            Ok(digits) => (name, Some(digits)),
            Err(_) => (entry, None),
        },
        None => (entry, None),
    };
    if wanted_port.is_some() && wanted_port != port {
        return false;
    }
    let name = name.trim_start_matches("*.").trim_start_matches('.').to_ascii_lowercase();
    let name = name.trim_start_matches('[').trim_end_matches(']');
    !name.is_empty() && (host == name || host.strip_suffix(name).is_some_and(|rest| rest.ends_with('.')))
}

fn in_network(address: IpAddr, network: IpAddr, bits: u32) -> bool {
    let (address, network, width) = match (address, network) {
        (IpAddr::V4(a), IpAddr::V4(n)) => (u128::from(u32::from(a)), u128::from(u32::from(n)), 32),
        (IpAddr::V6(a), IpAddr::V6(n)) => (u128::from(a), u128::from(n), 128),
        _ => return false,
    };
    bits <= width && (bits == 0 || (address ^ network) >> (width - bits) == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn through(no_proxy: &str, url: &str) -> bool {
        let proxy = ProxySettings {
            https: Some("http://p:1".into()),
            http: Some("p:2".into()),
            no_proxy: Some(no_proxy.into()),
        };
        proxy.hop_for(&Url::parse(url).unwrap()).unwrap().is_some()
    }

    #[test]
    fn no_proxy_knows_names_ports_addresses_and_networks() {
        let direct = [
            ("", "http://localhost:11434/"),
            ("", "http://127.0.0.1/"),
            ("", "http://[::1]/"),
            ("*", "https://a.b/"),
            ("a.b", "https://a.b/"),
            ("x, .a.b", "https://c.a.b/"),
            ("*.a.b", "https://c.a.b/"),
            ("A.B", "https://a.b/"),
            ("a.b:443", "https://a.b/"),
            ("10.0.0.0/8", "http://10.2.3.4/"),
            ("10.2.3.4", "http://10.2.3.4/"),
            ("fd00::/8", "http://[fd00::1]/"),
        ];
        let proxied = [
            ("a.b", "https://xa.b/"),
            ("a.b:80", "https://a.b/"),
            ("10.0.0.0/8", "http://11.2.3.4/"),
            ("", "https://a.b/"),
            (",", "https://a.b/"),
        ];
        assert_eq!(
            direct.iter().filter(|(no, url)| through(no, url)).collect::<Vec<_>>(),
            Vec::<&(_, _)>::new()
        );
        assert_eq!(
            proxied.iter().filter(|(no, url)| !through(no, url)).collect::<Vec<_>>(),
            Vec::<&(_, _)>::new()
        );
    }

    #[test]
    fn the_login_comes_from_the_url() {
        let proxy =
            ProxySettings { https: Some("http://us%40er:p:w@p:1".into()), ..ProxySettings::default() };
        let hop = proxy.hop_for(&Url::parse("https://a.b").unwrap()).unwrap().unwrap();
        assert_eq!(hop.authorization, Some(format!("Basic {}", STANDARD.encode("us@er:p:w"))));
    }
}
