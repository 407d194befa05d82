//! The state that all routes share, and the table of routes.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::Router;
use axum::extract::Request;
use axum::response::IntoResponse as _;
use axum::routing::{get, post};
use caliban_core::redact::Redactor;
use caliban_fleet::protocol::AgentRow;
use caliban_settings::tool_environment::spoken_secrets;
use serde_json::Value;

use crate::addresses::Site;
use crate::broker::Desk;
use crate::devices::Devices;
use crate::error::Problem;
use crate::fleet::{Hub, RepoView};
use crate::once::Once;
use crate::options::ServerOptions;
use crate::past::{ActivityFolds, Library};
use crate::seen::SeenMarks;
use crate::transcript::Shelf;
use crate::{agent, assets, auth, broker, fleet, guard, icon, once, openapi, past, transcript};

/// Maximum size of a request body.
pub(crate) const BODY_CAP: usize = 1024 * 1024;

/// The server's state.
pub(crate) struct App {
    pub(crate) options: ServerOptions,
    pub(crate) site: Site,
    pub(crate) started_at: u64,
    pub(crate) hub: Hub,
    pub(crate) shelf: Shelf,
    pub(crate) desk: Desk,
    pub(crate) book: ActivityFolds,
    pub(crate) library: Library,
    pub(crate) once: Once,
    /// Takes the secrets of the caller out of what a person types, where no settings say of more.
    pub(crate) redactor: Redactor,
    devices: Mutex<Devices>,
    seen: Mutex<SeenMarks>,
}

impl App {
    pub(crate) fn new(options: ServerOptions, site: Site, devices: Devices) -> std::io::Result<Self> {
        let desk = Desk::new(options.broker.clone(), options.programs.cafleet.clone());
        let dir = options.sources.data.join("web");
        let library = Library::new(dir.join("search.db"));
        let redactor = Redactor::new(spoken_secrets(&options.environment));
        Ok(Self {
            options,
            redactor,
            desk,
            book: ActivityFolds::default(),
            library,
            once: Once::default(),
            site,
            started_at: caliban_contract::wall_ms(),
            hub: Hub::new()?,
            shelf: Shelf::default(),
            devices: Mutex::new(devices),
            seen: Mutex::new(SeenMarks::open(&dir)),
        })
    }

    /// The repo with this hash.
    pub(crate) fn repo(&self, hash: &str) -> Result<RepoView, Problem> {
        self.hub.repo(hash).ok_or_else(|| Problem::not_found("no repo with a fleet has this hash"))
    }

    /// The agent with this whole id: its row, and the JSON that pages show.
    pub(crate) fn agent(&self, hash: &str, id: &str) -> Result<(AgentRow, Value), Problem> {
        let none = || Problem::not_found("there is no such agent").hint("it may have been removed");
        let id = id.parse().map_err(|_| none())?;
        self.hub.agent(hash, id).ok_or_else(none)
    }

    /// The signed-in devices. Hold the lock only briefly.
    pub(crate) fn devices(&self) -> MutexGuard<'_, Devices> {
        self.devices.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The read marks of agents. Hold the lock only briefly, and in blocking threads.
    pub(crate) fn seen(&self) -> MutexGuard<'_, SeenMarks> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
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
        .route("/healthz", get(async || "ok\n"))
        .route("/api/v1/fleet", get(fleet::fleet))
        .route("/api/v1/asks", get(fleet::asks))
        .route("/api/v1/events", get(fleet::events))
        .route("/api/v1/repos/{repo}/new", get(agent::form))
        .route("/api/v1/repos/{repo}/agents", post(agent::spawn))
        .route("/api/v1/repos/{repo}/agents/{id}", get(agent::show).delete(agent::rm))
        .route("/api/v1/repos/{repo}/agents/{id}/approve", post(agent::approve))
        .route("/api/v1/repos/{repo}/agents/{id}/deny", post(agent::deny))
        .route("/api/v1/repos/{repo}/agents/{id}/send", post(agent::send))
        .route("/api/v1/repos/{repo}/agents/{id}/kill", post(agent::kill))
        .route("/api/v1/repos/{repo}/agents/{id}/cancel", post(agent::cancel))
        .route("/api/v1/repos/{repo}/agents/{id}/resume", post(agent::resume))
        .route("/api/v1/repos/{repo}/agents/{id}/respawn", post(agent::respawn))
        .route("/api/v1/repos/{repo}/agents/{id}/merge", post(agent::merge))
        .route("/api/v1/repos/{repo}/agents/{id}/diff", get(agent::diff))
        .route("/api/v1/repos/{repo}/agents/{id}/diff/file", get(agent::diff_file))
        .route("/api/v1/repos/{repo}/agents/{id}/transcript", get(transcript::transcript))
        .route("/api/v1/repos/{repo}/agents/{id}/output/{call}", get(transcript::output))
        .route("/api/v1/repos/{repo}/agents/{id}/seen", post(transcript::seen))
        .route("/api/v1/repos/{repo}/agents/{id}/usage", get(transcript::usage))
        .route("/ui/api/sessions", get(broker::ui_sessions))
        .route("/ui/api/agents", get(broker::agents))
        .route("/ui/api/agents/{id}/inbox", get(broker::inbox))
        .route("/ui/api/agents/{id}/sent", get(broker::sent))
        .route("/ui/api/timeline", get(broker::timeline))
        .route("/ui/api/messages/send", post(broker::send))
        .route("/api/v1/broker/sessions", get(broker::sessions))
        .route("/api/v1/broker/sessions/{session}", get(broker::session))
        .route("/api/v1/broker/sessions/{session}/send", post(broker::broadcast_or_send))
        .route("/api/v1/broker/sessions/{session}/members/{id}/pane", get(broker::pane))
        .route("/api/v1/search", get(past::search))
        .route("/api/v1/timeline", get(past::timeline))
        .route("/api/v1/spend", get(past::spend))
        .route("/metrics", get(past::metrics))
        .route("/openapi.json", get(openapi::document));
    api.fallback(other)
        .layer(axum::extract::DefaultBodyLimit::max(BODY_CAP))
        .layer(axum::middleware::from_fn_with_state(Arc::clone(&app), once::once))
        .layer(axum::middleware::from_fn_with_state(Arc::clone(&app), guard::guard))
        .with_state(app)
}

/// Serves the page's files; 404 for unknown API paths.
async fn other(request: Request) -> axum::response::Response {
    let path = request.uri().path();
    if ["/api/", "/ui/api/", "/auth/"].iter().any(|part| path.starts_with(part)) {
        let shown = caliban_core::inert::line(path).into_owned();
        return Problem { code: "no_route".into(), ..Problem::not_found(format!("there is no {shown}")) }
            .into_response();
    }
    assets::answer(path, request.headers())
}
