//! A server that is running already: the record that it has written, and a request for another link with the token that
//! both can read. Over TLS only the certificate in the record is trusted.

use std::fs::File;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use caliban_core::hex;
use http::{Request, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustix::fs::{FlockOperation, flock};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, SignatureScheme};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::{Ready, devices};

/// Time limit of the request.
const LIMIT: Duration = Duration::from_secs(5);
/// Maximum size of the response.
const CAP: usize = 64 * 1024;

/// The record that a server leaves for the next one that finds its port in use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RunningRecord {
    /// The digest of its certificate; `None` for plain HTTP.
    cert: Option<String>,
    /// The file from which scripts read its token.
    token_file: PathBuf,
}

impl RunningRecord {
    pub(crate) fn new(cert: Option<&CertificateDer<'_>>, token_file: PathBuf) -> Self {
        Self { cert: cert.map(digest), token_file }
    }

    /// Writes the record and locks it until it is dropped: the record of a server that was killed is not locked. Best
    /// effort.
    pub(crate) fn write(&self, dir: &Path, port: u16) -> Option<WrittenRecord> {
        let path = place(dir, port);
        let write = || -> io::Result<File> {
            let mut file =
                File::options().write(true).create(true).truncate(false).mode(0o600).open(&path)?;
            flock(&file, FlockOperation::NonBlockingLockExclusive)?;
            file.set_len(0)?;
            file.write_all(&serde_json::to_vec(self).map_err(io::Error::other)?)?;
            Ok(file)
        };
        let file = write().ok()?;
        Some(WrittenRecord { path, _lock: file })
    }

    /// Reads the record of a server that is running.
    fn read(dir: &Path, port: u16) -> Option<Self> {
        let path = place(dir, port);
        let file = File::open(&path).ok()?;
        flock(&file, FlockOperation::NonBlockingLockShared).is_err().then_some(())?;
        serde_json::from_str(&devices::read(&path).ok()??).ok()
    }
}

/// A written record; removed when its server ends.
#[derive(Debug)]
pub(crate) struct WrittenRecord {
    path: PathBuf,
    _lock: File,
}

impl Drop for WrittenRecord {
    fn drop(&mut self) {
        let _none = std::fs::remove_file(&self.path);
    }
}

fn place(dir: &Path, port: u16) -> PathBuf {
    dir.join(format!("running-{port}.json"))
}

fn digest(cert: &CertificateDer<'_>) -> String {
    hex::encode(&Sha256::digest(cert))
}

/// A link from the server at this address; `None` if it is not ours. A foreign program on the port never receives the
/// token.
pub(crate) async fn ask(dir: &Path, address: SocketAddr, own_file: &Path, token: String) -> Option<Ready> {
    let there = RunningRecord::read(dir, address.port())?;
    let token = match there.token_file == own_file {
        true => token,
        false => devices::read(&there.token_file).ok().flatten()?.trim().to_owned(),
    };
    let asked = async {
        let link = request(address, &there, "POST", "/api/v1/links", &token).await?;
        let me = request(address, &there, "GET", "/api/v1/me", &token).await?;
        let server = me.get("server")?;
        Some(Ready {
            url: link.get("url")?.as_str()?.to_owned(),
            origin: server.get("origin")?.as_str()?.to_owned(),
            address,
            pid: u32::try_from(server.get("pid")?.as_u64()?).ok()?,
            token_file: there.token_file.clone(),
            was_running: true,
        })
    };
    tokio::time::timeout(LIMIT, asked).await.ok().flatten()
}

async fn request(
    address: SocketAddr,
    there: &RunningRecord,
    method: &str,
    path: &str,
    token: &str,
) -> Option<Value> {
    let stream = TcpStream::connect(address).await.ok()?;
    let Some(cert) = there.cert.clone() else { return over(stream, address, method, path, token).await };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .ok()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Pinned { cert, provider }))
        .with_no_client_auth();
    let name = ServerName::IpAddress(address.ip().into());
    let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await.ok()?;
    over(stream, address, method, path, token).await
}

async fn over<S>(stream: S, address: SocketAddr, method: &str, path: &str, token: &str) -> Option<Value>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.ok()?;
    let driver = tokio::spawn(connection);
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(header::HOST, address.to_string())
        .header(header::AUTHORIZATION, format!("Bearer {token}"))
        .body(Full::<Bytes>::default())
        .ok()?;
    let answer = sender.send_request(request).await.ok().filter(|answer| answer.status().is_success());
    let body = match answer {
        Some(answer) => {
            Limited::new(answer.into_body(), CAP).collect().await.ok().map(|body| body.to_bytes())
        }
        None => None,
    };
    driver.abort();
    serde_json::from_slice(&body?).ok()
}

/// Trusts exactly one certificate, whatever its names.
#[derive(Debug)]
struct Pinned {
    cert: String,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        match digest(end_entity) == self.cert {
            true => Ok(ServerCertVerified::assertion()),
            false => Err(rustls::Error::General("this is another server's certificate".to_owned())),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, signed, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, signed, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
