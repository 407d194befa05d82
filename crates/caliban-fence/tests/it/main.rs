//! The helper with a program in the fence that it puts up: as this user, as another one, and in a process namespace.

#![expect(clippy::disallowed_methods, reason = "tests make their trees by path")]
#![expect(clippy::unwrap_used, reason = "a helper that fails fails its test")]

use std::{
    fs,
    os::unix::fs::{PermissionsExt, chown, symlink},
    path::PathBuf,
    process::{Command, Output},
};

use caliban_core::fence::Profile;
use caliban_fence::{Access, ByteText, Fence, FencedCommand, Hold, NOT_FENCED, REFUSAL};
use caliban_rooted::{Below, Root};
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

    fn root(&self, name: &str) -> Root {
        Root::pin(&self.at(name)).unwrap()
    }

    /// Holds a place of the project as it is now.
    fn hold(&self, order: &mut FencedCommand, name: &str, hold: Hold) {
        let place = self.root("project");
        let identity = place.look(&Below::new(name).unwrap()).unwrap().identity().unwrap();
        order.fence.hold(&place.path().join(name), identity, hold);
    }

    fn order(&self, line: &str) -> FencedCommand {
        let mut fence = Fence::new(Profile::Edit, self.at("home"));
        fence.show(&self.root("project"), Access::ReadWrite);
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
        order.fence.show_if_there(&place.root("closed/bin"), Access::ReadOnly);
        fs::set_permissions(place.at("closed"), fs::Permissions::from_mode(0o700)).unwrap();
        holds(&place.run_behind(words, &order));
    }
}

/// The limit counts the processes of a user and spares root, so the helper runs here as a user of its own.
#[test]
fn a_program_without_room_for_its_processes_is_started_when_there_is_room() {
    if !is_root() {
        return;
    }
    let place = Place::new();
    for name in ["project", "home"] {
        chown(place.at(name), Some(61_503), Some(61_503)).unwrap();
    }
    let order = place.order("touch made");
    let (command, _kept_open) = order.command(&place.at("fence")).unwrap();
    let as_user = |words: &[&str]| {
        let mut user = Command::new("setpriv");
        user.args(["--reuid", "61503", "--regid", "61503", "--clear-groups"]).args(words);
        user
    };
    let field = |pid: u32, name: &str| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(":\t")).unwrap();
        line.to_owned()
    };
    let until = |condition: &dyn Fn() -> bool| {
        let began = std::time::Instant::now();
        while !condition() {
            assert!(began.elapsed().as_secs() < 60, "waited in vain");
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    };
    // The user has as many as may be with the helper.
    let mut others: Vec<_> = (0..4).map(|_| as_user(&["sleep", "1000"]).spawn().unwrap()).collect();
    until(&|| others.iter().all(|other| field(other.id(), "Name") == "sleep"));
    let mut helper = as_user(&["prlimit", "--nproc=5"]);
    helper.arg(command.get_program()).args(command.get_args());
    let mut helper = helper.spawn().unwrap();
    let pid = helper.id();
    until(&|| field(pid, "Name") == "fence");
    let switches = || field(pid, "voluntary_ctxt_switches").parse::<u64>().unwrap();
    let before = switches();
    until(&|| switches() >= before + 5);
    assert!(!place.at("project/made").exists());
    for other in &mut others {
        other.kill().unwrap();
        other.wait().unwrap();
    }
    assert!(helper.wait().unwrap().success());
    assert!(place.at("project/made").exists());
}

/// The kernel refuses, and counts nothing but what runs in this fence: this user has more processes than that outside.
#[test]
fn a20_no_more_processes_can_be_made_than_the_fence_allows() {
    let other = ["setpriv", "--reuid", "4242", "--regid", "4242", "--clear-groups"];
    let place = Place::new();
    let words = if is_root() { &other[..] } else { &[] };
    if is_root() {
        for name in ["project", "home"] {
            chown(place.at(name), Some(OTHER), Some(OTHER)).unwrap();
        }
    }
    let line = "/usr/bin/python3 -c 'import os, signal
made = []
while len(made) < 200:
    try: pid = os.fork()
    except BlockingIOError: break
    if not pid: signal.pause()
    made.append(pid)
for pid in made: os.kill(pid, 9)
print(len(made))'";
    let mut beside: Vec<_> = (0..40)
        .map(|_| {
            let (first, rest) =
                words.split_first().map_or(("sleep", &[][..]), |(first, rest)| (*first, rest));
            let rest = rest.iter().copied().chain(if words.is_empty() { None } else { Some("sleep") });
            Command::new(first).args(rest).arg("600").spawn().unwrap()
        })
        .collect();
    let mut order = place.order(line);
    order.fence.limits.pids = Some(30);
    let limited = place.run_behind(words, &order);
    order.fence.limits.pids = None;
    let free = place.run_behind(words, &order);
    for process in &mut beside {
        process.kill().unwrap();
        process.wait().unwrap();
    }
    let made: u32 = String::from_utf8_lossy(&limited.stdout)
        .trim()
        .parse()
        .unwrap_or_else(|_| panic!("{}", text(&limited)));
    // The shell and python are among the 30.
    assert!((25..=30).contains(&made), "{made}");
    assert_eq!(free.stdout, b"200\n", "{}", text(&free));
}

