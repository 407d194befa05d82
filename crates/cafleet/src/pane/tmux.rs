//! One tmux server, driven through the `tmux` command.
//!
//! Owns the command lines and their time limit. Refuses: deciding anything. A condition that must hold at the moment of
//! typing goes into the same call as the typing.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::process::Command;

/// Time limit of one call.
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
    /// It did not answer in time.
    Silent,
    /// It failed with this message.
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

/// Lines of a dead pane that are told, and how far above its screen they are looked for.
const LAST_WORDS: usize = 5;
const LAST_WORDS_ABOVE: u32 = 50;

/// What tmux knows about a pane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PaneFacts {
    pub(crate) server_pid: i64,
    pub(crate) pane_pid: i64,
    pub(crate) pane: String,
    pub(crate) window: String,
    pub(crate) tty: String,
    pub(crate) dead: bool,
    /// How the program of a dead pane ended, in words.
    pub(crate) ended: Option<String>,
    pub(crate) cursor_shown: bool,
    /// Whether the pane is in copy mode or another tmux mode.
    pub(crate) in_mode: bool,
    /// The cursor, as column and line of the screen.
    pub(crate) cursor: (usize, usize),
    /// The result of the given format.
    pub(crate) watched: String,
    pub(crate) session: String,
    pub(crate) title: String,
    /// The screen, with the escape sequences for colour and weight.
    pub(crate) screen: String,
}

