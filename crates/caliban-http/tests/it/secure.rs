//! Secure connections, with a root certificate of the tests' own.

use std::sync::Arc;

use caliban_http::{ClientOptions, HttpClient, HttpError};
use rustls::{
    ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use tokio::{io::AsyncWriteExt, net::TcpStream};
use tokio_rustls::TlsAcceptor;

use crate::peer::{accept, client, get, listen, read_request, text, write};

/// The root that signed the server's certificate.
pub(crate) const ROOT: &[u8] = include_bytes!("ca.pem");

fn acceptor() -> TlsAcceptor {
    let chain: Vec<_> =
        CertificateDer::pem_slice_iter(include_bytes!("server.pem")).collect::<Result<_, _>>().unwrap();
    let key = PrivateKeyDer::from_pem_slice(include_bytes!("server.key")).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder =
        ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    TlsAcceptor::from(Arc::new(builder.with_no_client_auth().with_single_cert(chain, key).unwrap()))
}

/// Speaks TLS on a connection, answers one request and returns it.
pub(crate) async fn answer_securely(stream: TcpStream, answer: &str) -> String {
    let mut stream = acceptor().accept(stream).await.unwrap();
    let request = read_request(&mut stream).await;
    write(&mut stream, answer).await;
    let _best_effort = stream.shutdown().await;
    request
}

#[tokio::test]
async fn a_trusted_server_is_spoken_to() {
    let (listener, _) = listen().await;
    let port = listener.local_addr().unwrap().port();
    let server = async {
        let stream = accept(&listener).await;
        answer_securely(stream, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await
    };
    let client =
        HttpClient::new(ClientOptions { extra_roots_pem: Some(ROOT.to_vec()), ..ClientOptions::default() });
    let target = format!("https://localhost:{port}/");
    let asked = async { text(get(&client, &target).await.unwrap()).await.unwrap() };
    let (request, answered) = tokio::join!(server, asked);
    assert_eq!((request.starts_with("GET / "), answered.as_str()), (true, "ok"));
}

#[tokio::test]
async fn a_secure_connection_is_used_again() {
    let (listener, _) = listen().await;
    let port = listener.local_addr().unwrap().port();
    let server = async {
        // One connection only: a second one would wait for ever.
        let mut stream = acceptor().accept(accept(&listener).await).await.unwrap();
        for _ in 0..3 {
            read_request(&mut stream).await;
            write(&mut stream, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await;
        }
    };
    let client =
        HttpClient::new(ClientOptions { extra_roots_pem: Some(ROOT.to_vec()), ..ClientOptions::default() });
    let target = format!("https://localhost:{port}/");
    let asked = async {
        for _ in 0..3 {
            assert_eq!(text(get(&client, &target).await.unwrap()).await.unwrap(), "ok");
        }
    };
    tokio::join!(server, asked);
}

#[tokio::test]
async fn an_unknown_certificate_is_refused() {
    let (listener, url) = listen().await;
    let server = async {
        let stream = accept(&listener).await;
        acceptor().accept(stream).await.map(|_| ())
    };
    let client = client();
    let target = url.replace("http:", "https:");
    let (accepted, answered) = tokio::join!(server, get(&client, &target));
    assert!(accepted.is_err());
    let error = answered.unwrap_err();
    assert!(matches!(error, HttpError::Tls { .. }), "{error:?}");
    assert_eq!(
        error.to_string(),
        "no secure connection to 127.0.0.1: invalid peer certificate: UnknownIssuer"
    );
}
