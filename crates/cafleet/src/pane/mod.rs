//! tmux panes: which one this is, what runs in it, whether it can take a message, and typing it.
//!
//! A message is committed before anything here runs, and a failure here never fails a command. A key is sent only into
//! the very pane that was recorded, only if the expected coding agent is its foreground program, and only if that
//! agent's input line is empty.
//!
//! [`backend`], [`compose`] and [`classify`] decide and have no effects; [`inspect`] and [`evidence`] only read;
//! [`tmux`], [`deliver`], [`deliverer`] and [`launch`] act.

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
