//! Every cap and time limit of the tools, each with a name and one default.

use caliban_contract::tree_limits::TreeLimits;
use std::time::Duration;

/// Lines that one Read returns unless it asks for fewer.
pub const READ_LINES: u64 = 2_000;
/// Characters of a line that are shown.
pub const LINE_CHARS: usize = 2_000;
/// Bytes of text that one Read returns.
pub const READ_BYTES: usize = 100_000;
/// Bytes of a file that a Read may pass over on its way to the lines asked for.
pub const SCAN_BYTES: u64 = 8 << 30;
/// Bytes of a picture that is looked at; what is sent of it is smaller.
pub const IMAGE_BYTES: u64 = 20 << 20;
/// Bytes of a file that Edit takes into memory, and up to which the ledger knows files by content.
pub const FILE_BYTES: u64 = 32 << 20;
/// Characters of any other tool's output that the model gets.
pub const OUTPUT_CHARS: usize = 30_000;
/// Bytes of a command's output that are held in memory before they go to a file.
pub const MEMORY_BYTES: usize = 128 << 10;
/// Bytes of one output that are kept in a file.
pub const WHOLE_BYTES: u64 = 64 << 20;
/// Bytes of live output that one call hands to its observers.
pub const PROGRESS_BYTES: usize = 256 << 10;
/// Paths that one Glob returns.
pub const GLOB_PATHS: usize = 200;
/// Lines that one Grep returns unless it asks for another number.
pub const GREP_LINES: usize = 250;
/// Bytes of matches that one Grep holds in memory.
pub const GREP_BYTES: usize = 4 << 20;
/// Bytes that the searcher may hold for one line, or for one file in multiline mode.
pub const GREP_HEAP: usize = 64 << 20;
/// Directory entries that one search looks at.
pub const WALK_ENTRIES: usize = 1_000_000;
/// How long one search may take.
pub const SEARCH_TIME: Duration = Duration::from_secs(60);
/// Entries of a directory that are looked at for a similar name.
pub const SIMILAR_ENTRIES: usize = 5_000;
/// Lines of a diff that Edit shows.
pub const DIFF_LINES: usize = 40;
/// How long a diff may be computed.
pub const DIFF_TIME: Duration = Duration::from_millis(100);
/// Items of a todo list.
pub const TODOS: usize = 100;
/// Characters of one todo.
pub const TODO_CHARS: usize = 1_000;
/// Bytes of a command line: the kernel's limit of one argument, less what we wrap around it.
pub const COMMAND_BYTES: usize = 100_000;
/// Background jobs that run at one time in one workspace.
pub const JOBS: usize = 32;
/// Redirects that a fetch follows.
pub const REDIRECTS: usize = 5;
/// Bytes of a fetched page.
pub const FETCH_BYTES: usize = 5 << 20;

/// The limits that a caller may set; the rest are constants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolLimits {
    /// How long a command may run when the call names no time.
    pub command_time: Duration,
    /// The longest time that a call may name.
    pub command_time_max: Duration,
    /// Characters of output that the model gets of one call.
    pub output_chars: usize,
    /// How long one fetch may take, redirects and body included.
    pub fetch_time: Duration,
    /// What a command may take of the machine with all that it starts, also outside of a fence.
    pub taken: TreeLimits,
    /// Whether all commands together are held to that here. Of an agent of the fleet its shim does it.
    pub holds_all: bool,
}

impl Default for ToolLimits {
    fn default() -> Self {
        Self {
            command_time: caliban_core::defaults::COMMAND_TIME,
            command_time_max: Duration::from_secs(600),
            output_chars: OUTPUT_CHARS,
            fetch_time: Duration::from_secs(30),
            taken: TreeLimits::default(),
            holds_all: false,
        }
    }
}
