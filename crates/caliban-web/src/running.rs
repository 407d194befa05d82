//! A server that is there already: asked for another link, with the token that both can read.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;

use crate::Ready;

/// How long it may take.
const LIMIT: Duration = Duration::from_secs(5);
/// The largest answer.
const CAP: usize = 64 * 1024;

/// A link of the server at this address; none when it is not ours.
pub(crate) async fn ask(address: SocketAddr, token_file: &Path, token: &str) -> Option<Ready> {
    let asked = async {
        let link = request(address, "POST", "/api/v1/links", token).await?;
        let me = request(address, "GET", "/api/v1/me", token).await?;
        let server = me.get("server")?;
        Some(Ready {
            url: link.get("url")?.as_str()?.to_owned(),
            origin: server.get("origin")?.as_str()?.to_owned(),
            address,
            pid: u32::try_from(server.get("pid")?.as_u64()?).ok()?,
            token_file: token_file.to_owned(),
            was_running: true,
        })
    };
    tokio::time::timeout(LIMIT, asked).await.ok().flatten()
}

async fn request(address: SocketAddr, method: &str, path: &str, token: &str) -> Option<Value> {
    let stream = TcpStream::connect(address).await.ok()?;
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
