//! The helper with a program in the fence that it puts up: as this user, as another one, and in a process namespace.

#![expect(clippy::unwrap_used, reason = "a helper that fails fails its test")]

use std::{
    fs,
    os::unix::fs::{PermissionsExt, chown},
    path::{Path, PathBuf},
    process::{Command, Output},
};

use caliban_core::fence::Profile;
use caliban_fence::{Access, ByteText, Fence, FencedCommand, NOT_FENCED, REFUSAL};
use tempfile::TempDir;

const OTHER: u32 = 4242;

/// A project and a home, and a copy of the helper that everybody can run.
struct Place {
    keep: TempDir,
}

impl Place {
    fn new() -> Self {
        let keep = TempDir::new().unwrap();
        fs::set_permissions(keep.path(), fs::Permissions::from_mode(0o755)).unwrap();
        for name in ["project", "home"] {
            fs::create_dir(keep.path().join(name)).unwrap();
        }
        fs::write(keep.path().join("home/secret"), "secret").unwrap();
        let examples = std::env::current_exe().unwrap().ancestors().nth(2).unwrap().join("examples/fence");
        fs::copy(examples, keep.path().join("fence")).unwrap();
        Self { keep }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.keep.path().join(name)
    }

    fn order(&self, line: &str) -> FencedCommand {
        let mut fence = Fence::new(Profile::Edit, self.at("home"));
        fence.show(&self.at("project"), Access::ReadWrite);
        FencedCommand {
            fence,
            program: ByteText::from("bash"),
            arguments: vec![ByteText::from("-c"), ByteText::from(line)],
            directory: self.at("project").into(),
            environment: vec![
                (ByteText::from("PATH"), ByteText::from("/usr/bin:/bin")),
                (ByteText::from("HOME"), self.at("home").into()),
            ],
            descriptors: Vec::new(),
        }
    }

    /// Behind these words: `setpriv …`.
    fn run_behind(&self, words: &[&str], order: &FencedCommand) -> Output {
        let (command, _kept_open) = order.command(&self.at("fence")).unwrap();
        let all: Vec<_> = std::iter::once(command.get_program()).chain(command.get_args()).collect();
        match words.split_first() {
            Some((first, rest)) => Command::new(first).args(rest).args(all).output().unwrap(),
            None => Command::new(all[0]).args(&all[1..]).output().unwrap(),
        }
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// What is tried, and what must be said about it.
const LINE: &str = "touch made && echo made; touch /usr/x /etc/x /x 2>&1 | wc -l; cat ~/secret 2>&1 | grep -c such; ls /proc | \
    grep -c '^[0-9]'; grep CapEff /proc/self/status; cat /etc/shadow 2>&1 | grep -c denied; echo $TMPDIR";

fn holds(output: &Output) {
    let said = text(output);
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines[..3], ["made", "3", "1"], "{said}");
    // The first process, the shell, `ls` and `grep`.
    assert!(matches!(lines[3], "4" | "5"), "{said}");
    assert_eq!(lines[4..], ["CapEff:\t0000000000000000", "1", "/tmp"], "{said}");
}

#[test]
fn a17_the_fence_holds_for_this_user() {
    let place = Place::new();
    holds(&place.run_behind(&[], &place.order(LINE)));
    assert!(place.at("project/made").exists());
}

/// CI runs in a process namespace; containers do.
#[test]
fn a17_the_fence_holds_for_another_user_and_in_a_process_namespace() {
    if !is_root() {
        // As root this test is three; the first of them is the test above.
        return;
    }
    let unshare = ["unshare", "--pid", "--fork", "--mount-proc"];
    let other = ["setpriv", "--reuid", "4242", "--regid", "4242", "--clear-groups"];
    for words in [&unshare[..], &other[..], &[&unshare[..], &other[..]].concat()] {
        let place = Place::new();
        if words.contains(&"setpriv") {
            for name in ["project", "home"] {
                chown(place.at(name), Some(OTHER), Some(OTHER)).unwrap();
            }
        }
        let mut order = place.order(LINE);
        // A directory of `PATH` that only its owner can look at.
        fs::create_dir_all(place.at("closed/bin")).unwrap();
        fs::set_permissions(place.at("closed"), fs::Permissions::from_mode(0o700)).unwrap();
        order.fence.show_if_there(&place.at("closed/bin"), Access::ReadOnly);
        holds(&place.run_behind(words, &order));
    }
}

#[test]
fn a17_a_step_that_fails_is_said_and_nothing_runs() {
    let place = Place::new();
    let mut order = place.order("touch ran");
    order.fence.show(Path::new("/nonexistent/x"), Access::ReadOnly);
    let output = place.run_behind(&[], &order);
    assert_eq!(output.status.code(), Some(i32::from(NOT_FENCED)));
    assert_eq!(
        text(&output),
        format!("{REFUSAL}: cannot show /nonexistent/x: No such file or directory (os error 2)\n")
    );
    let mut order = place.order("touch ran");
    order.directory = ByteText::from("/nonexistent");
    let output = place.run_behind(&[], &order);
    assert_eq!(output.status.code(), Some(i32::from(NOT_FENCED)));
    assert!(text(&output).starts_with(&format!("{REFUSAL}: bash in /nonexistent")), "{}", text(&output));
    assert!(!place.at("project/ran").exists());
    // No order at all.
    let output = Command::new(place.at("fence")).args(["__fence", "77"]).output().unwrap();
    assert_eq!(output.status.code(), Some(i32::from(NOT_FENCED)));
}

/// The helper ends as the program does, and takes everything with it.
#[test]
fn the_end_of_the_program_is_the_helpers_end() {
    use std::os::unix::process::ExitStatusExt;
    let place = Place::new();
    assert_eq!(place.run_behind(&[], &place.order("exit 7")).status.code(), Some(7));
    assert_eq!(place.run_behind(&[], &place.order("kill -9 $$")).status.signal(), Some(9));
    assert_eq!(place.run_behind(&[], &place.order("kill -TERM $$")).status.signal(), Some(15));
    // The first process cannot be ended from within.
    assert_eq!(place.run_behind(&[], &place.order("kill -9 1; echo alive")).stdout, b"alive\n");
}

/// A variable of the program has no effect on the helper.
#[test]
fn a17_what_the_program_is_given_is_applied_inside() {
    let place = Place::new();
    let mut order = place.order("echo $LD_PRELOAD $SSH_AUTH_SOCK-");
    order.environment.push((ByteText::from("LD_PRELOAD"), ByteText::from("/nonexistent.so")));
    order.environment.push((ByteText::from("SSH_AUTH_SOCK"), ByteText::from("/run/x")));
    let output = place.run_behind(&[], &order);
    assert!(text(&output).contains("/nonexistent.so -"), "{}", text(&output));
    assert!(output.status.success());
}

/// A fork has one thread: locks that the others hold would stay taken in it.
#[test]
fn a17_a_process_with_several_threads_forks_no_fence() {
    let place = Place::new();
    let null = || std::os::fd::OwnedFd::from(fs::File::open("/dev/null").unwrap());
    let (stay, stays) = std::sync::mpsc::channel::<()>();
    let other = std::thread::spawn(move || stays.recv());
    let refused = caliban_fence::fence_child(&place.order("touch ran"), [null(), null(), null()]);
    assert_eq!(refused.unwrap_err().to_string(), "a process with several threads cannot fork a fence");
    drop(stay);
    assert!(other.join().unwrap().is_err());
    assert!(!place.at("project/ran").exists());
}
