//! A worker for the tests: does what its task says (`do PLAN`), without one what the variable `FAKE` in its environment says.
//!
//! `done`, `fail`, `mute`, `hang`, `exit:<code>`, `gate:<file>` (done when the file is there), `gate-exit:<file>`
//! (ends with code 3 then), `eat:<file>` (takes memory without end then), `sh:<script>` (starts it and hangs), `serve` (idle; obeys lines on
//! its socket: `work`, `rest`, `ask`, `sleep`, `linger <file>` (says that it sleeps, and leaves when the file is there),
//! `say <id> <text>` (once for each id, durably into the file `said`), `end`; the last two are answered).
//!
//! Each start adds its nonce to the file `runs` in the agent's directory; one beside another, to `doubled`.

use std::fs::{self, OpenOptions};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use caliban_contract::records::{
    self, AskRecord, EndNotice, EndingKind, HIBERNATED, ResumeOrder, STATUS_VERSION, Waiting, WorkerEnding,
    WorkerState, WorkerStatus,
};
use caliban_core::spec::SpawnSpec;

/// What its task says, else what its environment says.
fn plan(dir: &Path) -> String {
    let spec = fs::read_to_string(dir.join(records::SPEC)).ok();
    let spec = spec.and_then(|json| SpawnSpec::from_json(&json).ok());
    let task = spec.as_ref().and_then(|spec| spec.prompt.strip_prefix("do ")?.strip_suffix("\nand more"));
    task.map_or_else(told_by_environment, str::to_owned)
}

#[expect(clippy::disallowed_methods, reason = "a test program is told what to do by its environment")]
fn told_by_environment() -> String {
    std::env::var("FAKE").unwrap_or_else(|_| "done".to_owned())
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.first().is_some_and(|mode| mode == caliban_contract::modes::NOTIFY) {
        return tell();
    }
    let [_, dir, _, nonce, _, socket] = args.as_slice() else { return ExitCode::from(99) };
    let worker = Worker { dir: PathBuf::from(dir), nonce: nonce.clone() };
    let runs = OpenOptions::new().append(true).create(true).open(worker.dir.join("runs"));
    if runs.and_then(|mut runs| writeln!(runs, "{nonce}")).is_err() {
        return ExitCode::from(98);
    }
    // Held until we end: two workers of one agent at once are what must never be.
    let Ok(alone) = OpenOptions::new().append(true).create(true).open(worker.dir.join("alone")) else {
        return ExitCode::from(93);
    };
    if alone.try_lock().is_err() {
        let _only_a_test = fs::write(worker.dir.join("doubled"), nonce);
    }
    let plan = plan(&worker.dir);
    match plan.split_once(':').unwrap_or((plan.as_str(), "")) {
        ("done", _) => worker.end(WorkerState::Done, None),
        ("fail", _) => worker.end(WorkerState::Failed, Some("the fake failed")),
        ("mute", _) => hang(),
        ("hang", _) => {
            worker.say(WorkerState::Running, |_| {});
            hang()
        }
        ("exit", code) => ExitCode::from(code.parse::<u8>().unwrap_or(97)),
        ("gate", file) => {
            worker.say(WorkerState::Running, |_| {});
            while !Path::new(file).exists() {
                std::thread::sleep(Duration::from_millis(5));
            }
            worker.end(WorkerState::Done, None)
        }
        ("gate-exit", file) => {
            worker.say(WorkerState::Running, |_| {});
            while !Path::new(file).exists() {
                std::thread::sleep(Duration::from_millis(5));
            }
            ExitCode::from(3)
        }
        ("eat", file) => {
            worker.say(WorkerState::Running, |_| {});
            while !Path::new(file).exists() {
                std::thread::sleep(Duration::from_millis(5));
            }
            let mut eaten: Vec<Vec<u8>> = Vec::new();
            loop {
                // Not zero, so that the pages are really there.
                eaten.push(vec![1; 1024 * 1024]);
            }
        }
        ("sh", script) => {
            if Command::new("sh").arg("-c").arg(script).spawn().is_err() {
                return ExitCode::from(96);
            }
            worker.say(WorkerState::Running, |_| {});
            hang()
        }
        ("serve", _) => worker.serve(Path::new(socket)),
        _ => ExitCode::from(95),
    }
}

