//! tmux panes: which one this is, what runs in it, whether it can take a message, and typing one.
//!
//! A message is committed before anything here runs, and a failure here never fails a command.
//! A key is sent only into the very pane that was recorded, only when the expected coding agent is
//! its foreground program, and only when that agent's input line is empty.
//!
//! [`compose`] and [`classify`] decide and touch nothing; [`tmux`], [`process`] and [`deliver`] act.

pub(crate) mod classify;
pub(crate) mod compose;
pub(crate) mod deliver;
pub(crate) mod here;
pub(crate) mod process;
pub(crate) mod tmux;
