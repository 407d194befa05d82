//! What all routes share, and the table of routes.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::Router;
use axum::extract::Request;
use axum::response::IntoResponse as _;
use axum::routing::{get, post};

use crate::devices::Devices;
use crate::error::Problem;
use crate::options::Options;
use crate::site::Site;
use crate::{assets, auth, guard, icon};

/// The largest body of a request.
const BODY_CAP: usize = 1024 * 1024;

/// The server's state.
pub(crate) struct App {
    pub(crate) options: Options,
    pub(crate) site: Site,
    pub(crate) started_at: u64,
    devices: Mutex<Devices>,
}

impl App {
    pub(crate) fn new(options: Options, site: Site, devices: Devices) -> Self {
        Self { options, site, devices: Mutex::new(devices), started_at: caliban_contract::wall_ms() }
    }

    /// Who may come in. Held for a moment only.
    pub(crate) fn devices(&self) -> MutexGuard<'_, Devices> {
        self.devices.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new one-time link.
    pub(crate) fn link(&self) -> std::io::Result<String> {
        let token = self.devices().link(caliban_contract::wall_ms())?;
        Ok(self.site.link(&token))
    }
}

/// All routes, behind the guard.
pub(crate) fn router(app: Arc<App>) -> Router {
    let api = Router::new()
        .route("/auth/link", post(auth::link))
        .route("/auth/leave", post(auth::leave))
        .route("/api/v1/me", get(auth::me))
        .route("/api/v1/devices", get(auth::devices))
        .route("/api/v1/devices/{id}", axum::routing::delete(auth::revoke))
        .route("/api/v1/links", post(auth::new_link))
        .route("/icon.svg", get(icon::answer))
        .route("/healthz", get(async || "ok\n"));
    api.fallback(other)
        .layer(axum::extract::DefaultBodyLimit::max(BODY_CAP))
        .layer(axum::middleware::from_fn_with_state(Arc::clone(&app), guard::guard))
        .with_state(app)
}

/// Files of the page; below the API there are none.
async fn other(request: Request) -> axum::response::Response {
    let path = request.uri().path();
    if ["/api/", "/ui/api/", "/auth/"].iter().any(|part| path.starts_with(part)) {
        let shown = caliban_core::inert::line(path).into_owned();
        return Problem { code: "no_route".into(), ..Problem::not_found(format!("there is no {shown}")) }
            .into_response();
    }
    assets::answer(path, request.headers())
}
