//! What the binary passes in: the address, the paths, and the programs to run.

use std::net::IpAddr;
use std::path::PathBuf;

use caliban_contract::PlaceSources;
use caliban_settings::Environment;
use caliban_store::StoreUrl;

/// The default port.
pub const DEFAULT_PORT: u16 = 8000;

/// The options of a server.
#[derive(Debug, Clone)]
pub struct ServerOptions {
    /// The address to listen on.
    pub host: IpAddr,
    /// The port; 0 picks a free one.
    pub port: u16,
    /// Who can reach the server, and what protects it.
    pub exposure: Exposure,
    /// The directories of the fleets.
    pub sources: PlaceSources,
    /// The broker's database.
    pub broker: Option<StoreUrl>,
    /// A file with the token of scripts; by default we make our own.
    pub token_file: Option<PathBuf>,
    /// What agents that pages start get of the person who started the server.
    pub environment: Environment,
    /// Our sibling programs.
    pub programs: Programs,
}

/// Our sibling programs: one becomes the worker of an agent, the other types into panes.
#[derive(Debug, Clone)]
pub struct Programs {
    /// `caliban`.
    pub caliban: PathBuf,
    /// `cafleet`.
    pub cafleet: PathBuf,
}

impl Programs {
    /// The programs in the directory of our own executable, else on the caller's `PATH`.
    #[must_use]
    pub fn beside(own: &std::path::Path, environment: &Environment) -> Self {
        let find = |name: &str| {
            let beside = own.parent().map(|dir| dir.join(name)).filter(|program| program.is_file());
            beside.or_else(|| environment.find_program(name)).unwrap_or_else(|| PathBuf::from(name))
        };
        Self { caliban: find("caliban"), cafleet: find("cafleet") }
    }
}

/// Who can reach the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Exposure {
    /// This machine only.
    Loopback,
    /// Other machines, over TLS, under the names in the certificate.
    Tls {
        /// The certificate chain, PEM; the first certificate is the server's own.
        cert: PathBuf,
        /// The key, PEM.
        key: PathBuf,
    },
    /// Other machines, through a proxy that terminates TLS.
    Proxy {
        /// The scheme that browsers use to reach the proxy.
        scheme: Scheme,
        /// The proxy's host, with the port unless it is the default one.
        host: String,
    },
}

/// The scheme that browsers use to reach a proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheme {
    /// Plain.
    Http,
    /// Over TLS.
    Https,
}

impl Scheme {
    /// The scheme as it stands in a URL.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }
}

/// The flags that decide who can reach the server.
#[derive(Debug, Clone, Default)]
pub struct Reach {
    /// `--tls-cert`.
    pub tls_cert: Option<PathBuf>,
    /// `--tls-key`.
    pub tls_key: Option<PathBuf>,
    /// `--behind-proxy`: the address that browsers use.
    pub behind_proxy: Option<String>,
    /// Whether there is a `--token-file`.
    pub has_token_file: bool,
}

impl Exposure {
    /// An address other than loopback needs a token file, and TLS or a named proxy.
    ///
    /// # Errors
    /// A message and a hint.
    pub fn choose(host: IpAddr, reach: Reach) -> Result<Self, (&'static str, &'static str)> {
        let wrong = |message, hint| Err((message, hint));
        let proxy = match &reach.behind_proxy {
            None => None,
            Some(url) => {
                let parts = url.trim_end_matches('/').split_once("://");
                let scheme = match parts {
                    Some(("https", _)) => Scheme::Https,
                    Some(("http", _)) => Scheme::Http,
                    _ => return wrong("--behind-proxy takes an address", "like https://fleet.example.org"),
                };
                let host = parts.map(|(_, host)| host.to_owned()).unwrap_or_default();
                if host.is_empty() || host.contains(['/', '?', '#', '@', ' ']) {
                    return wrong(
                        "--behind-proxy takes an address without a path",
                        "like https://fleet.example.org",
                    );
                }
                Some(Self::Proxy { scheme, host })
            }
        };
        let tls = match (reach.tls_cert, reach.tls_key) {
            (Some(cert), Some(key)) => Some(Self::Tls { cert, key }),
            (None, None) => None,
            _ => return wrong("--tls-cert and --tls-key go together", "give both"),
        };
        if proxy.is_some() && tls.is_some() {
            return wrong("the proxy does the TLS, or we do", "leave --tls-cert and --tls-key out");
        }
        match proxy.or(tls) {
            Some(exposure) if host.is_loopback() || reach.has_token_file => Ok(exposure),
            Some(_) => wrong(
                "other machines may only come in with a token of your own",
                "make one (head -c 32 /dev/urandom | base64 > FILE; chmod 600 FILE) and give --token-file FILE",
            ),
            None if host.is_loopback() => Ok(Self::Loopback),
            None => wrong(
                "other machines may only come in over TLS",
                "give --tls-cert, --tls-key and --token-file, or --behind-proxy https://… and --token-file; or use a tunnel: \
                 ssh -L 8000:127.0.0.1:8000 HOST",
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a13_other_than_loopback_needs_a_token_file_and_tls_or_a_proxy() {
        let (near, far): (IpAddr, IpAddr) = ("127.0.0.1".parse().unwrap(), "0.0.0.0".parse().unwrap());
        let choose = |host, cert: bool, proxy: Option<&str>, has_token_file| {
            let file = cert.then(|| PathBuf::from("x.pem"));
            let behind_proxy = proxy.map(str::to_owned);
            Exposure::choose(
                host,
                Reach { tls_cert: file.clone(), tls_key: file, behind_proxy, has_token_file },
            )
            .map_err(|(message, _)| message)
        };
        assert_eq!(choose(near, false, None, false), Ok(Exposure::Loopback));
        assert!(choose(far, false, None, false).unwrap_err().contains("TLS"));
        assert!(choose(far, false, None, true).unwrap_err().contains("TLS"));
        assert!(choose(far, true, None, false).unwrap_err().contains("token"));
        assert!(choose(far, true, None, true).is_ok());
        assert!(choose(far, false, Some("https://a.example"), false).unwrap_err().contains("token"));
        assert_eq!(
            choose(far, false, Some("https://a.example/"), true),
            Ok(Exposure::Proxy { scheme: Scheme::Https, host: "a.example".into() })
        );
        assert!(choose(near, false, Some("a.example"), true).is_err());
        assert!(choose(near, false, Some("https://a.example/path"), true).is_err());
        assert!(choose(near, true, Some("https://a.example"), true).is_err());
    }
}
