//! WebFetch: one page as markdown or text, within limits of size, time and address.

use std::sync::Arc;

use bytes::Bytes;
use caliban_core::{access::Access, message::ToolSpec};
use caliban_http::{HttpClient, Method, Response};
use serde::Deserialize;
use serde_json::{Value, json};
use url::Url;

use crate::{
    BuiltinTool, CallContext, ToolOutput, Workspace, blocking, error_text, full_output, input,
    limits::{FETCH_BYTES, REDIRECTS},
};

mod page;
pub(crate) mod search;

/// Markdown first: pages that have it are shorter and need no conversion.
const ACCEPT: &str = "text/markdown, text/html;q=0.9, text/plain;q=0.8, application/json;q=0.8, */*;q=0.1";
/// Characters of an error page that the model sees.
const ERROR_CHARS: usize = 1_000;

pub(crate) struct WebFetch(pub(crate) Arc<Workspace>);

#[derive(Deserialize)]
struct FetchInput {
    url: String,
}

/// A page as it came.
struct Fetched {
    url: Url,
    kind: PageKind,
    charset: Option<String>,
    body: Bytes,
    truncated: bool,
}

/// What a page is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PageKind {
    Html,
    Text,
}

impl BuiltinTool for WebFetch {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "WebFetch".into(),
            description: "Fetch a web page (as markdown) or a text file by URL.".into(),
            input_schema: json!({"type": "object", "properties": {"url": {"type": "string"}}, "required": ["url"]}),
        }
    }

    fn access(&self, input: &Value) -> Result<Vec<Access>, String> {
        let url = checked(input)?;
        let host = host_of(&url);
        Ok(vec![Access::Fetch { url: url.into(), host }])
    }

    async fn run(&self, input: &Value, call: &CallContext<'_>) -> Result<ToolOutput, String> {
        let url = checked(input)?;
        let host = url.host_str().unwrap_or_default().to_owned();
        let fetched = in_time(&self.0, &host, call, get(&self.0.http, url, &[])).await?;
        let workspace = self.0.clone();
        Ok(blocking::run(call.cancel, move |_| told(&workspace, &host, &fetched)).await)
    }
}

/// The host as the permission rules know it.
fn host_of(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    host.trim_start_matches('[').trim_end_matches(']').trim_end_matches('.').to_lowercase()
}

fn checked(input: &Value) -> Result<Url, String> {
    let FetchInput { url } = input::parse("WebFetch", input)?;
    let parsed = Url::parse(url.trim()).map_err(|error| {
        format!("WebFetch: `{url}` is not a URL ({error}); write it whole, with https://")
    })?;
    if !matches!(parsed.scheme(), "http" | "https") {
        return Err(format!("WebFetch: only http and https can be fetched, not {}", parsed.scheme()));
    }
    if parsed.host_str().is_none_or(str::is_empty) {
        return Err(format!("WebFetch: `{url}` names no host"));
    }
    if !parsed.username().is_empty() || parsed.password().is_some() {
        return Err("WebFetch: a URL with a user name or password is not fetched".into());
    }
    Ok(parsed)
}

/// Waits for an answer of this host, for as long as a fetch may take.
async fn in_time(
    workspace: &Workspace,
    host: &str,
    call: &CallContext<'_>,
    answer: impl Future<Output = Result<Fetched, String>>,
) -> Result<Fetched, String> {
    let limit = workspace.options.limits.fetch_time;
    tokio::select! {
        biased;
        () = call.cancel.cancelled() => Err(blocking::INTERRUPTED.into()),
        fetched = tokio::time::timeout(limit, answer) => fetched
            .unwrap_or_else(|_| Err(format!("{host} did not answer within {} s", limit.as_secs_f64()))),
    }
}

/// Gets the page. A redirect on the same host is followed; one to another host, which the permission
/// rules have not judged, is only told.
async fn get(client: &HttpClient, mut url: Url, headers: &[(&str, &str)]) -> Result<Fetched, String> {
    let mut all = vec![("accept", ACCEPT)];
    all.retain(|(name, _)| headers.iter().all(|(given, _)| !given.eq_ignore_ascii_case(name)));
    all.extend(headers);
    for _ in 0..=REDIRECTS {
        let mut response = client
            .send(Method::GET, url.as_str(), &all, Bytes::new())
            .await
            .map_err(|error| format!("WebFetch: {error}"))?;
        match response.status {
            200..=299 => return read(response, url).await,
            301 | 302 | 303 | 307 | 308 => url = next(&response, &url)?,
            status => {
                let body = response.bytes_up_to(FETCH_BYTES).await.map(|body| body.bytes).unwrap_or_default();
                let text = match kind(&response, &body) {
                    Ok(PageKind::Html) => page::stripped(&String::from_utf8_lossy(&body)),
                    Ok(PageKind::Text) => String::from_utf8_lossy(&body).into_owned(),
                    Err(_) => String::new(),
                };
                let start: String = text.trim().chars().take(ERROR_CHARS).collect();
                return Err(full_output::joined(&format!("{url} answered with status {status}"), &start));
            }
        }
    }
    Err(format!("WebFetch: more than {REDIRECTS} redirects, the last to {url}"))
}

