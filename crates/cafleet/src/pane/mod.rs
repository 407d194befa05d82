//! tmux panes: which one this is, what runs in it, whether it can take a message, and typing one.
//!
//! A message is committed before anything here runs, and a failure here never fails a command.
//! A key is sent only into the very pane that was recorded, only when the expected coding agent is
//! its foreground program, and only when that agent's input line is empty.
//!
//! [`backend`], [`compose`] and [`classify`] decide and touch nothing; [`inspect`] and [`evidence`] find out; [`tmux`],
//! [`deliver`], [`deliverer`] and [`launch`] act.

pub(crate) mod backend;
pub(crate) mod classify;
pub(crate) mod compose;
pub(crate) mod deliver;
pub(crate) mod deliverer;
pub(crate) mod evidence;
pub(crate) mod inspect;
pub(crate) mod launch;
pub(crate) mod leave;
pub(crate) mod own_pane;
pub(crate) mod process;
pub(crate) mod tmux;
