//! From a URL to a connection: resolve, vet, connect, tunnel, secure.

use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpStream,
    task::JoinSet,
};
use url::Url;

use crate::{
    AddressPolicy, HttpError,
    proxy::{Hop, bare_host},
    tls::Tls,
};

/// How long one address has before the next one is tried beside it (RFC 8305).
const NEXT_ADDRESS_AFTER: Duration = Duration::from_millis(250);
/// The most that a proxy may say before the tunnel stands.
const PROXY_HEAD_LIMIT: usize = 16 * 1024;

/// Anything that bytes go through.
pub(crate) trait Io: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Io for T {}

/// A connection, whatever it is made of.
pub(crate) type Stream = Box<dyn Io>;

/// Connects for a URL, through a proxy where there is one. For `http` through a proxy this is the
/// connection to the proxy itself.
pub(crate) async fn connect(
    url: &Url,
    hop: Option<&Hop>,
    policy: AddressPolicy,
    tls: &Tls,
) -> Result<Stream, HttpError> {
    let host = bare_host(url);
    let stream = match hop {
        None => direct(&host, port(url), policy).await?,
        Some(hop) => {
            vet_for_proxy(&host, policy).await?;
            let proxy_host = bare_host(&hop.url);
            // The proxy is the user's own choice and usually sits in a private network.
            let mut stream = direct(&proxy_host, port(&hop.url), AddressPolicy::Any).await?;
            if hop.url.scheme() == "https" {
                stream = tls.wrap(&proxy_host, stream).await?;
            }
            if url.scheme() == "https" {
                tunnel(&mut stream, url, hop).await?;
            }
            stream
        }
    };
    if url.scheme() == "https" { tls.wrap(&host, stream).await } else { Ok(stream) }
}

/// Host and port, as people write them.
pub(crate) fn authority(url: &Url) -> String {
    format!("{}:{}", url.host_str().unwrap_or_default(), port(url))
}

fn port(url: &Url) -> u16 {
    url.port_or_known_default().unwrap_or(80)
}

async fn direct(host: &str, port: u16, policy: AddressPolicy) -> Result<Stream, HttpError> {
    let addresses = resolve(host, port).await?;
    if let Some(address) = policy.first_forbidden(addresses.iter().map(SocketAddr::ip)) {
        return Err(HttpError::AddressNotAllowed { host: host.to_owned(), address });
    }
    match race(interleaved(addresses)).await {
        Ok(stream) => {
            // Requests are written whole; waiting to fill a packet only costs time.
            let _best_effort = stream.set_nodelay(true);
            Ok(Box::new(stream))
        }
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => {
            Err(HttpError::Refused { host: format!("{host}:{port}") })
        }
        Err(error) => Err(HttpError::other(&format!("{host}:{port}"), error)),
    }
}

/// Behind a proxy it is the proxy that resolves the name, so the policy can only refuse what is
/// already known here: literal addresses, and names that resolve to a forbidden one.
async fn vet_for_proxy(host: &str, policy: AddressPolicy) -> Result<(), HttpError> {
    if policy == AddressPolicy::Any {
        return Ok(());
    }
    match resolve(host, 0).await {
        Ok(addresses) => match policy.first_forbidden(addresses.iter().map(SocketAddr::ip)) {
            Some(address) => Err(HttpError::AddressNotAllowed { host: host.to_owned(), address }),
            None => Ok(()),
        },
        // Networks with a proxy often have no DNS of their own for the outside.
        Err(_) => Ok(()),
    }
}

async fn resolve(host: &str, port: u16) -> Result<Vec<SocketAddr>, HttpError> {
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    let dns = |source| HttpError::Dns { host: host.to_owned(), source };
    let found: Vec<SocketAddr> = tokio::net::lookup_host((host, port)).await.map_err(dns)?.collect();
    if found.is_empty() {
        return Err(dns(std::io::Error::other("the name has no address")));
    }
    Ok(found)
}

/// IPv6 and IPv4 in turn, beginning with the kind that the resolver put first.
fn interleaved(addresses: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let first_is_v6 = addresses.first().is_some_and(SocketAddr::is_ipv6);
    let (one, other): (Vec<_>, Vec<_>) = addresses.into_iter().partition(|a| a.is_ipv6() == first_is_v6);
    let mut other = other.into_iter();
    let mut mixed: Vec<SocketAddr> =
        one.into_iter().flat_map(|a| [Some(a), other.next()]).flatten().collect();
    mixed.extend(other);
    mixed
}

/// The first address that answers; the others are tried beside it when it is slow.
async fn race(addresses: Vec<SocketAddr>) -> std::io::Result<TcpStream> {
    let mut waiting = addresses.into_iter();
    let mut tries = JoinSet::new();
    let mut last = std::io::Error::other("no address to connect to");
    loop {
        let next = waiting.next();
        let more = next.is_some();
        if let Some(address) = next {
            tries.spawn(TcpStream::connect(address));
        }
        let ended = tokio::select! {
            ended = tries.join_next() => ended,
            () = tokio::time::sleep(NEXT_ADDRESS_AFTER), if more => continue,
        };
        match ended {
            Some(Ok(Ok(stream))) => return Ok(stream),
            Some(Ok(Err(error))) => last = error,
            Some(Err(error)) => last = std::io::Error::other(error),
            None => return Err(last),
        }
    }
}

async fn tunnel(stream: &mut Stream, url: &Url, hop: &Hop) -> Result<(), HttpError> {
    let proxy = authority(&hop.url);
    let refused = |reason: String| HttpError::Proxy { proxy: proxy.clone(), reason };
    let target = authority(url);
    let login = match &hop.authorization {
        Some(value) => format!("Proxy-Authorization: {value}\r\n"),
        None => String::new(),
    };
    let head = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n{login}\r\n");
    let io = |error: std::io::Error| HttpError::other(&proxy, error);
    stream.write_all(head.as_bytes()).await.map_err(io)?;
    stream.flush().await.map_err(io)?;
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        if answer.len() >= PROXY_HEAD_LIMIT {
            return Err(refused("its answer is too long".to_owned()));
        }
        // One byte at a time: what follows the head belongs to the tunnel.
        match stream.read_u8().await {
            Ok(byte) => answer.push(byte),
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
                return Err(refused("it closed the connection".to_owned()));
            }
            Err(error) => return Err(io(error)),
        }
    }
    let answer = String::from_utf8_lossy(&answer);
    let line = answer.lines().next().unwrap_or_default();
    match line.split(' ').nth(1).and_then(|code| code.parse::<u16>().ok()) {
        Some(200..=299) => Ok(()),
        Some(407) => Err(refused("it wants a login (http://user:password@host:port)".to_owned())),
        _ => Err(refused(line.chars().filter(|c| !c.is_control()).take(200).collect())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_families_take_turns() {
        let parse = |list: &[&str]| list.iter().map(|a| a.parse().unwrap()).collect::<Vec<SocketAddr>>();
        let mixed = interleaved(parse(&["[::1]:1", "[::2]:1", "1.1.1.1:1", "1.1.1.2:1", "1.1.1.3:1"]));
        assert_eq!(mixed, parse(&["[::1]:1", "1.1.1.1:1", "[::2]:1", "1.1.1.2:1", "1.1.1.3:1"]));
    }
}