fn next(response: &Response, url: &Url) -> Result<Url, String> {
    let Some(location) = response.header("location") else {
        return Err(format!("{url} redirects, but does not say where to"));
    };
    let next = url.join(location).map_err(|_| format!("{url} redirects to `{location}`, which is no URL"))?;
    let same_host = next.host_str() == url.host_str() && next.port() == url.port();
    let upgraded = next.host_str() == url.host_str() && url.scheme() == "http" && next.scheme() == "https";
    let downgraded = url.scheme() == "https" && next.scheme() != "https";
    if (same_host || upgraded) && !downgraded && checked(&json!({"url": next.as_str()})).is_ok() {
        return Ok(next);
    }
    Err(format!("{url} redirects to {next}: if that is what you want, fetch it"))
}

async fn read(mut response: Response, url: Url) -> Result<Fetched, String> {
    let encoding = response.header("content-encoding").unwrap_or("identity");
    if !encoding.eq_ignore_ascii_case("identity") {
        return Err(format!("{url} answered compressed ({encoding}) although that was not asked for"));
    }
    let body = response.bytes_up_to(FETCH_BYTES).await.map_err(|error| format!("WebFetch: {error}"))?;
    let kind = kind(&response, &body.bytes).map_err(|found| {
        format!("{url} is {found}: only text can be fetched here; use Bash (curl) to download it")
    })?;
    let charset = response.header("content-type").and_then(|value| {
        let (_, charset) = value.split_once("charset=")?;
        Some(charset.split(';').next()?.trim_matches(['"', '\'', ' ']).to_lowercase())
    });
    Ok(Fetched { url, kind, charset, body: body.bytes, truncated: body.truncated })
}

/// What the body is, by its type, or by its look when it has none; the error is what else it is.
fn kind(response: &Response, body: &[u8]) -> Result<PageKind, String> {
    let start = &body[..body.len().min(1_024)];
    let given = response.header("content-type").unwrap_or_default();
    let media = given.split(';').next().unwrap_or_default().trim().to_lowercase();
    match media.as_str() {
        "text/html" | "application/xhtml+xml" => Ok(PageKind::Html),
        "" if memchr::memchr(0, start).is_some() => Err("binary".into()),
        "" => {
            let look = String::from_utf8_lossy(start).to_lowercase();
            Ok(if look.contains("<html") || look.contains("<!doctype html") {
                PageKind::Html
            } else {
                PageKind::Text
            })
        }
        _ if is_text(&media) && memchr::memchr(0, start).is_none() => Ok(PageKind::Text),
        _ => Err(media),
    }
}

fn is_text(media: &str) -> bool {
    const TEXT: [&str; 12] = [
        "application/json",
        "application/xml",
        "application/javascript",
        "application/x-javascript",
        "application/ecmascript",
        "application/yaml",
        "application/x-yaml",
        "application/toml",
        "application/x-sh",
        "application/x-ndjson",
        "application/sql",
        "application/graphql",
    ];
    let structured = media.ends_with("+json") || media.ends_with("+xml") || media.ends_with("+yaml");
    media.starts_with("text/") || structured || TEXT.contains(&media)
}

fn told(workspace: &Workspace, host: &str, fetched: &Fetched) -> ToolOutput {
    let text = decoded(&fetched.body, fetched.charset.as_deref());
    let text = match fetched.kind {
        PageKind::Html => page::markdown(text, fetched.url.as_str()),
        PageKind::Text => text,
    };
    let mut notes = Vec::new();
    if fetched.truncated {
        notes.push(format!("[only the first {} of the page]", error_text::bytes(FETCH_BYTES as u64)));
    }
    if text.trim().is_empty() {
        notes.push("[the page has no text]".to_owned());
    }
    let summary = format!("{host}: {}", error_text::bytes(fetched.body.len() as u64));
    workspace.output("fetch", text.trim(), &notes, summary)
}

/// UTF-8, or Latin-1 where the page says so; other encodings come out with replacement characters.
fn decoded(body: &[u8], charset: Option<&str>) -> String {
    match charset {
        Some("iso-8859-1" | "latin1" | "windows-1252" | "us-ascii") => {
            body.iter().map(|byte| char::from(*byte)).collect()
        }
        Some(_) | None => String::from_utf8_lossy(body).into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_plain_urls_are_taken() {
        let error = |url: &str| checked(&json!({"url": url})).unwrap_err();
        assert_eq!(error("file:///etc/passwd"), "WebFetch: only http and https can be fetched, not file");
        assert_eq!(
            error("example.org/x"),
            "WebFetch: `example.org/x` is not a URL (relative URL without a base); write it whole, with https://"
        );
        assert_eq!(
            error("https://u:p@example.org"),
            "WebFetch: a URL with a user name or password is not fetched"
        );
        assert_eq!(
            checked(&json!({"url": " HTTPS://Example.ORG/A "})).unwrap().as_str(),
            "https://example.org/A"
        );
    }

    #[test]
    fn text_is_told_from_the_rest() {
        for media in
            ["text/plain", "text/markdown", "application/json", "image/svg+xml", "application/ld+json"]
        {
            assert!(is_text(media), "{media}");
        }
        for media in ["image/png", "application/pdf", "application/octet-stream", "video/mp4"] {
            assert!(!is_text(media), "{media}");
        }
    }
}
