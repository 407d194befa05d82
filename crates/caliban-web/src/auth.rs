//! Signing in and out, and the devices that are signed in.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::{IntoResponse as _, Response};
use axum::{Extension, Json};
use http::{HeaderMap, StatusCode, header};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::app::App;
use crate::devices::{DEVICE_MS, Device, LINK_MS};
use crate::error::Problem;
use crate::guard::{COOKIE, Caller};
use crate::input::JsonBody;
use crate::qr::Code;
use crate::time;

/// `POST /auth/link`.
#[derive(Debug, Deserialize)]
pub(crate) struct LinkRequest {
    token: String,
}

/// Exchanges a link's token for a cookie and a page key.
pub(crate) async fn link(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    JsonBody(request): JsonBody<LinkRequest>,
) -> Result<Response, Problem> {
    let agent = headers.get(header::USER_AGENT).and_then(|agent| agent.to_str().ok()).unwrap_or_default();
    let signed =
        app.devices().sign_in(&request.token, agent, caliban_contract::wall_ms()).map_err(unwritten)?;
    let signed = signed.ok_or_else(|| {
        Problem::new(StatusCode::FORBIDDEN, "link_used", "this link was used already, or is too old")
            .hint("run `caliban dashboard` again: it prints a new one")
    })?;
    let secure = if app.site.is_secure() { "; Secure" } else { "" };
    let age = DEVICE_MS / 1000;
    let cookie =
        format!("{COOKIE}={}; Path=/; Max-Age={age}; HttpOnly; SameSite=Strict{secure}", signed.cookie);
    let body = json!({"page_key": signed.page_key, "device": signed.device});
    Ok(([(header::SET_COOKIE, cookie)], Json(body)).into_response())
}

/// Signs this device out.
pub(crate) async fn leave(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
) -> Result<Response, Problem> {
    if let Caller::Page(device) = caller {
        app.devices().revoke(&device.id).map_err(unwritten)?;
    }
    let cookie = format!("{COOKIE}=; Path=/; Max-Age=0; HttpOnly; SameSite=Strict");
    Ok(([(header::SET_COOKIE, cookie)], Json(json!({}))).into_response())
}

/// The calling device, and the server it talks to.
pub(crate) async fn me(State(app): State<Arc<App>>, Extension(caller): Extension<Caller>) -> Json<Value> {
    let device = match &caller {
        Caller::Page(device) => shown(device, &caller),
        Caller::Script => Value::Null,
    };
    Json(json!({
        "device": device,
        "server": {
            "version": env!("CARGO_PKG_VERSION"),
            "pid": std::process::id(),
            "started_at": time::text(app.started_at),
            "origin": app.site.origin(),
        },
        "broker": app.options.broker.is_some(),
        "host": rustix::system::uname().nodename().to_string_lossy(),
    }))
}

/// All devices.
pub(crate) async fn devices(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
) -> Json<Value> {
    let all: Vec<Value> = app.devices().all().iter().map(|device| shown(device, &caller)).collect();
    Json(json!({ "devices": all }))
}

fn shown(device: &Device, caller: &Caller) -> Value {
    let is_this = matches!(caller, Caller::Page(own) if own.id == device.id);
    json!({
        "id": device.id,
        "since": time::text(device.since),
        "last_seen": time::text(device.last_seen),
        "agent": caliban_core::inert::line(&device.agent),
        "this": is_this,
    })
}

/// Signs a device out.
pub(crate) async fn revoke(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
) -> Result<Json<Value>, Problem> {
    match app.devices().revoke(&id).map_err(unwritten)? {
        true => Ok(Json(json!({}))),
        false => Err(Problem::not_found("there is no such device")),
    }
}

/// Another sign-in link, and its QR code for a phone's camera.
pub(crate) async fn new_link(State(app): State<Arc<App>>) -> Result<Json<Value>, Problem> {
    let url = app.link().map_err(unwritten)?;
    let expires_at = time::text(caliban_contract::wall_ms().saturating_add(LINK_MS));
    let qr = Code::of(&url).map(|code| code.rows());
    Ok(Json(json!({"url": url, "expires_at": expires_at, "qr": qr})))
}

fn unwritten(error: std::io::Error) -> Problem {
    Problem::internal(format!("the devices cannot be written: {error}"))
}
