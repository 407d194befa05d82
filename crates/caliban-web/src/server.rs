//! Listening: connections, their limits, TLS, and shutdown.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tower::ServiceExt as _;

use crate::half_open::{HalfOpen, HalfOpenPlace};
use crate::peer::{ConnectionEnds, Seat};

/// Maximum number of open connections. Further ones wait.
const CONNECTIONS: usize = 1024;
/// Time limit for the head of a request.
const HEAD_LIMIT: Duration = Duration::from_secs(15);
/// Maximum size of the head.
const HEAD_CAP: usize = 64 * 1024;
/// Time limit of a TLS handshake.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(10);
/// Grace period for requests in flight at shutdown. Event streams never end by themselves.
const LEAVING: Duration = Duration::from_millis(500);
/// The pause after the system has run out of file descriptors.
const BREATH: Duration = Duration::from_millis(50);

/// The TLS acceptor from two PEM files, and the server's own certificate.
pub(crate) fn acceptor(cert: &Path, key: &Path) -> io::Result<(TlsAcceptor, CertificateDer<'static>)> {
    let unread =
        |path: &Path, error: &dyn std::fmt::Display| io::Error::other(format!("{}: {error}", path.display()));
    let certs: Result<Vec<_>, _> =
        CertificateDer::pem_file_iter(cert).map_err(|error| unread(cert, &error))?.collect();
    let certs = certs.map_err(|error| unread(cert, &error))?;
    let own = certs.first().cloned().ok_or_else(|| unread(cert, &"it has no certificate"))?;
    let key = PrivateKeyDer::from_pem_file(key).map_err(|error| unread(key, &error))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(certs, key))
        .map_err(|error| unread(cert, &error))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok((TlsAcceptor::from(Arc::new(config)), own))
}

/// Serves until SIGINT or SIGTERM.
pub(crate) async fn run(listener: TcpListener, router: Router, tls: Option<TlsAcceptor>) -> io::Result<()> {
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    let (leave, leaving) = watch::channel(false);
    let half_open = HalfOpen::default();
    let mut connections = JoinSet::new();
    loop {
        let place = tokio::select! {
            _ = interrupt.recv() => break,
            _ = terminate.recv() => break,
            Some(_ended) = connections.join_next() => continue,
            place = Arc::clone(&places).acquire_owned() => place.map_err(io::Error::other)?,
        };
        let (stream, peer) = tokio::select! {
            _ = interrupt.recv() => break,
            _ = terminate.recv() => break,
            accepted = listener.accept() => match accepted {
                Ok(accepted) => accepted,
                Err(_) => {
                    tokio::time::sleep(BREATH).await;
                    continue;
                }
            },
        };
        let (router, tls, leaving) = (router.clone(), tls.clone(), leaving.clone());
        let (half_open, mut closed) = half_open.enter(peer.ip());
        connections.spawn(async move {
            let _place = place;
            tokio::select! {
                // An error of one connection concerns that client only.
                _broken = connection(stream, peer, router, tls, leaving, half_open) => {}
                Ok(()) = &mut closed => {}
            }
        });
    }
    let _nobody_left = leave.send(true);
    let all_gone = async { while connections.join_next().await.is_some() {} };
    let _in_time = tokio::time::timeout(LEAVING, all_gone).await;
    Ok(())
}

async fn connection(
    stream: TcpStream,
    peer: SocketAddr,
    router: Router,
    tls: Option<TlsAcceptor>,
    leaving: watch::Receiver<bool>,
    half_open: HalfOpenPlace,
) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let ends = ConnectionEnds { peer, own: stream.local_addr()? };
    match tls {
        None => serve(stream, ends, router, leaving, half_open).await,
        Some(acceptor) => {
            let stream = tokio::time::timeout(HANDSHAKE_LIMIT, acceptor.accept(stream)).await??;
            serve(stream, ends, router, leaving, half_open).await
        }
    }
}

async fn serve<S>(
    stream: S,
    ends: ConnectionEnds,
    router: Router,
    mut leaving: watch::Receiver<bool>,
    half_open: HalfOpenPlace,
) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let seat = Arc::new(Seat::new(ends));
    // The service is cloned for each request; the first one gives the place up.
    let half_open = Arc::new(Mutex::new(Some(half_open)));
    let service = router.map_request(move |mut request: http::Request<hyper::body::Incoming>| {
        drop(half_open.lock().unwrap_or_else(PoisonError::into_inner).take());
        request.extensions_mut().insert(Arc::clone(&seat));
        request.map(axum::body::Body::new)
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_LIMIT)
        .max_buf_size(HEAD_CAP)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(service));
    tokio::pin!(connection);
    tokio::select! {
        ended = connection.as_mut() => return ended.map_err(io::Error::other),
        _ = leaving.wait_for(|leaves| *leaves) => connection.as_mut().graceful_shutdown(),
    }
    connection.await.map_err(io::Error::other)
}
