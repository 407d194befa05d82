//! What the binary hands in: where to listen, where things are, and which programs carry out what only they can.

use std::net::IpAddr;
use std::path::PathBuf;

use caliban_contract::PlaceSources;
use caliban_store::StoreUrl;

/// The port when nobody says otherwise.
pub const DEFAULT_PORT: u16 = 8000;

/// How a server is to be.
#[derive(Debug, Clone)]
pub struct ServerOptions {
    /// The address to listen on.
    pub host: IpAddr,
    /// The port; 0 takes any that is free.
    pub port: u16,
    /// Who can reach it, and how that is made safe.
    pub exposure: Exposure,
    /// Where fleets keep their things.
    pub sources: PlaceSources,
    /// The broker's database.
    pub broker: Option<StoreUrl>,
    /// A file with the token of scripts; one of our own when absent.
    pub token_file: Option<PathBuf>,
    /// The programs beside us.
    pub programs: Programs,
}

/// The programs that carry out what only they can: a new agent takes the settings of its repo, a message is typed into a pane.
#[derive(Debug, Clone)]
pub struct Programs {
    /// `caliban`.
    pub caliban: PathBuf,
    /// `cafleet`.
    pub cafleet: PathBuf,
}

impl Programs {
    /// Those beside the own executable, else by their names, as `PATH` has them.
    #[must_use]
    pub fn beside(own: &std::path::Path) -> Self {
        let find = |name: &str| {
            let beside = own.parent().map(|dir| dir.join(name)).filter(|program| program.is_file());
            beside.unwrap_or_else(|| PathBuf::from(name))
        };
        Self { caliban: find("caliban"), cafleet: find("cafleet") }
    }
}

/// Who can reach the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Exposure {
    /// This machine only.
    Loopback,
    /// Others, over TLS, by the names that the certificate has.
    Tls {
        /// The certificates, PEM; the first one is the server's own.
        cert: PathBuf,
        /// The key, PEM.
        key: PathBuf,
    },
    /// Others, through a proxy that does TLS.
    Proxy {
        /// What browsers speak with it.
        scheme: Scheme,
        /// Its host, with the port if that is unusual.
        host: String,
    },
}

/// How browsers speak with a proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheme {
    /// Plain.
    Http,
    /// Over TLS.
    Https,
}

impl Scheme {
    /// As addresses have it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }
}

/// What the command line says about who can reach the server.
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
    /// Other than loopback needs a token file and TLS, or a proxy that somebody names.
    ///
    /// # Errors
    /// In words, with what to do about it.
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
