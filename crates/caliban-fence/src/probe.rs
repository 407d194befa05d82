//! Whether this machine can put a fence up: tried, not guessed.

use std::{
    io::Write,
    path::Path,
    process::{Command, Stdio},
    sync::OnceLock,
};

use caliban_contract::modes;
use caliban_core::fence::Profile;
use caliban_rooted::ByteText;

use crate::{
    REFUSAL,
    fence::{Fence, FencedCommand},
};

/// Tries it once in the life of this process; the words say why it cannot be done. `helper` is our own program.
pub fn probe(helper: &Path) -> Result<(), String> {
    static FOUND: OnceLock<Result<(), String>> = OnceLock::new();
    FOUND.get_or_init(|| tried(helper)).clone()
}

/// Tries it now.
pub fn tried(helper: &Path) -> Result<(), String> {
    let order = FencedCommand {
        fence: Fence::new(Profile::Read, "/nonexistent/home"),
        program: ByteText::from("true"),
        arguments: Vec::new(),
        directory: ByteText::from("/"),
        environment: vec![(ByteText::from("PATH"), ByteText::from("/usr/local/bin:/usr/bin:/bin"))],
        descriptors: Vec::new(),
    };
    let (mut command, file) = order.command(helper).map_err(|error| error.to_string())?;
    let output = command.stdin(Stdio::null()).stdout(Stdio::null()).output();
    drop(file);
    let output = output.map_err(|error| format!("{}: {error}", helper.display()))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let said = said.lines().next().unwrap_or_default();
    Err(said.strip_prefix(REFUSAL).map_or(said, |reason| reason.trim_start_matches([':', ' '])).to_owned())
}

impl FencedCommand {
    /// The command that carries the order out, and the file that holds the order: keep it until the command was started.
    pub fn command(&self, helper: &Path) -> std::io::Result<(Command, std::fs::File)> {
        use std::os::fd::AsRawFd;
        // Inherited: a number is all that the helper gets.
        let file = rustix::fs::memfd_create("caliban-fence", rustix::fs::MemfdFlags::empty())?;
        let mut file = std::fs::File::from(file);
        file.write_all(&serde_json::to_vec(self)?)?;
        let mut command = Command::new(helper);
        command.arg(modes::FENCE).arg(file.as_raw_fd().to_string()).env_clear().current_dir("/");
        Ok((command, file))
    }
}
