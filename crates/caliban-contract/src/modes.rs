//! Hidden modes: the first argument that makes one of our programs something else. `main` looks for them before it
//! builds a runtime or reads settings.

/// The daemon of one repo. `caliband` is this mode without the word.
pub const DAEMON: &str = "__daemon";
/// The shim of one agent: `__shim <agent directory> …`.
pub const SHIM: &str = "__shim";
/// The agent itself: `__worker <agent directory> --nonce <nonce> --socket <path>`.
pub const WORKER: &str = "__worker";
/// Runs one command and leaves no process of it.
pub const REAP: &str = "__reap";
/// Runs the user's `fleet.notify` command. The notice is on standard input: everybody can read command lines.
pub const NOTIFY: &str = "__notify";
/// Keeps one detached command: `__detached <its directory>`.
pub const DETACHED: &str = "__detached";
/// Prints the text of a PDF, with little memory and time: `__pdf <path>`.
pub const PDF: &str = "__pdf";
/// Becomes another program that ends with the process that started it: `__with-parent <pid> <program> …`.
pub const WITH_PARENT: &str = "__with-parent";
/// Puts a fence up and starts one program in it: `__fence <descriptor>`. The descriptor holds the order.
pub const FENCE: &str = "__fence";
