//! The proxy of fenced commands: HTTP CONNECT and plain HTTP to a list of hosts, on a socket that only our helper reaches.
//!
//! It resolves names itself, so a fenced command needs no DNS. It refuses addresses of this machine and of private networks,
//! also when a listed name leads there: the list is about the outside. Threads, because few connections are open at a time
//! and the worker's runtime has one thread.

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    net::{Shutdown, TcpStream, ToSocketAddrs},
    os::unix::{
        fs::DirBuilderExt,
        net::{UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use caliban_core::address::AddressPolicy;
use caliban_process::thread_with_room;

/// How long a host may take to answer the call.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
/// The longest head of a request.
const HEAD_BYTES: u64 = 64 << 10;
/// Connections at a time; more are refused.
const MOST: usize = 128;

/// What a refusal begins with; the Bash tool knows it.
pub const REFUSED: &str = "403 Forbidden by the fence";

/// Which hosts can be reached.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hosts(Vec<String>);

impl Hosts {
    /// `example.org`, `*.example.org` (those below it), `*`.
    pub fn new(patterns: impl IntoIterator<Item = String>) -> Self {
        let plain = |text: String| text.trim().trim_end_matches('.').to_ascii_lowercase();
        Self(patterns.into_iter().map(plain).filter(|text| !text.is_empty()).collect())
    }

    /// Whether a host is on the list.
    pub fn allow(&self, host: &str) -> bool {
        let host = host.trim_end_matches('.').to_ascii_lowercase();
        self.0.iter().any(|pattern| match pattern.strip_prefix("*.") {
            Some(below) => host.strip_suffix(below).is_some_and(|front| front.ends_with('.')),
            None => pattern == "*" || *pattern == host,
        })
    }
}

/// A proxy that runs until this is dropped.
#[derive(Debug)]
pub struct Proxy {
    socket: PathBuf,
    ended: Arc<AtomicBool>,
}

impl Proxy {
    /// Listens in a directory of its own, which only this user can enter.
    pub fn start(hosts: Hosts, policy: AddressPolicy) -> io::Result<Self> {
        let directory = private_directory()?;
        let socket = directory.join("proxy.sock");
        let listener = UnixListener::bind(&socket)?;
        let ended = Arc::new(AtomicBool::new(false));
        let flag = ended.clone();
        std::thread::Builder::new()
            .name("fence-proxy".to_owned())
            .spawn(move || serve(&listener, &Arc::new(hosts), policy, &flag))?;
        Ok(Self { socket, ended })
    }

    /// Where it listens.
    pub fn socket(&self) -> &Path {
        &self.socket
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        // Wakes the accepting thread.
        let _gone = UnixStream::connect(&self.socket);
        let _gone = std::fs::remove_file(&self.socket);
        let _gone = self.socket.parent().map(std::fs::remove_dir);
    }
}

/// A new directory with a short name: the path of a socket has little room.
fn private_directory() -> io::Result<PathBuf> {
    /// As many proxies as one process may have had.
    const TRIES: u32 = 1_000;
    let names =
        (0..TRIES).map(|number| PathBuf::from(format!("/tmp/caliban-fence-{}-{number}", std::process::id())));
    for path in names {
        match std::fs::DirBuilder::new().mode(0o700).create(&path) {
            Ok(()) => return Ok(path),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

fn serve(listener: &UnixListener, hosts: &Arc<Hosts>, policy: AddressPolicy, ended: &AtomicBool) {
    let open = Arc::new(());
    for stream in listener.incoming() {
        if ended.load(Ordering::Relaxed) {
            return;
        }
        let Ok(stream) = stream else { continue };
        if Arc::strong_count(&open) > MOST {
            continue;
        }
        let (hosts, held) = (hosts.clone(), open.clone());
        // Without room for its thread the connection is closed.
        let _closed = thread_with_room("fence-proxy", move || {
            let _held = held;
            // The other side is gone.
            let _cut = answer(stream, &hosts, policy);
        });
    }
}

/// One connection: one request, then bytes both ways.
fn answer(mut stream: UnixStream, hosts: &Hosts, policy: AddressPolicy) -> io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut head = Vec::new();
    {
        let mut limited = (&mut reader).take(HEAD_BYTES);
        while limited.read_until(b'\n', &mut head)? > 0
            && !head.ends_with(b"\r\n\r\n")
            && !head.ends_with(b"\n\n")
        {}
    }
    let text = String::from_utf8_lossy(&head).into_owned();
    let Some(request) = ProxyRequest::parse(&text) else {
        return refuse(&mut stream, "400 Bad Request", "the proxy understands CONNECT and http://");
    };
    if !hosts.allow(&request.host) {
        let why = format!("{} is not among the domains of [fence] in the settings", request.host);
        return refuse(&mut stream, REFUSED, &why);
    }
    let server = match connect(&request.host, request.port, policy) {
        Ok(server) => server,
        Err(why) => return refuse(&mut stream, "502 Bad Gateway", &why),
    };
    match &request.forward {
        None => stream.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n")?,
        Some(head) => (&server).write_all(head.as_bytes())?,
    }
    // What came behind the head.
    (&server).write_all(reader.buffer())?;
    let (mut up, mut to_server) = (stream.try_clone()?, server.try_clone()?);
    thread_with_room("fence-proxy", move || {
        let _cut = io::copy(&mut up, &mut to_server);
        let _closed = to_server.shutdown(Shutdown::Write);
    })?;
    let mut from_server = &server;
    let _cut = io::copy(&mut from_server, &mut stream);
    stream.shutdown(Shutdown::Write)
}

fn refuse(stream: &mut UnixStream, status: &str, why: &str) -> io::Result<()> {
    let body = format!("{why}\n");
    let length = body.len();
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )
}

/// What is asked for.
#[derive(Debug, PartialEq, Eq)]
struct ProxyRequest {
    host: String,
    port: u16,
    /// The head for the server, when it is plain HTTP.
    forward: Option<String>,
}

impl ProxyRequest {
    fn parse(head: &str) -> Option<Self> {
        let (line, rest) = head.split_once("\r\n").or_else(|| head.split_once('\n'))?;
        let mut words = line.split(' ');
        let (method, target, version) = (words.next()?, words.next()?, words.next()?);
        if method == "CONNECT" {
            let (host, port) = authority(target, None)?;
            return Some(Self { host, port, forward: None });
        }
        let after = target.strip_prefix("http://")?;
        let (place, path) = match after.find('/') {
            Some(at) => after.split_at(at),
            None => (after, "/"),
        };
        let (host, port) = authority(place, Some(80))?;
        // One request for each connection: the next one may be for another host.
        let kept = rest.lines().filter(|line| {
            let name = line.split(':').next().unwrap_or_default().to_ascii_lowercase();
            !matches!(name.as_str(), "proxy-connection" | "connection" | "keep-alive" | "proxy-authorization")
        });
        let headers: String =
            kept.take_while(|line| !line.is_empty()).map(|line| format!("{line}\r\n")).collect();
        let forward = format!("{method} {path} {version}\r\n{headers}Connection: close\r\n\r\n");
        Some(Self { host, port, forward: Some(forward) })
    }
}

fn authority(text: &str, usual: Option<u16>) -> Option<(String, u16)> {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, port.parse().ok()?),
        _ => (text, usual?),
    };
    let host = host.trim_matches(['[', ']']);
    let fits = !host.is_empty() && host.chars().all(|c| c.is_ascii_alphanumeric() || "-._:".contains(c));
    fits.then(|| (host.to_owned(), port))
}

fn connect(host: &str, port: u16, policy: AddressPolicy) -> Result<TcpStream, String> {
    let found = (host, port).to_socket_addrs().map_err(|error| format!("{host}: {error}"))?;
    let mut why = format!("{host} has no address");
    for address in found {
        if policy.first_forbidden([address.ip()]).is_some() {
            why = format!("{host} leads to {}, which is not a public address", address.ip());
            continue;
        }
        match TcpStream::connect_timeout(&address, CONNECT_TIMEOUT) {
            Ok(stream) => return Ok(stream),
            Err(error) => why = format!("{host}: {error}"),
        }
    }
    Err(why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_matched_as_they_are_written() {
        let hosts = Hosts::new(["crates.io".to_owned(), "*.Example.org.".to_owned()]);
        let asked =
            ["crates.io", "CRATES.IO.", "x.crates.io", "a.example.org", "example.org", "aexample.org", ""];
        assert_eq!(asked.map(|host| hosts.allow(host)), [true, true, false, true, false, false, false]);
        assert!(Hosts::new(["*".to_owned()]).allow("anything"));
        assert!(!Hosts::default().allow("crates.io"));
    }

    #[test]
    fn requests_are_read() {
        let connect = ProxyRequest::parse("CONNECT crates.io:443 HTTP/1.1\r\nHost: x\r\n\r\n");
        assert_eq!(connect, Some(ProxyRequest { host: "crates.io".into(), port: 443, forward: None }));
        let plain = ProxyRequest::parse(
            "GET http://a.b/c?d HTTP/1.1\r\nHost: a.b\r\nProxy-Connection: keep-alive\r\n\r\n",
        );
        let forward = Some("GET /c?d HTTP/1.1\r\nHost: a.b\r\nConnection: close\r\n\r\n".to_owned());
        assert_eq!(plain, Some(ProxyRequest { host: "a.b".into(), port: 80, forward }));
        for bad in [
            "",
            "GET / HTTP/1.1\r\n\r\n",
            "CONNECT x HTTP/1.1\r\n\r\n",
            "CONNECT a b:1 H\r\n",
            "CONNECT x@y:1 H\r\n",
        ] {
            assert_eq!(ProxyRequest::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn addresses_of_this_machine_and_of_private_networks_are_not_public() {
        let public =
            |text: &str| AddressPolicy::PublicOnly.first_forbidden([text.parse().unwrap()]).is_none();
        for text in [
            "127.0.0.1",
            "10.1.2.3",
            "169.254.169.254",
            "100.64.0.1",
            "0.0.0.0",
            "::1",
            "fe80::1",
            "fd00::1",
            "::ffff:127.0.0.1",
        ] {
            assert!(!public(text), "{text}");
        }
        assert!(public("1.1.1.1") && public("2606:4700::1111"));
    }
}
