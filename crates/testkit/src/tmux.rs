//! A terminal for interactive tests: a tmux server of its own, on a socket inside the environment.

use std::process::Command;

use crate::env::Env;
use crate::process::ProgramRun;
use crate::wait::poll_until;

const SOCKET: &str = "testkit";
const SESSION: &str = "main";

/// A tmux server with one session, killed when this is dropped. Its panes run in the environment.
#[derive(Debug)]
pub struct Tmux<'e> {
    env: &'e Env,
}

impl<'e> Tmux<'e> {
    /// Whether there is a tmux on `PATH`.
    pub fn available(env: &Env) -> bool {
        env.program("tmux").arg("-V").output().is_ok_and(|output| output.status.success())
    }

    /// Starts the server with a shell (`/bin/sh`, prompt `$ `) in [`Env::work`]; one per environment.
    #[track_caller]
    pub fn start(env: &'e Env, columns: u16, rows: u16) -> Self {
        let tmux = Self { env };
        let config = env.root().join("tmux.conf");
        // A pane stays readable after its program has ended.
        std::fs::write(
            &config,
            "set -g default-terminal tmux-256color\nset -g status off\nset -g remain-on-exit on\nset -s escape-time 0\n",
        )
        .expect("cannot write tmux.conf");
        let (columns, rows) = (columns.to_string(), rows.to_string());
        ProgramRun::new(tmux.command())
            .args(["-f".as_ref(), config.as_os_str()])
            .args(["new-session", "-d", "-s", SESSION, "-x", &columns, "-y", &rows, "PS1='$ ' exec /bin/sh"])
            .output()
            .ok();
        tmux
    }

    /// Any tmux command on this server; returns stdout without the last newline, panics if it fails.
    #[track_caller]
    pub fn tmux(&self, args: &[&str]) -> String {
        let output = ProgramRun::new(self.command()).args(args).output().ok();
        output.stdout.strip_suffix('\n').unwrap_or(&output.stdout).to_owned()
    }

    /// Sends keys by tmux's names: `["C-c"]`, `["ls", "Enter"]`.
    #[track_caller]
    pub fn send_keys(&self, keys: &[&str]) {
        let mut args = vec!["send-keys", "-t", SESSION];
        args.extend(keys);
        self.tmux(&args);
    }

    /// Types a text as it is, without Enter.
    #[track_caller]
    pub fn send_text(&self, text: &str) {
        // tmux takes a `;` at the end of an argument for its command separator.
        let escaped = text.strip_suffix(';').map(|rest| format!("{rest}\\;"));
        self.tmux(&["send-keys", "-t", SESSION, "-l", "--", escaped.as_deref().unwrap_or(text)]);
    }

    /// Pastes a text (bracketed where the program asked for it), without Enter.
    #[track_caller]
    pub fn paste(&self, text: &str) {
        ProgramRun::new(self.command()).args(["load-buffer", "-b", "kit", "-"]).stdin(text).output().ok();
        self.tmux(&["paste-buffer", "-p", "-d", "-b", "kit", "-t", SESSION]);
    }

    /// The screen as text, without trailing blanks.
    #[track_caller]
    pub fn capture(&self) -> String {
        self.tmux(&["capture-pane", "-p", "-t", SESSION])
    }

    /// Waits until the screen shows this text, and returns the screen.
    #[track_caller]
    pub fn wait_for_text(&self, text: &str) -> String {
        self.wait_for(&format!("the screen shows {text:?}"), |screen| screen.contains(text))
    }

    /// Waits until the screen satisfies a condition, and returns the screen.
    #[track_caller]
    pub fn wait_for(&self, what: &str, condition: impl Fn(&str) -> bool) -> String {
        let mut screen = String::new();
        let met = poll_until(|| {
            screen = self.capture();
            condition(&screen)
        });
        assert!(met, "waited in vain until {what}; the screen:\n{screen}");
        screen
    }

    fn command(&self) -> Command {
        let mut command = self.env.program("tmux");
        command.args(["-u", "-L", SOCKET]);
        command
    }
}

impl Drop for Tmux<'_> {
    fn drop(&mut self) {
        // Fails if the server is gone already; one that does not end is killed with the environment.
        drop(self.command().arg("kill-server").output());
    }
}
