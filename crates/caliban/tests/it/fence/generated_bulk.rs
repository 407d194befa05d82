//! The generated lines in bulk: judged one by one by the policy of an agent, and those that it allows run in the fence that it says, many
//! in one start of it. The judge, the fence and the reaper are the agent's own; only the agent between them is left out, so that a hundred
//! thousand lines take minutes. `generated.rs` has the whole way.

use std::{
    io::{ErrorKind, Write as _},
    net::TcpListener,
    os::unix::net::UnixListener,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Instant,
};

use caliban_agent::fence::{FenceReach, Fences, OwnPlaces};
use caliban_contract::modes;
use caliban_core::{access::Access, fence::Profile, mode::Mode};
use caliban_keeper::{Launch, LaunchEnvironment, Streams};
use caliban_permissions::{Policy, Verdict};

use super::{generated, picture};
use crate::place::Place;

/// Lines when nobody says.
const LINES: usize = 300;
/// Lines in one place; then everything outside is looked at.
const AT_ONCE: usize = 300;

#[test]
fn a17_no_generated_line_in_bulk_changes_anything_outside() {
    let number = |name| generated::number(name).and_then(|number| usize::try_from(number).ok());
    let all = number("CALIBAN_SOAK_LINES").unwrap_or(LINES);
    let seed = generated::number("CALIBAN_SOAK_SEED").unwrap_or_else(|| fastrand::u64(..));
    println!("CALIBAN_SOAK_SEED={seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let (mut done, mut ran, began) = (0, 0, Instant::now());
    while done < all {
        let lines: Vec<String> = (0..AT_ONCE).map(|_| generated::line(&mut random)).collect();
        for part in lines.chunks(AT_ONCE / 3).zip([Mode::AcceptEdits, Mode::Default, Mode::Plan]) {
            ran += round(part.1, part.0);
        }
        done += AT_ONCE;
        println!("{done} lines, {ran} of them ran, {} s", began.elapsed().as_secs());
    }
    // Lines that are all refused would show nothing.
    assert!(ran * 8 > done, "only {ran} of {done} lines ran");
}

/// Everything that must stay as it is, and who would notice otherwise.
struct Outside {
    out: PathBuf,
    tcp: TcpListener,
    unix: UnixListener,
    process: std::process::Child,
    /// How it is run.
    terms: (String, String),
}

impl Outside {
    fn new(place: &Place) -> (Self, [(&'static str, String); 4]) {
        let root = place.env.root().to_owned();
        let out = root.join("work/outside");
        place.env.write(out.join("kept.txt"), "kept\n");
        place.env.write(root.join("home/.profile"), "kept\n");
        place.env.write(place.repo.join("file.txt"), "a\n");
        place.env.write(place.repo.join("Makefile"), "all:\n\techo a\n");
        std::os::unix::fs::symlink(&out, place.repo.join("out")).unwrap();
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        tcp.set_nonblocking(true).unwrap();
        let socket = root.join("run/o.sock");
        let unix = UnixListener::bind(&socket).unwrap();
        unix.set_nonblocking(true).unwrap();
        let process = Command::new("sleep").arg("3600").stdin(Stdio::null()).spawn().unwrap();
        let facts = [
            ("$OUT", out.display().to_string()),
            ("$PORT", tcp.local_addr().unwrap().port().to_string()),
            ("$SOCK", socket.display().to_string()),
            ("$PID", process.id().to_string()),
        ];
        let terms = generated::terms(process.id());
        (Self { out, tcp, unix, process, terms }, facts)
    }

    fn picture(&self, place: &Place, mode: Mode) -> Vec<(String, Vec<u8>)> {
        let mut found = picture(&self.out);
        found.extend(picture(&place.env.root().join("home")));
        found.extend(picture(&place.repo.join(".git")));
        for path in generated::SYSTEM {
            assert!(!Path::new(path).exists(), "{path}");
        }
        if mode != Mode::AcceptEdits {
            found.extend(picture(&place.repo));
        }
        found
    }

    fn noticed_nothing(&mut self, told: &dyn Fn() -> String) {
        assert!(self.process.try_wait().unwrap().is_none(), "the process outside has ended: {}", told());
        assert_eq!(generated::terms(self.process.id()), self.terms, "{}", told());
        for error in [self.tcp.accept().map(drop), self.unix.accept().map(drop)] {
            assert_eq!(error.unwrap_err().kind(), ErrorKind::WouldBlock, "a connection: {}", told());
        }
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        let _gone = self.process.kill();
        let _gone = self.process.wait();
    }
}

/// How many of the lines ran.
fn round(mode: Mode, lines: &[String]) -> usize {
    let place = Place::new(super::script(&[]));
    let (mut outside, facts) = Outside::new(&place);
    let helper = PathBuf::from(place.env.cmd("caliban").get_program());
    let env: Vec<_> = ["PATH", "HOME"]
        .into_iter()
        .filter_map(|name| Some((name.into(), place.env.var(name)?.to_owned())))
        .collect();
    let fences = Fences {
        sandbox: caliban_core::fence::Sandbox::Required,
        network: FenceReach::Nothing,
        env: env.clone(),
        hidden: vec![place.env.data().join("caliban")],
        ..Fences::off(helper.clone())
    };
    let mut policy = Policy::new(&place.repo, place.env.root().join("home"));
    policy.mode = mode;
    let before = outside.picture(&place, mode);
    let (mut reading, mut editing) = (Vec::new(), Vec::new());
    for line in lines {
        let line = facts.iter().fold(line.clone(), |line, (name, value)| line.replace(name, value));
        let access = Access::Command { line: line.clone(), cwd: place.repo.clone(), outside: None };
        match policy.decide("Bash", &[access]) {
            Verdict::Allow { fence: Profile::Read, .. } => reading.push(line),
            Verdict::Allow { fence: Profile::Edit, .. } => editing.push(line),
            Verdict::Allow { fence: Profile::None | Profile::Open, why, .. } => {
                panic!("{mode}: {line} runs without a fence: {why}")
            }
            Verdict::Ask { .. } | Verdict::Deny { .. } => {}
        }
    }
    let told = || format!("{mode}: {reading:#?} {editing:#?}");
    for (profile, lines) in [(Profile::Read, &reading), (Profile::Edit, &editing)] {
        if lines.is_empty() {
            continue;
        }
        let own = OwnPlaces::default();
        let fenced = fences.fence(profile, &policy, &place.repo, &own).unwrap().unwrap();
        let (fence, steps) = fenced.begin().unwrap();
        let each = "for line; do timeout -k 1 5 bash -c \"$line\" < /dev/null > /dev/null 2>&1; done; true";
        let arguments = ["-c", each, "bash"].into_iter().chain(lines.iter().map(String::as_str));
        let launch = Launch {
            program: "bash".into(),
            arguments: arguments.map(Into::into).collect(),
            directory: place.repo.clone(),
            identity: None,
            environment: LaunchEnvironment::Exactly(env.clone()),
            streams: Streams::Joined,
            fence: Some(fence),
            limits: caliban_contract::tree_limits::TreeLimits::default(),
        };
        let mut reaper = Command::new(&helper);
        reaper.arg(modes::REAP).env_clear().current_dir("/");
        let mut reaper =
            reaper.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        // Open until the end: its end is the wish that the command ends.
        let mut control = reaper.stdin.take().unwrap();
        control.write_all(&launch.encode().unwrap()).unwrap();
        let output = reaper.wait_with_output().unwrap();
        drop((control, steps));
        assert!(output.status.success(), "{output:?}: {}", told());
    }
    assert_eq!(outside.picture(&place, mode), before, "{}", told());
    outside.noticed_nothing(&told);
    reading.len() + editing.len()
}
