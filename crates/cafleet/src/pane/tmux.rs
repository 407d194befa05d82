//! One tmux server, spoken to through the `tmux` command.
//!
//! Owns the command lines and their time limit. Refuses: deciding anything. What is to be checked
//! at the moment of typing goes into the same call as the typing.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::process::Command;

/// How long one call may take.
const CALL_LIMIT: Duration = Duration::from_secs(5);

/// A tmux server.
#[derive(Debug, Clone)]
pub(crate) struct Tmux {
    socket: PathBuf,
}

/// A call to tmux failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TmuxError {
    /// There is no `tmux` on `PATH`.
    Missing,
    /// It said nothing in time.
    Silent,
    /// It said no.
    Failed(String),
}

impl TmuxError {
    pub(crate) fn words(&self) -> String {
        match self {
            Self::Missing => "tmux is not on PATH".to_owned(),
            Self::Silent => "tmux does not answer".to_owned(),
            Self::Failed(why) => format!("tmux: {why}"),
        }
    }
}

/// What tmux knows about a pane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PaneFacts {
    pub(crate) server_pid: i64,
    pub(crate) pane_pid: i64,
    pub(crate) pane: String,
    pub(crate) window: String,
    pub(crate) tty: String,
    pub(crate) dead: bool,
    pub(crate) cursor_shown: bool,
    /// The line in which the given pattern is first found; `0` when it is not.
    pub(crate) found_at: String,
    pub(crate) session: String,
    pub(crate) title: String,
    /// The screen, with the escape sequences for colour and weight.
    pub(crate) screen: String,
}

/// What became of a guarded paste.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pasted {
    /// Typed and entered.
    Sent,
    /// The condition did not hold at that moment; nothing was typed.
    Refused,
}

impl Tmux {
    pub(crate) fn at(socket: impl AsRef<Path>) -> Self {
        Self { socket: socket.as_ref().to_owned() }
    }

    /// Looks at a pane, and for a regular expression in it; `None` when there is no such pane.
    pub(crate) async fn look(&self, pane: &str, pattern: &str) -> Result<Option<PaneFacts>, TmuxError> {
        // Only numbers, ids and a path; the free texts are on lines of their own.
        let facts = format!(
            "#{{pid}}|#{{pane_pid}}|#{{pane_id}}|#{{window_id}}|#{{pane_dead}}|#{{cursor_flag}}|#{{C/r:{pattern}}}|\
             #{{pane_tty}}"
        );
        let said = self
            .call(
                &[
                    "display-message",
                    "-p",
                    "-t",
                    pane,
                    &facts,
                    ";",
                    "display-message",
                    "-p",
                    "-t",
                    pane,
                    "#{session_name}",
                    ";",
                    "display-message",
                    "-p",
                    "-t",
                    pane,
                    "#{pane_title}",
                    ";",
                    "capture-pane",
                    "-p",
                    "-e",
                    "-t",
                    pane,
                ],
                None,
            )
            .await;
        match said {
            Ok(said) => Ok(read_facts(&said).filter(|facts| facts.pane == pane)),
            // capture-pane is the part that minds a missing pane.
            Err(TmuxError::Failed(why)) if why.contains("can't find pane") => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Pastes `text` and presses Enter if `condition` holds, in one call and so at one moment.
    /// A pane in copy mode, where Enter would be lost, is taken out of it first.
    pub(crate) async fn paste(
        &self,
        pane: &str,
        buffer: &str,
        text: &str,
        condition: &str,
    ) -> Result<Pasted, TmuxError> {
        let type_it = format!(
            "if-shell -F -t {pane} '#{{pane_in_mode}}' 'send-keys -t {pane} -X cancel' ; \
             paste-buffer -p -d -b {buffer} -t {pane} ; send-keys -t {pane} Enter ; display-message -p sent"
        );
        let leave_it = format!("delete-buffer -b {buffer} ; display-message -p refused");
        let said = self
            .call(
                &[
                    "load-buffer",
                    "-b",
                    buffer,
                    "-",
                    ";",
                    "if-shell",
                    "-F",
                    "-t",
                    pane,
                    condition,
                    &type_it,
                    &leave_it,
                ],
                Some(text),
            )
            .await?;
        match said.trim() {
            "sent" => Ok(Pasted::Sent),
            "refused" => Ok(Pasted::Refused),
            other => Err(TmuxError::Failed(format!("unexpected answer '{other}'"))),
        }
    }

    async fn call(&self, args: &[&str], stdin: Option<&str>) -> Result<String, TmuxError> {
        let mut command = Command::new("tmux");
        // -u: names and screens are UTF-8 whatever our own locale is.
        command.arg("-u").arg("-S").arg(&self.socket).args(args);
        command.stdin(if stdin.is_some() { Stdio::piped() } else { Stdio::null() });
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => TmuxError::Missing,
            _ => TmuxError::Failed(error.to_string()),
        })?;
        let talk = async {
            if let (Some(text), Some(mut pipe)) = (stdin, child.stdin.take()) {
                pipe.write_all(text.as_bytes()).await?;
                pipe.shutdown().await?;
            }
            child.wait_with_output().await
        };
        let output = match tokio::time::timeout(CALL_LIMIT, talk).await {
            Ok(Ok(output)) => output,
            Ok(Err(error)) => return Err(TmuxError::Failed(error.to_string())),
            Err(_) => return Err(TmuxError::Silent),
        };
        if output.status.success() {
            Ok(String::from_utf8_lossy(&output.stdout).into_owned())
        } else {
            let said = String::from_utf8_lossy(&output.stderr);
            Err(TmuxError::Failed(said.lines().next().unwrap_or("failed").to_owned()))
        }
    }
}

fn read_facts(said: &str) -> Option<PaneFacts> {
    let mut parts = said.splitn(4, '\n');
    let mut fields = parts.next()?.splitn(8, '|');
    let mut field = || fields.next();
    Some(PaneFacts {
        server_pid: field()?.parse().ok()?,
        pane_pid: field()?.parse().ok()?,
        pane: field()?.to_owned(),
        window: field()?.to_owned(),
        dead: field()? == "1",
        cursor_shown: field()? == "1",
        found_at: field()?.to_owned(),
        tty: field()?.to_owned(),
        session: parts.next()?.to_owned(),
        title: parts.next()?.to_owned(),
        screen: parts.next().unwrap_or_default().to_owned(),
    })
}
