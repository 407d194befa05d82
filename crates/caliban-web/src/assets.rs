//! The page's files. A release build embeds them; a debug build reads them from the disk at each request.

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use caliban_core::hex;
use http::{HeaderMap, StatusCode, header};
use rust_embed::Embed;

use crate::error::Problem;

#[derive(Embed)]
#[folder = "assets/"]
struct Assets;

/// The file for a path. A path without a dot in its last segment is the page itself, whose script reads the path.
pub(crate) fn answer(path: &str, headers: &HeaderMap) -> Response {
    let wanted = path.trim_start_matches('/');
    let is_page = !wanted.rsplit('/').next().unwrap_or_default().contains('.');
    let name = if is_page { "index.html" } else { wanted };
    let Some(file) = Assets::get(name) else {
        return Problem::not_found(format!("there is no {path}")).into_response();
    };
    let etag = format!("\"{}\"", hex::encode(&file.metadata.sha256_hash()[..16]));
    let fixed = [(header::ETAG, etag.as_str()), (header::CACHE_CONTROL, "no-cache")];
    if headers.get(header::IF_NONE_MATCH).is_some_and(|known| known.as_bytes() == etag.as_bytes()) {
        return (StatusCode::NOT_MODIFIED, fixed).into_response();
    }
    (fixed, [(header::CONTENT_TYPE, kind(name))], Body::from(file.data.into_owned())).into_response()
}

fn kind(name: &str) -> &'static str {
    match name.rsplit('.').next().unwrap_or_default() {
        "html" => "text/html; charset=utf-8",
        "js" | "mjs" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "ico" => "image/x-icon",
        "json" => "application/json",
        "webmanifest" => "application/manifest+json",
        "woff2" => "font/woff2",
        _ => "text/plain; charset=utf-8",
    }
}
