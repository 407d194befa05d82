//! The pane that this command runs in, from `$TMUX` and `$TMUX_PANE`.

use caliban_core::inert;
use caliban_store::HostId;
use caliban_store::broker::PaneIdentity;

use super::process;
use super::tmux::{PaneFacts, Tmux};
use crate::failure::Failure;
use crate::settings::Settings;

/// The code of the failure if tmux is dead or does not answer.
pub(crate) const NO_TMUX: &str = "tmux_unreachable";

/// Our own pane and its server's socket.
#[derive(Debug, Clone)]
pub(crate) struct Here {
    pub(crate) socket: String,
    pub(crate) facts: PaneFacts,
}

impl Here {
    /// Identifies this pane. Without a start time a later pane could be mistaken for it; then there is no identity, and
    /// nothing is ever typed into it.
    pub(crate) fn identity(&self) -> Option<PaneIdentity> {
        Some(PaneIdentity {
            socket: self.socket.clone(),
            server_pid: self.facts.server_pid,
            pane_pid: self.facts.pane_pid,
            pane_started: process::started(self.facts.pane_pid)?,
        })
    }
}

/// Refuses a command that runs outside tmux.
pub(crate) fn must_be_inside(settings: &Settings, command: &str) -> Result<(), Failure> {
    match settings.tmux.as_deref().and_then(socket_of) {
        Some(_) => Ok(()),
        None => Err(outside(command)),
    }
}

fn outside(command: &str) -> Failure {
    Failure::refused("not_in_tmux", format!("{command} must be run inside a tmux session"))
}

/// Finds our own pane; the error names `command`.
pub(crate) async fn find(settings: &Settings, command: &str) -> Result<Here, Failure> {
    let socket = settings.tmux.as_deref().and_then(socket_of).ok_or_else(|| outside(command))?;
    let pane = settings.tmux_pane.as_deref().filter(|pane| is_pane_id(pane));
    let pane = pane.ok_or_else(|| Failure::refused("not_in_tmux", "TMUX_PANE is not set to a pane id"))?;
    let failed = |why: String| Failure::refused("tmux", inert::line(&why).into_owned());
    let looked = Tmux::at(socket).look(pane, "").await;
    let facts =
        looked.map_err(|error| Failure::refused(NO_TMUX, inert::line(&error.words()).into_owned()))?;
    let facts = facts.ok_or_else(|| failed(format!("tmux: there is no pane {pane}")))?;
    Ok(Here { socket: socket.to_owned(), facts })
}

/// The socket and the pane that the environment names, whether or not they exist.
pub(crate) fn said(settings: &Settings) -> Option<(&str, &str)> {
    Some((settings.tmux.as_deref().and_then(socket_of)?, settings.tmux_pane.as_deref()?))
}

/// The machine that this command runs on.
pub(crate) fn host() -> std::io::Result<HostId> {
    caliban_process::machine().map(|name| HostId::of(&name))
}

/// `$TMUX` is socket, server pid and session number; the path of the socket may itself contain commas.
fn socket_of(tmux: &str) -> Option<&str> {
    tmux.rsplitn(3, ',').nth(2).filter(|socket| !socket.is_empty())
}

/// A pane id becomes part of tmux commands, so it must be `%` and digits only.
pub(crate) fn is_pane_id(text: &str) -> bool {
    text.strip_prefix('%').is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::{is_pane_id, socket_of};

    #[test]
    fn the_socket_is_what_stands_before_the_last_two_commas() {
        assert_eq!(socket_of("/tmp/tmux-0/default,123,0"), Some("/tmp/tmux-0/default"));
        assert_eq!(socket_of("/tmp/a,b,123,0"), Some("/tmp/a,b"));
        assert_eq!(socket_of("x"), None);
        assert_eq!(
            (is_pane_id("%12"), is_pane_id("%"), is_pane_id("%1;x"), is_pane_id("1")),
            (true, false, false, false)
        );
    }
}
