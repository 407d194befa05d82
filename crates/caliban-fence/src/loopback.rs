//! The network of a fence: its own loopback, and on it a way to the one proxy.

use std::{
    fs::File,
    io::{self, Read, Write},
    net::{Ipv4Addr, Shutdown, TcpListener, TcpStream},
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::UnixStream,
    },
    path::Path,
};

use rustix::{
    event::{PollFd, PollFlags},
    net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink::SocketAddrNetlink},
};

/// How much is read of a connection at once.
const BLOCK_BYTES: usize = 64 << 10;
/// The port of the proxy on the fence's own loopback.
pub const PROXY_PORT: u16 = 3128;
/// The loopback is the first interface of every network namespace.
const LOOPBACK: i32 = 1;

/// Switches the loopback on.
pub(crate) fn up() -> io::Result<()> {
    const RTM_NEWLINK: u16 = 16;
    const NLM_F_REQUEST_ACK: u16 = 1 | 4;
    const IFF_UP: u32 = 1;
    let socket =
        rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    let mut message = Vec::new();
    // struct nlmsghdr
    message.extend(32u32.to_ne_bytes());
    message.extend(RTM_NEWLINK.to_ne_bytes());
    message.extend(NLM_F_REQUEST_ACK.to_ne_bytes());
    message.extend([0; 8]);
    // struct ifinfomsg: family, padding, type, index, flags, change
    message.extend([0; 4]);
    message.extend(LOOPBACK.to_ne_bytes());
    message.extend(IFF_UP.to_ne_bytes());
    message.extend(IFF_UP.to_ne_bytes());
    rustix::net::sendto(&socket, &message, SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
    let mut answer = [0; 512];
    let (got, _) = rustix::net::recv(&socket, &mut answer, RecvFlags::empty())?;
    // struct nlmsgerr follows the header; its first field is the error.
    let error = answer.get(16..20).filter(|_| got >= 20).and_then(|bytes| bytes.try_into().ok());
    match error.map(i32::from_ne_bytes) {
        Some(0) => Ok(()),
        Some(error) => Err(io::Error::from_raw_os_error(-error)),
        None => Err(io::Error::other("no answer from the kernel")),
    }
}

pub(crate) fn listen() -> io::Result<TcpListener> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, PROXY_PORT))
}

/// Passes on what comes, until the pipe says that the program has ended. Returns what the pipe says.
///
/// Without threads, which a process whose children live in another process namespace cannot have, and without a runtime (see
/// [`crate::helper`]).
pub(crate) fn forward(listener: &TcpListener, socket: &Path, ended: OwnedFd) -> io::Result<Vec<u8>> {
    listener.set_nonblocking(true)?;
    let mut joints: Vec<Joint> = Vec::new();
    loop {
        let mut waits = vec![PollFd::new(&ended, PollFlags::IN), PollFd::new(listener, PollFlags::IN)];
        let mut whose = Vec::new();
        for (at, Joint { inside, outside, out, back }) in joints.iter().enumerate() {
            let ends = [(inside.as_fd(), wanted(out, back)), (outside.as_fd(), wanted(back, out))];
            // An end that was closed is ready for ever: only one that something can be done with is waited for.
            for (end, flags) in ends.into_iter().filter(|(_, flags)| !flags.is_empty()) {
                waits.push(PollFd::from_borrowed_fd(end, flags));
                whose.push(at);
            }
        }
        match rustix::event::poll(&mut waits, None) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        }
        let ready: Vec<bool> = waits.iter().map(|wait| !wait.revents().is_empty()).collect();
        if ready[0] {
            let mut said = Vec::new();
            File::from(ended).read_to_end(&mut said)?;
            return Ok(said);
        }
        let mut number = 0..;
        joints.retain_mut(|joint| {
            let number = number.next();
            let is_ready = whose.iter().zip(&ready[2..]).any(|(at, ready)| *ready && Some(*at) == number);
            !is_ready || joint.pass_on().is_ok_and(|is_open| is_open)
        });
        if ready[1] {
            // Without the proxy the program sees a closed connection.
            joints.extend(listener.accept().and_then(|(inside, _)| Joint::new(inside, socket)).ok());
        }
    }
}

/// A connection of the program, and its way to the proxy.
struct Joint {
    inside: TcpStream,
    outside: UnixStream,
    out: Flow,
    back: Flow,
}

/// What was read at one end and is not yet written at the other.
#[derive(Default)]
struct Flow {
    held: Vec<u8>,
    /// Nothing more comes.
    is_over: bool,
}

/// What an end is waited for, where one flow begins and the other one ends.
fn wanted(from_here: &Flow, to_here: &Flow) -> PollFlags {
    let mut flags = PollFlags::empty();
    flags.set(PollFlags::IN, !from_here.is_over && from_here.held.is_empty());
    flags.set(PollFlags::OUT, !to_here.held.is_empty());
    flags
}

impl Joint {
    fn new(inside: TcpStream, socket: &Path) -> io::Result<Self> {
        let outside = UnixStream::connect(socket)?;
        inside.set_nonblocking(true)?;
        outside.set_nonblocking(true)?;
        Ok(Self { inside, outside, out: Flow::default(), back: Flow::default() })
    }

    /// Whether there is more to come.
    fn pass_on(&mut self) -> io::Result<bool> {
        let Self { inside, outside, out, back } = self;
        if out.pass_on(&*inside, &*outside)? {
            outside.shutdown(Shutdown::Write)?;
        }
        if back.pass_on(&*outside, &*inside)? {
            inside.shutdown(Shutdown::Write)?;
        }
        Ok(!out.is_over || !back.is_over || !out.held.is_empty() || !back.held.is_empty())
    }
}

impl Flow {
    /// Moves what can be moved now. Whether its end was passed just now.
    fn pass_on(&mut self, mut from: impl Read, mut to: impl Write) -> io::Result<bool> {
        let later = |error: io::Error| match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(None),
            _ => Err(error),
        };
        let was_over = self.is_over && self.held.is_empty();
        if !self.is_over && self.held.is_empty() {
            let mut block = vec![0; BLOCK_BYTES];
            if let Some(got) = from.read(&mut block).map(Some).or_else(later)? {
                self.is_over = got == 0;
                block.truncate(got);
                self.held = block;
            }
        }
        if !self.held.is_empty()
            && let Some(put) = to.write(&self.held).map(Some).or_else(later)?
        {
            self.held.drain(..put);
        }
        Ok(!was_over && self.is_over && self.held.is_empty())
    }
}

/// The variables by which programs find the proxy.
pub(crate) fn variables() -> impl Iterator<Item = (&'static str, String)> {
    let proxy = ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"];
    let address = format!("http://127.0.0.1:{PROXY_PORT}");
    let direct = ["NO_PROXY", "no_proxy"].map(|name| (name, "localhost,127.0.0.1,::1".to_owned()));
    proxy.into_iter().map(move |name| (name, address.clone())).chain(direct)
}