#[test]
fn a17_a_step_that_fails_is_said_and_nothing_runs() {
    let place = Place::new();
    let mut order = place.order("touch ran");
    fs::create_dir(place.at("gone")).unwrap();
    order.fence.show(&place.root("gone"), Access::ReadOnly);
    fs::remove_dir(place.at("gone")).unwrap();
    let output = place.run_behind(&[], &order);
    assert_eq!(output.status.code(), Some(i32::from(NOT_FENCED)));
    let gone = place.at("gone");
    assert_eq!(text(&output), format!("{REFUSAL}: changed since it was judged: {}\n", gone.display()));
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

/// What was judged is shown, or nothing: a link or another directory in its place is neither followed nor shown.
#[test]
fn a18_what_is_not_what_was_judged_is_not_shown() {
    type Change = (&'static str, fn(&Place));
    let change: [Change; 5] = [
        ("the project is a link", |place| {
            fs::rename(place.at("project"), place.at("moved")).unwrap();
            symlink("home", place.at("project")).unwrap();
        }),
        ("the project is another directory", |place| {
            fs::rename(place.at("project"), place.at("moved")).unwrap();
            fs::create_dir_all(place.at("project/.vscode")).unwrap();
        }),
        ("a held place is a link", |place| {
            fs::rename(place.at("project/.vscode"), place.at("project/v")).unwrap();
            symlink("../home", place.at("project/.vscode")).unwrap();
        }),
        ("a held place is gone", |place| fs::remove_dir(place.at("project/.vscode")).unwrap()),
        ("the way to a hidden file leads elsewhere", |place| {
            fs::rename(place.at("project/conf"), place.at("project/c2")).unwrap();
            symlink("c2", place.at("project/conf")).unwrap();
        }),
    ];
    for (what, change) in change {
        let place = Place::new();
        fs::create_dir_all(place.at("project/conf")).unwrap();
        fs::create_dir(place.at("project/.vscode")).unwrap();
        fs::write(place.at("project/conf/key"), "key").unwrap();
        let mut order = place.order("touch ran; cat conf/key secret .vscode/secret");
        place.hold(&mut order, ".vscode", Hold::ReadOnly);
        place.hold(&mut order, "conf/key", Hold::Hidden);
        change(&place);
        let output = place.run_behind(&[], &order);
        assert_eq!(output.status.code(), Some(i32::from(NOT_FENCED)), "{what}: {}", text(&output));
        assert!(text(&output).starts_with(&format!("{REFUSAL}: changed since it was judged")), "{what}");
    }
}

#[test]
fn a18_the_way_to_a_held_place_cannot_be_moved() {
    let place = Place::new();
    for directory in ["a/b/.vscode", "a/c", "sub/nested"] {
        fs::create_dir_all(place.at("project").join(directory)).unwrap();
    }
    fs::write(place.at("project/a/b/key"), "key").unwrap();
    fs::write(place.at("project/a/b/other"), "other").unwrap();
    let tried = "mv a x; mv a/b a/y; mv a/b/key k; mv a/b/.vscode v; touch a/b/.vscode/x; mv sub s; cat a/b/key; rm -f a/b/key; \
        echo -- ; cat a/b/other; echo; mv a/b/other a/b/new; touch a/b/made; mv a/c a/d; touch sub/nested/n; cd /proc/self/fd; echo *";
    let mut order = place.order(tried);
    place.hold(&mut order, "a/b/.vscode", Hold::ReadOnly);
    place.hold(&mut order, "a/b/key", Hold::Hidden);
    order.fence.show(&place.root("project/sub/nested"), Access::ReadWrite);
    let output = place.run_behind(&[], &order);
    let said = text(&output);
    let said_out = String::from_utf8_lossy(&output.stdout);
    // What is not held can be used as ever. No descriptor of a root reaches the program: its streams, and the one of `echo *`.
    assert_eq!(said_out.lines().collect::<Vec<_>>(), ["--", "other", "0 1 2 3"], "{said}");
    for (there, wanted) in [
        ("a/b/key", true),
        ("a/b/.vscode", true),
        ("a/b/.vscode/x", false),
        ("sub/nested/n", true),
        ("a/b/new", true),
        ("a/b/made", true),
        ("a/d", true),
        ("x", false),
        ("k", false),
        ("s", false),
    ] {
        assert_eq!(place.at("project").join(there).exists(), wanted, "{there}: {said}");
    }
    assert_eq!(said.matches("busy").count(), 5, "{said}");
}

/// Everything is there, and what is held is held.
#[test]
fn a18_in_an_open_fence_only_what_is_held_is_missing() {
    let place = Place::new();
    fs::write(place.at("project/.env"), "key").unwrap();
    fs::write(place.at("project/fixed"), "fixed").unwrap();
    fs::write(place.at("home/notes"), "").unwrap();
    let mut order = place.order(
        "cat ~/secret; echo; cat .env; mv .env x; echo > fixed; cat fixed; echo more > ~/notes; cat ~/notes; umount .env; \
         unshare -rm umount .env; unshare -rm cat .env; cat /proc/1/root$PWD/.env",
    );
    order.fence = Fence::new(Profile::Open, place.at("home"));
    order.fence.masks.clear();
    order.fence.network = caliban_fence::Network::On;
    place.hold(&mut order, ".env", Hold::Hidden);
    place.hold(&mut order, "fixed", Hold::ReadOnly);
    let output = place.run_behind(&[], &order);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "secret\nfixedmore\n", "{}", text(&output));
    assert_eq!(fs::read_to_string(place.at("home/notes")).unwrap(), "more\n");
    assert_eq!(fs::read_to_string(place.at("project/.env")).unwrap(), "key");
    assert_eq!(fs::read_to_string(place.at("project/fixed")).unwrap(), "fixed");
}

/// A device in the project is a file that cannot be opened, also in a directory on the way to a held place.
#[test]
fn a17_a_device_in_the_project_is_none() {
    if !is_root() {
        // Nobody else can make one.
        return;
    }
    let place = Place::new();
    fs::create_dir_all(place.at("project/a/.vscode")).unwrap();
    for name in ["project/null", "project/a/null"] {
        let made = Command::new("mknod").arg(place.at(name)).args(["c", "1", "3"]).status().unwrap();
        assert!(made.success());
    }
    let mut order = place.order("echo x > null || echo x > a/null || cat null a/null || echo none");
    place.hold(&mut order, "a/.vscode", Hold::ReadOnly);
    let output = place.run_behind(&[], &order);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "none\n", "{}", text(&output));
}

