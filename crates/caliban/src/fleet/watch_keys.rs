//! The one key of `list --watch`: `q` leaves. The terminal gives keys one by one for as long as this lives, and is then as it
//! was. Ctrl+C stays a signal.

use std::io::{self, IsTerminal as _, Read as _};

use rustix::termios::{self, LocalModes, OptionalActions, Termios};
use tokio::sync::mpsc;

/// Keys of the terminal that stdin is.
pub(super) struct Keys {
    before: Termios,
    pressed: mpsc::UnboundedReceiver<u8>,
}

impl Keys {
    /// None where nobody can press a key: stdin is no terminal, or we are in the background of one.
    pub(super) fn open() -> Option<Self> {
        let stdin = io::stdin();
        let is_ours = || termios::tcgetpgrp(&stdin).ok() == Some(rustix::process::getpgrp());
        if !stdin.is_terminal() || !is_ours() {
            return None;
        }
        let before = termios::tcgetattr(&stdin).ok()?;
        let mut by_key = before.clone();
        by_key.local_modes -= LocalModes::ICANON | LocalModes::ECHO;
        termios::tcsetattr(&stdin, OptionalActions::Now, &by_key).ok()?;
        let (press, pressed) = mpsc::unbounded_channel();
        // Reading a terminal blocks: the thread ends with the program.
        std::thread::spawn(move || {
            for key in io::stdin().lock().bytes().map_while(Result::ok) {
                if press.send(key).is_err() {
                    return;
                }
            }
        });
        Some(Self { before, pressed })
    }

    /// Waits for `q`.
    pub(super) async fn quit(keys: &mut Option<Self>) {
        if let Some(keys) = keys {
            while let Some(key) = keys.pressed.recv().await {
                if matches!(key, b'q' | b'Q') {
                    return;
                }
            }
        }
        // No more keys come.
        std::future::pending().await
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        let _gone = termios::tcsetattr(io::stdin(), OptionalActions::Now, &self.before);
    }
}
