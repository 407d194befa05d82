//! The routes of the message broker: those of the original's server (`/ui/api`), and ours (`/api/v1/broker`).

mod desk;
mod pages;
mod pane;
mod ui_api;

pub(crate) use desk::{Desk, watch};
pub(crate) use pages::{broadcast_or_send, session, sessions};
pub(crate) use pane::pane;
pub(crate) use ui_api::{agents, inbox, send, sent, sessions as ui_sessions, timeline};