/// Some filters of containers do not know the call, and say so in one of two ways: nothing runs, and the reason is said.
#[test]
fn a18_where_nothing_can_be_found_without_links_no_fence_is_put_up() {
    // A filter for the helper and all that it starts: the number of the call is the same on all machines.
    const FILTER: &str = "import ctypes, os, struct, sys
steps = [(0x20, 0, 0, 0), (0x15, 0, 1, 437), (0x06, 0, 0, 0x50000 | int(sys.argv[1])), (0x06, 0, 0, 0x7fff0000)]
code = b''.join(struct.pack('HBBI', *step) for step in steps)
class Filter(ctypes.Structure): _fields_ = [('count', ctypes.c_ushort), ('code', ctypes.c_char_p)]
libc = ctypes.CDLL(None)
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, ctypes.byref(Filter(len(steps), code)), 0, 0) == 0
os.execvp(sys.argv[2], sys.argv[2:])";
    for error in ["38", "1"] {
        let place = Place::new();
        let output = place.run_behind(&["/usr/bin/python3", "-c", FILTER, error], &place.order("touch ran"));
        let said = text(&output);
        assert_eq!(output.status.code(), Some(i32::from(NOT_FENCED)), "{error}: {said}");
        assert!(said.starts_with(REFUSAL) && said.contains("system call openat2"), "{error}: {said}");
        assert!(!place.at("project/ran").exists());
    }
}