/// The result of a guarded paste.
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

    /// Reads the facts of a pane, and one more format; `None` if there is no such pane.
    pub(crate) async fn look(&self, pane: &str, watched: &str) -> Result<Option<PaneFacts>, TmuxError> {
        // Only numbers, ids and a path; free texts are on lines of their own.
        let facts = "#{pid}|#{pane_pid}|#{pane_id}|#{window_id}|#{pane_dead}|#{cursor_flag}|\
                     #{?pane_in_mode,1,0}|#{cursor_x}|#{cursor_y}|#{pane_dead_status}|#{pane_dead_signal}|#{pane_tty}";
        let said = self
            .call(
                &[
                    "display-message",
                    "-p",
                    "-t",
                    pane,
                    facts,
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
                    watched,
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
            // capture-pane is the command that fails for a missing pane.
            Err(TmuxError::Failed(why)) if why.contains("can't find pane") => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The last lines that a dead pane has, each safe to print.
    pub(crate) async fn last_words(&self, pane: &str) -> Vec<String> {
        let screen = self.capture(pane, LAST_WORDS_ABOVE, false).await.unwrap_or_default();
        let lines: Vec<&str> =
            without_epitaph(&screen).lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        let skip = lines.len().saturating_sub(LAST_WORDS);
        lines.into_iter().skip(skip).map(|line| caliban_core::inert::line(line).into_owned()).collect()
    }

    /// Lets the pane stay when its program fails, so that its last lines can be read. Best effort: an older tmux cannot.
    pub(crate) async fn stay_if_failed(&self, pane: &str) {
        let _older = self.call(&["set-option", "-p", "-t", pane, "remain-on-exit", "failed"], None).await;
    }

    /// Pastes `text` and presses `keys` (if any), provided that `condition` holds; all in one call, and so atomically.
    /// Line breaks of the text stay as they are: to a program without bracketed paste a carriage return would be a
    /// second Enter.
    pub(crate) async fn paste(
        &self,
        pane: &str,
        buffer: &str,
        text: &str,
        keys: Option<&str>,
        condition: &str,
    ) -> Result<Pasted, TmuxError> {
        let press = keys.map_or_else(String::new, |keys| format!("send-keys -t {pane} {keys} ; "));
        let type_it = format!("paste-buffer -p -r -d -b {buffer} -t {pane} ; {press}display-message -p sent");
        let leave_it = format!("delete-buffer -b {buffer} ; display-message -p refused");
        let load = ["load-buffer", "-b", buffer, "-", ";"];
        let guarded = ["if-shell", "-F", "-t", pane, condition, &type_it, &leave_it];
        self.sent(&[&load[..], &guarded[..]].concat(), Some(text)).await
    }

    /// Presses keys if `condition` holds, in one call. `keys` are tmux key names, or `-l` and letters and digits.
    pub(crate) async fn press(&self, pane: &str, keys: &str, condition: &str) -> Result<Pasted, TmuxError> {
        let press = format!("send-keys -t {pane} {keys} ; display-message -p sent");
        let leave_it = "display-message -p refused";
        self.sent(&["if-shell", "-F", "-t", pane, condition, &press, leave_it], None).await
    }

    async fn sent(&self, args: &[&str], stdin: Option<&str>) -> Result<Pasted, TmuxError> {
        match self.call(args, stdin).await?.trim() {
            "sent" => Ok(Pasted::Sent),
            "refused" => Ok(Pasted::Refused),
            other => Err(TmuxError::Failed(format!("unexpected answer '{other}'"))),
        }
    }

    /// Makes a pane beside `beside` that runs `command`, without taking the focus; returns its `%n`.
    pub(crate) async fn split(
        &self,
        beside: &str,
        cwd: &str,
        environment: &[(String, String)],
        command: &[&str],
    ) -> Result<String, TmuxError> {
        let environment: Vec<String> = environment
            .iter()
            .flat_map(|(name, value)| ["-e".to_owned(), format!("{name}={value}")])
            .collect();
        let mut args = vec!["split-window", "-d", "-t", beside, "-c", cwd, "-P", "-F", "#{pane_id}"];
        args.extend(environment.iter().map(String::as_str));
        args.extend(command);
        Ok(self.call(&args, None).await?.trim().to_owned())
    }

    /// Puts the first pane of a window on the left and the others on the right.
    pub(crate) async fn lay_out(&self, window: &str) -> Result<(), TmuxError> {
        self.call(&["select-layout", "-t", window, "main-vertical"], None).await.map(drop)
    }

    /// Closes a pane, whatever runs in it.
    pub(crate) async fn kill_pane(&self, pane: &str, condition: &str) -> Result<Pasted, TmuxError> {
        let kill = format!("kill-pane -t {pane} ; display-message -p sent");
        self.sent(&["if-shell", "-F", "-t", pane, condition, &kill, "display-message -p refused"], None).await
    }

    /// The screen of a pane and so many lines above it.
    pub(crate) async fn capture(&self, pane: &str, above: u32, ansi: bool) -> Result<String, TmuxError> {
        let from = format!("-{above}");
        let mut args = vec!["capture-pane", "-p", "-S", &from, "-t", pane];
        if ansi {
            args.push("-e");
        }
        self.call(&args, None).await
    }

    /// Shows a line to the users who have the pane's session attached. Best effort.
    pub(crate) async fn tell_user(&self, pane: &str, words: &str) {
        // `#` begins a format.
        let words = words.replace('#', "##");
        let _ = self.call(&["display-message", "-t", pane, &words], None).await;
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

/// How a program ended, by what tmux says of its pane; each is empty where tmux does not know it.
fn ended(status: &str, signal: &str) -> Option<String> {
    match (status, signal) {
        (_, "") if status.is_empty() => None,
        (status, "") => Some(format!("its program ended with code {status}")),
        (_, signal) => Some(format!("its program was ended by signal {signal}")),
    }
}

/// What a dead pane shows, without the line that tmux writes below it.
pub(crate) fn without_epitaph(screen: &str) -> &str {
    let screen = screen.trim_end();
    match screen.rsplit_once('\n') {
        Some((above, last)) if last.starts_with("Pane is dead") => above.trim_end(),
        _ => screen,
    }
}

fn read_facts(said: &str) -> Option<PaneFacts> {
    let mut parts = said.splitn(5, '\n');
    let mut fields = parts.next()?.splitn(12, '|');
    let mut field = || fields.next();
    Some(PaneFacts {
        server_pid: field()?.parse().ok()?,
        pane_pid: field()?.parse().ok()?,
        pane: field()?.to_owned(),
        window: field()?.to_owned(),
        dead: field()? == "1",
        cursor_shown: field()? == "1",
        in_mode: field()? == "1",
        cursor: (field()?.parse().ok()?, field()?.parse().ok()?),
        ended: ended(field()?, field()?),
        tty: field()?.to_owned(),
        session: parts.next()?.to_owned(),
        watched: parts.next()?.to_owned(),
        title: parts.next()?.to_owned(),
        screen: parts.next().unwrap_or_default().to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn m10_a_dead_pane_has_its_end_and_what_it_showed() {
        let said = "1|2|%3|@4|1|1|0|0|0|3||/dev/pts/0\nsession\nwatched\ntitle\nfirst\n";
        let facts = read_facts(said).expect("facts");
        assert_eq!(facts.ended.as_deref(), Some("its program ended with code 3"));
        assert_eq!(facts.tty, "/dev/pts/0");
        assert_eq!(ended("", "9").as_deref(), Some("its program was ended by signal 9"));
        assert_eq!(ended("", ""), None);
        assert_eq!(without_epitaph("a\nb\n\n\nPane is dead (status 3, now)\n"), "a\nb");
        assert_eq!(without_epitaph("a\nb\n\n"), "a\nb");
    }
}
