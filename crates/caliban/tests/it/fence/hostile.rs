//! What the attacks of this directory are made of: commands that no rule has to allow, and programs that run beside them.

use std::{
    io::ErrorKind,
    os::unix::net::UnixListener,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};
use testkit::{
    StepExt as _,
    script::{Script, ScriptStep},
    text, tool,
};

use crate::place::Place;

/// A program in Python, without words that a rule could be about.
pub(super) fn python(program: &str) -> String {
    format!("/usr/bin/python3 - <<'E'\n{program}\nE")
}

/// A call of Bash.
pub(super) fn bash(command: impl Into<String>) -> ScriptStep {
    tool("Bash", json!({"command": command.into()}))
}

/// Runs beside the calls that follow, until there is a file `stop` in the project. It says that it is ready by a file `ready`.
pub(super) fn beside(program: &str) -> ScriptStep {
    let whole = format!("{LIBRARY}\n{program}");
    tool("Bash", json!({"command": python(&whole), "run_in_background": true}))
}

/// Names for the programs. `exchange` swaps two names at once; `Opened` tells when somebody opens a directory.
pub(super) const LIBRARY: &str = "
import ctypes, os, select, struct, time
libc = ctypes.CDLL(None, use_errno=True)
def exchange(one, other):
    return libc.renameat2(-100, one.encode(), -100, other.encode(), 2) == 0
def stopped(): return os.path.exists('stop')
def ready(): open('ready', 'w').close()
class Opened:
    def __init__(self, path):
        self.fd = libc.inotify_init1(0o4000)
        libc.inotify_add_watch(self.fd, path.encode(), 0x20)
    def within(self, seconds):
        found = select.select([self.fd], [], [], seconds)[0]
        if found: os.read(self.fd, 65536)
        return bool(found)
";

/// Waits in a reading command, after which nothing is put aside.
pub(super) fn wait_for_ready() -> ScriptStep {
    bash("until test -e ready; do sleep 0.05; done")
}

/// Ends what runs beside.
pub(super) fn stop() -> ScriptStep {
    bash(python("open('stop', 'w').close()"))
}

/// The calls, and whatever the model has to say then.
pub(super) fn calls(steps: impl IntoIterator<Item = ScriptStep>) -> Script {
    Script { steps: steps.into_iter().chain([text("done").forever()]).collect() }
}

/// Tells the agent that the shell's last directory is this one. The shell itself has no word in it any more.
pub(super) fn reports(directory: &Path) -> ScriptStep {
    let said = directory.display();
    bash(format!(
        "exec /usr/bin/python3 -c \"\nimport os\nfor fd in range(3, 64):\n    try: os.write(fd, b'{said}\\n\\0')\n    except OSError: pass\n\""
    ))
}

/// A command that reads a file, in words that name none.
pub(super) fn reads(path: &Path) -> ScriptStep {
    bash(format!("cat $(printf %s {})/{}", path.parent().unwrap().display(), name(path)))
}

fn name(path: &Path) -> String {
    path.file_name().unwrap().to_str().unwrap().to_owned()
}

/// A project that is no git repository.
pub(super) fn plain_directory(place: &mut Place) -> PathBuf {
    let directory = place.env.root().join("plain");
    std::fs::create_dir(&directory).unwrap();
    place.repo.clone_from(&directory);
    directory
}

/// A socket outside that tells whether anybody came.
pub(super) struct Doorbell(pub(super) PathBuf, UnixListener);

impl Doorbell {
    pub(super) fn new(place: &Place) -> Self {
        let path = place.env.runtime().join("door.sock");
        let listener = UnixListener::bind(&path).unwrap();
        listener.set_nonblocking(true).unwrap();
        Self(path, listener)
    }

    /// A command that rings.
    pub(super) fn ring(&self) -> ScriptStep {
        let path = self.0.display();
        bash(python(&format!("import socket; socket.socket(socket.AF_UNIX).connect('{path}')")))
    }

    #[track_caller]
    pub(super) fn was_not_rung(&self) {
        assert_eq!(self.1.accept().unwrap_err().kind(), ErrorKind::WouldBlock, "somebody came in");
    }
}

/// Runs the script; what came of it, with the text of all results. No result may hold the canary.
#[track_caller]
pub(super) fn shows_no_canary(
    place: &Place,
    mode: &str,
    flags: &[&str],
) -> Vec<(String, String, Option<i64>)> {
    super::go(place, mode, flags);
    let results = super::results(place);
    assert!(results.iter().all(|(_, text, _)| !text.contains("canary")), "{mode}: {results:#?}");
    results
}

/// Whether a call ran nothing: it was refused, or its fence could not be put up.
pub(super) fn is_refused((.., code): &(String, String, Option<i64>)) -> bool {
    matches!(code, None | Some(125))
}

/// A git repository whose settings run a program, at a place; what the program leaves behind.
pub(super) fn armed(mark: &Path) -> Value {
    json!(format!("[core]\n\trepositoryformatversion = 0\n\tfsmonitor = touch {}\n", mark.display()))
}