/// Writes down what it was told to tell, unless the agent is gone already.
fn tell() -> ExitCode {
    let Ok(EndNotice { directory, event, text, .. }) = serde_json::from_reader(std::io::stdin()) else {
        return ExitCode::from(92);
    };
    let told = OpenOptions::new().append(true).create(true).open(directory.join("told"));
    let _gone = told.and_then(|mut told| writeln!(told, "{} {event}: {text}", told_by_environment()));
    ExitCode::SUCCESS
}

fn hang() -> ! {
    loop {
        std::thread::park();
    }
}

struct Worker {
    dir: PathBuf,
    nonce: String,
}

impl Worker {
    fn say(&self, state: WorkerState, more: impl FnOnce(&mut WorkerStatus)) {
        let mut status = WorkerStatus {
            version: STATUS_VERSION,
            nonce: self.nonce.clone(),
            state,
            turns: 1,
            ..Default::default()
        };
        more(&mut status);
        if records::write(&self.dir, records::STATUS, &status).is_err() {
            hang();
        }
    }

    fn end(&self, state: WorkerState, text: Option<&str>) -> ExitCode {
        let kind = if state == WorkerState::Done { EndingKind::Finished } else { EndingKind::Error };
        self.say(state, |status| status.ending = Some(WorkerEnding { kind, text: text.map(str::to_owned) }));
        ExitCode::SUCCESS
    }

    /// Takes a message: `<id> <text>`, once for each id.
    fn hear(&self, message: &str) -> std::io::Result<()> {
        let path = self.dir.join("said");
        let id = message.split(' ').next().unwrap_or_default();
        let said = fs::read_to_string(&path).unwrap_or_default();
        if said.lines().any(|line| line.split(' ').next() == Some(id)) {
            return Ok(());
        }
        let mut file = OpenOptions::new().append(true).create(true).open(path)?;
        writeln!(file, "{message}")?;
        file.sync_all()
    }

    fn serve(&self, socket: &Path) -> ExitCode {
        let _stale = fs::remove_file(socket);
        let Ok(listener) = UnixListener::bind(socket) else { return ExitCode::from(94) };
        let resumed: Option<ResumeOrder> = records::read(&self.dir, records::RESUME);
        let prompt = resumed.filter(|order| order.nonce == self.nonce).and_then(|order| order.prompt());
        // Heard: it need not be said again.
        let _none = fs::remove_file(self.dir.join(records::RESUME));
        self.say(WorkerState::Idle, |status| status.last_text = prompt);
        for mut stream in listener.incoming().flatten() {
            let mut line = String::new();
            if BufReader::new(&stream).read_line(&mut line).is_err() {
                continue;
            }
            if let Some(message) = line.trim().strip_prefix("say ") {
                if self.hear(message).is_ok() {
                    let _gone = writeln!(stream, "has it");
                }
                continue;
            }
            if let Some(file) = line.trim().strip_prefix("linger ") {
                self.say(WorkerState::Idle, |status| status.hibernated = true);
                while !Path::new(file).exists() {
                    std::thread::sleep(Duration::from_millis(5));
                }
                return ExitCode::from(u8::try_from(HIBERNATED).unwrap_or(0));
            }
            match line.trim() {
                "work" => {
                    self.say(WorkerState::Running, |status| status.activity = Some("Bash true".to_owned()))
                }
                "rest" => self.say(WorkerState::Idle, |_| {}),
                "ask" => self.say(WorkerState::Running, |status| {
                    status.waiting_for = Some(Waiting::Approval);
                    status.asks = vec![AskRecord {
                        id: "1".into(),
                        what: "Bash rm -r x".into(),
                        ..AskRecord::default()
                    }];
                }),
                "sleep" => {
                    self.say(WorkerState::Idle, |status| status.hibernated = true);
                    return ExitCode::from(u8::try_from(HIBERNATED).unwrap_or(0));
                }
                "end" => {
                    let code = self.end(WorkerState::Done, None);
                    let _gone = writeln!(stream, "ends");
                    return code;
                }
                _ => {}
            }
        }
        ExitCode::FAILURE
    }
}
