//! The network of a fence: its own loopback, and on it a way to the one proxy.

use std::{
    io,
    net::{Ipv4Addr, TcpListener},
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

use tokio::io::AsyncReadExt as _;

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink::SocketAddrNetlink};

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
/// On a runtime without threads: a process whose children live in another process namespace can have none.
pub(crate) fn forward(listener: TcpListener, socket: &Path, ended: OwnedFd) -> io::Result<Vec<u8>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    runtime.block_on(async {
        listener.set_nonblocking(true)?;
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let mut ended = tokio::net::unix::pipe::Receiver::from_owned_fd(ended)?;
        let mut said = Vec::new();
        let accepting = async {
            loop {
                if let Ok((inside, _)) = listener.accept().await {
                    tokio::spawn(join(inside, socket.to_owned()));
                } else {
                    tokio::task::yield_now().await;
                }
            }
        };
        tokio::select! {
            read = ended.read_to_end(&mut said) => read.map(|_| ()),
            () = accepting => Ok(()),
        }?;
        Ok(said)
    })
}

async fn join(mut inside: tokio::net::TcpStream, socket: PathBuf) {
    // Without the proxy the program sees a closed connection.
    let Ok(mut outside) = tokio::net::UnixStream::connect(socket).await else { return };
    let _cut = tokio::io::copy_bidirectional(&mut inside, &mut outside).await;
}

/// The variables by which programs find the proxy.
pub(crate) fn variables() -> impl Iterator<Item = (&'static str, String)> {
    let proxy = ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"];
    let address = format!("http://127.0.0.1:{PROXY_PORT}");
    let direct = ["NO_PROXY", "no_proxy"].map(|name| (name, "localhost,127.0.0.1,::1".to_owned()));
    proxy.into_iter().map(move |name| (name, address.clone())).chain(direct)
}
