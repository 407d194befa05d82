//! The checks that every request passes before a route sees it (a13), and the headers of every response.
//!
//! In this order: host, upgrade, origin, `Sec-Fetch-Site`, JSON, authentication, and for requests with effects the
//! process of the peer.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};

use crate::app::App;
use crate::devices::Device;
use crate::error::Problem;
use crate::peer::{PeerProcess, Seat};

/// The header with the key that a page has in its `localStorage`.
pub(crate) const PAGE_HEADER: &str = "x-caliban-page";
pub(crate) const COOKIE: &str = "caliban";
/// The Content-Security-Policy. The page has neither inline scripts nor HTML sinks.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      manifest-src 'self'; worker-src 'self'; base-uri 'none'; form-action 'none'; \
                      frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types caliban-sw";

/// The authenticated caller.
#[derive(Debug, Clone)]
pub(crate) enum Caller {
    /// A page in a browser.
    Page(Box<Device>),
    /// A program with the token of scripts.
    Script,
}

/// The part of the server that a path belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    /// The page's files and the health check: open to everybody.
    Asset,
    /// Sign-in: needs no device, but passes all other checks.
    SigningIn,
    /// Everything that reads or changes state.
    Api,
}

impl Part {
    fn of(path: &str) -> Self {
        match path {
            "/auth/link" => Self::SigningIn,
            "/metrics" => Self::Api,
            _ if ["/api/", "/ui/api/", "/auth/"].iter().any(|part| path.starts_with(part)) => Self::Api,
            _ => Self::Asset,
        }
    }
}

/// The middleware in front of all routes.
pub(crate) async fn guard(State(app): State<Arc<App>>, mut request: Request, next: Next) -> Response {
    let part = Part::of(request.uri().path());
    let mut answer = match pass(&app, &mut request, part).await {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    };
    let headers = answer.headers_mut();
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (http::HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (http::HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    if part != Part::Asset {
        headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    }
    answer
}

async fn pass(app: &Arc<App>, request: &mut Request, part: Part) -> Result<(), Problem> {
    let headers = request.headers();
    app.site.check_host(text(headers, header::HOST.as_str()))?;
    if headers.contains_key(header::UPGRADE) {
        return Err(Problem::new(StatusCode::BAD_REQUEST, "no_upgrade", "there is no WebSocket here"));
    }
    let is_effect = !matches!(*request.method(), Method::GET | Method::HEAD);
    if part == Part::Asset {
        return match is_effect {
            true => Err(Problem::new(StatusCode::METHOD_NOT_ALLOWED, "no_route", "this can only be read")),
            false => Ok(()),
        };
    }
    app.site.check_origin(text(headers, header::ORIGIN.as_str()))?;
    if !matches!(text(headers, "sec-fetch-site"), None | Some("same-origin" | "none")) {
        let why = "this request comes from another site";
        return Err(Problem::new(StatusCode::FORBIDDEN, "cross_site", why));
    }
    let has_body = headers.contains_key(header::TRANSFER_ENCODING)
        || text(headers, header::CONTENT_LENGTH.as_str()).is_some_and(|length| length != "0");
    if has_body && !is_json(headers) {
        let why = "the body has to be application/json";
        return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "not_json", why));
    }
    let mut is_script = false;
    if part == Part::Api {
        let caller = caller(app, headers)?;
        is_script = matches!(caller, Caller::Script);
        request.extensions_mut().insert(caller);
    }
    if !is_effect {
        return Ok(());
    }
    if is_script && is_passed_on(app, request.headers()) {
        let why =
            "this request was passed on, and nobody can tell whose it is: with the token it can only read";
        return Err(Problem::new(StatusCode::FORBIDDEN, "agent", why)
            .hint("send it to the server itself, or sign a browser in"));
    }
    check_process(request.extensions().get::<Arc<Seat>>(), is_script).await
}

/// Whether a request came through a proxy, whose process is all that the connection shows.
fn is_passed_on(app: &App, headers: &HeaderMap) -> bool {
    let tells =
        |name: &str| matches!(name, "forwarded" | "via" | "x-real-ip") || name.starts_with("x-forwarded-");
    app.site.is_proxys(text(headers, header::HOST.as_str()))
        || headers.keys().any(|name| tells(name.as_str()))
}

/// Refuses an effect to a process of an agent. The token lies in a file that every program of the user can read, so
/// whoever shows it must be known for a person's process; the secrets of a device are in a browser only (a19).
async fn check_process(seat: Option<&Arc<Seat>>, is_script: bool) -> Result<(), Problem> {
    let process = match seat {
        Some(seat) => seat.process().await.map_err(|error| Problem::internal(error.to_string()))?,
        None => &PeerProcess::Unknown,
    };
    let refused = |text: String| Problem::new(StatusCode::FORBIDDEN, "agent", text);
    match process {
        PeerProcess::Person => Ok(()),
        PeerProcess::Unknown if !is_script => Ok(()),
        PeerProcess::Unknown => {
            Err(refused("nobody can tell whose process this is: with the token it can only read".to_owned())
                .hint("run it on this machine as the server's user, or sign a browser in"))
        }
        PeerProcess::Agent(who) => Err(refused(format!("{who} cannot do this here"))
            .hint("a person does it, in a browser or a terminal of their own")),
    }
}

fn caller(app: &App, headers: &HeaderMap) -> Result<Caller, Problem> {
    let signed_out = || {
        Problem::new(StatusCode::UNAUTHORIZED, "signed_out", "this browser is not signed in")
            .hint("run `caliban dashboard` and open the link that it prints")
    };
    if let Some(token) = text(headers, header::AUTHORIZATION.as_str()) {
        let token = token.strip_prefix("Bearer ").ok_or_else(signed_out)?;
        return if app.devices().is_token(token) { Ok(Caller::Script) } else { Err(signed_out()) };
    }
    let page = text(headers, PAGE_HEADER).ok_or_else(signed_out)?;
    let cookie = cookie(headers).ok_or_else(signed_out)?;
    let device = app.devices().device(cookie, page, caliban_contract::wall_ms()).ok_or_else(signed_out)?;
    Ok(Caller::Page(Box::new(device)))
}

fn cookie(headers: &HeaderMap) -> Option<&str> {
    let all = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    all.flat_map(|value| value.split(';')).find_map(|pair| {
        let (name, value) = pair.trim().split_once('=')?;
        (name == COOKIE).then_some(value)
    })
}

fn is_json(headers: &HeaderMap) -> bool {
    let kind = text(headers, header::CONTENT_TYPE.as_str()).unwrap_or_default();
    kind.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json"))
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    // A value that is not text matches nothing.
    headers.get(name).map(|value| value.to_str().unwrap_or("\u{fffd}"))
}
