//! The other side of a connection, played by hand.

use caliban_http::{AddressPolicy, ClientOptions, HttpClient, HttpError, Method, Response};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

/// A listener and the URL of its root.
pub(crate) async fn listen() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    (listener, url)
}

pub(crate) async fn accept(listener: &TcpListener) -> TcpStream {
    let (stream, _) = listener.accept().await.unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

/// Reads a request: its head, and as much body as it says.
pub(crate) async fn read_request(stream: &mut (impl AsyncRead + Unpin)) -> String {
    let mut read = Vec::new();
    while !read.ends_with(b"\r\n\r\n") {
        read.push(stream.read_u8().await.unwrap());
    }
    let head = String::from_utf8(read).unwrap();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
    stream.read_exact(&mut body).await.unwrap();
    head + &String::from_utf8(body).unwrap()
}

pub(crate) async fn write(stream: &mut (impl AsyncWrite + Unpin), text: &str) {
    stream.write_all(text.as_bytes()).await.unwrap();
    stream.flush().await.unwrap();
}

/// Waits until the other side has closed.
pub(crate) async fn closed(stream: &mut TcpStream) {
    let mut rest = Vec::new();
    let _end_or_reset = stream.read_to_end(&mut rest).await;
}

pub(crate) async fn get(client: &HttpClient, url: &str) -> Result<Response, HttpError> {
    client.send(Method::GET, url, &[], bytes::Bytes::new()).await
}

/// The whole body as text.
pub(crate) async fn text(mut response: Response) -> Result<String, HttpError> {
    let body = response.bytes_up_to(1 << 20).await?;
    Ok(String::from_utf8(body.bytes.to_vec()).unwrap())
}

pub(crate) fn client() -> HttpClient {
    HttpClient::new(ClientOptions::default())
}

pub(crate) fn public_only() -> HttpClient {
    HttpClient::new(ClientOptions { address_policy: AddressPolicy::PublicOnly, ..ClientOptions::default() })
}
