//! Defaults of settings that other crates have without settings, too. Each is written here only.

use std::time::Duration;

/// The names of instruction files, in the order in which they are read.
pub const CONTEXT_FILES: [&str; 4] = ["AGENTS.md", "CLAUDE.md", ".claude/CLAUDE.md", "CLAUDE.local.md"];
/// The most bytes of all instruction files together.
pub const CONTEXT_BYTES: usize = 32 * 1024;
/// How long a command of a tool may take.
pub const COMMAND_TIME: Duration = Duration::from_secs(120);
/// Rows that one notch of the wheel moves.
pub const WHEEL_ROWS: u16 = 3;
/// Whether the screen has the terminal's alternate screen.
pub const ALT_SCREEN: bool = true;
/// Whether the screen takes the mouse.
pub const MOUSE: bool = true;
/// Whether what is selected on the screen is copied at once.
pub const COPY_ON_SELECT: bool = false;
/// What stands in the address of a search service for what is looked for.
pub const SEARCH_QUERY: &str = "{query}";
