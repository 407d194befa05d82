//! A hermetic place to run the binary in, and the masking of what differs from run to run.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

/// How long a test waits for a condition before it fails.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A home with nothing in it, and names for the ids that come up.
pub(crate) struct World {
    dir: TempDir,
    names: RefCell<Vec<(String, String)>>,
    env: Vec<(String, String)>,
}

/// What a command said: exit code, standard output, standard error, all masked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Said {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// Expectation: success with this output and no talk.
pub(crate) fn ok(out: &str) -> Said {
    Said { code: 0, out: format!("{out}\n"), err: String::new() }
}

/// Expectation: exit 1 with this one line.
pub(crate) fn refused(message: &str) -> Said {
    Said { code: 1, out: String::new(), err: format!("Error: {message}\n") }
}

/// Expectation: exit 2 with the usage banner of this command.
pub(crate) fn misused(usage: &str, path: &str, message: &str) -> Said {
    let err = format!("Usage: {usage}\nTry '{path} --help' for help.\n\nError: {message}\n");
    Said { code: 2, out: String::new(), err }
}

impl World {
    pub(crate) fn new() -> Self {
        let dir = tempfile::Builder::new().prefix("cafleet-").tempdir().expect("temp dir");
        Self { dir, names: RefCell::default(), env: Vec::new() }
    }

    /// A world with a session made outside tmux: `S`, its Director `D`, its Administrator `ADMIN`.
    pub(crate) fn with_session() -> Self {
        let world = Self::new();
        let made = world.json(&["session", "create", "--no-tmux", "--label", "my-project", "--json"]);
        world.name_session(&made);
        world
    }

    pub(crate) fn name_session(&self, made: &Value) {
        self.name("S", made["session_id"].as_str().expect("session id"));
        self.name("D", made["director"]["agent_id"].as_str().expect("director"));
        self.name("ADMIN", made["administrator_agent_id"].as_str().expect("administrator"));
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A fake coding agent on the path `bin`: a script, as the real ones are, that becomes this test binary.
    pub(crate) fn fake_program(&self, name: &str) {
        use std::os::unix::fs::PermissionsExt;
        let real = self.path("bin/real");
        std::fs::create_dir_all(&real).expect("mkdir");
        let exe = std::env::current_exe().expect("exe");
        std::os::unix::fs::symlink(exe, real.join(name)).expect("symlink");
        let script = format!(
            "#!/bin/sh\nFAKE_ARGS=\"$*\"; export FAKE_ARGS\nexec {}/{name} --exact fake_agent::play --ignored --nocapture\n",
            real.display()
        );
        let file = self.path("bin").join(name);
        std::fs::write(&file, script).expect("script");
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).expect("mode");
    }

    pub(crate) fn database(&self) -> PathBuf {
        self.path("home/.local/share/cafleet/registry.db")
    }

    pub(crate) fn set(&mut self, name: &str, value: impl AsRef<str>) {
        self.env.retain(|(known, _)| known != name);
        self.env.push((name.to_owned(), value.as_ref().to_owned()));
    }

    pub(crate) fn name(&self, name: &str, id: &str) {
        self.names.borrow_mut().push((name.to_owned(), id.to_owned()));
    }

    pub(crate) fn id(&self, name: &str) -> String {
        let names = self.names.borrow();
        names
            .iter()
            .rev()
            .find(|(known, _)| known == name)
            .map(|(_, id)| id.clone())
            .unwrap_or_else(|| panic!("{name}"))
    }

    /// Registers an agent and gives its id a name.
    pub(crate) fn agent(&self, name: &str) {
        let made = self.json(&[
            "--session-id",
            "@S",
            "--json",
            "agent",
            "register",
            "--name",
            name,
            "--description",
            "d",
        ]);
        self.name(name, made["agent_id"].as_str().expect("agent id"));
    }

    /// Sends a message and gives its id a name.
    pub(crate) fn send(&self, name: &str, from: &str, to: &str, text: &str) -> Value {
        let (from, to) = (format!("@{from}"), format!("@{to}"));
        let sent = self.json(&[
            "--session-id",
            "@S",
            "--json",
            "message",
            "send",
            "--agent-id",
            &from,
            "--to",
            &to,
            "--text",
            text,
            "--full",
        ]);
        self.name(name, sent["task"]["task_id"].as_str().expect("task id"));
        sent
    }

