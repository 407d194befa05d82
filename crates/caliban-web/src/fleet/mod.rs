//! The fleets of all repos: their known state, the tasks that keep it up to date, and the routes that serve it.

mod asks;
mod events;
mod follow;
mod hub;
mod live;
mod shown;
mod spent_today;

pub(crate) use asks::{FleetQuestion, asks, check_shown_whole, lines_of};
pub(crate) use events::events;
pub(crate) use follow::follow;
pub(crate) use hub::{Hub, RepoView};
pub(crate) use shown::StatusLook;
pub(crate) use spent_today::follow as follow_today;

use std::sync::Arc;

use axum::extract::State;
use axum::response::IntoResponse;
use http::header;

use crate::app::App;

/// `GET /api/v1/fleet`.
pub(crate) async fn fleet(State(app): State<Arc<App>>) -> impl IntoResponse {
    app.hub.settled().await;
    ([(header::CONTENT_TYPE, "application/json")], app.hub.snapshot().json)
}