    /// A command to run; `@X` is the id named X, `@X8` its first eight characters.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        self.program(env!("CARGO_BIN_EXE_cafleet"), args)
    }

    /// The same for any program.
    pub(crate) fn program(&self, program: impl AsRef<OsStr>, args: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(args.iter().map(|arg| self.spell(arg)));
        command.env_clear().env("HOME", self.path("home")).env("PATH", "/usr/local/bin:/usr/bin:/bin");
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        command.current_dir(self.dir.path()).stdin(Stdio::null());
        command
    }

    fn spell(&self, arg: &str) -> String {
        let Some(name) = arg.strip_prefix('@') else { return arg.to_owned() };
        let known = |name: &str| self.names.borrow().iter().any(|(known, _)| known == name);
        match name.strip_suffix('8') {
            Some(short) if !known(name) => self.id(short).chars().take(8).collect(),
            _ => self.id(name),
        }
    }

    pub(crate) fn run(&self, args: &[&str]) -> Said {
        self.said(&self.command(args).output().expect("run"))
    }

    pub(crate) fn run_with_stdin(&self, args: &[&str], stdin: &[u8]) -> Said {
        let mut command = self.command(args);
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = child.expect("spawn");
        let mut pipe = child.stdin.take().expect("stdin");
        // A command that refuses early closes its end; that is not the test's concern.
        let _ = pipe.write_all(stdin);
        drop(pipe);
        self.said(&child.wait_with_output().expect("output"))
    }

    pub(crate) fn said(&self, output: &Output) -> Said {
        Said {
            code: output.status.code().unwrap_or(-1),
            out: self.mask(&String::from_utf8_lossy(&output.stdout)),
            err: self.mask(&String::from_utf8_lossy(&output.stderr)),
        }
    }

    /// Runs a command that succeeds with JSON.
    pub(crate) fn json(&self, args: &[&str]) -> Value {
        let output = self.command(args).output().expect("run");
        let err = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{args:?}: {err}");
        serde_json::from_slice(&output.stdout).expect("json")
    }

    /// The mailbox of an agent, whole.
    pub(crate) fn mailbox(&self, agent: &str) -> Vec<Value> {
        let agent = format!("@{agent}");
        let all = self.json(&[
            "--session-id",
            "@S",
            "--json",
            "message",
            "poll",
            "--agent-id",
            &agent,
            "--all",
            "--full",
        ]);
        all.as_array().expect("array").clone()
    }

    /// Replaces what differs from run to run: named ids, other ids, times, our directory.
    pub(crate) fn mask(&self, text: &str) -> String {
        let mut text = text.replace(&self.dir.path().display().to_string(), "<dir>");
        for (name, id) in self.names.borrow().iter() {
            text = text.replace(id, &format!("<{name}>")).replace(&id[..8], &format!("<{name}8>"));
        }
        let text = replace_pattern(&text, "dddd-dd-ddTdd:dd:dd.dddddd+dd:dd", "<ts>");
        replace_pattern(&text, "hhhhhhhh-hhhh-hhhh-hhhh-hhhhhhhhhhhh", "<id>")
    }
}

/// `d` stands for a digit, `h` for a hexadecimal digit, anything else for itself.
fn replace_pattern(text: &str, pattern: &str, with: &str) -> String {
    let fits = |at: &str| {
        at.len() >= pattern.len()
            && at.bytes().zip(pattern.bytes()).all(|(byte, want)| match want {
                b'd' => byte.is_ascii_digit(),
                b'h' => byte.is_ascii_hexdigit(),
                want => byte == want,
            })
    };
    let mut out = String::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        if fits(rest) {
            out.push_str(with);
            rest = &rest[pattern.len()..];
        } else {
            out.push(c);
            rest = &rest[c.len_utf8()..];
        }
    }
    out
}

/// Waits until `ready` gives something.
#[track_caller]
pub(crate) fn eventually<T>(what: &str, mut ready: impl FnMut() -> Option<T>) -> T {
    let give_up = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = ready() {
            return found;
        }
        assert!(Instant::now() < give_up, "waited too long for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
