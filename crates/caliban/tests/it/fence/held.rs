//! Attempts to get out, each of which works without the fence.
//!
//! What a sandbox of this kind can be attacked by, and who tries it. A name in quotes is an attempt of `probe.py`.
//!
//! | attack | tried by |
//! |---|---|
//! | TCP, multipath TCP, a first packet with data, UDP and DNS, a listener without bind | "tcp", "mptcp", "fastopen", "udp", "listen without bind" |
//! | sockets of the system: abstract, in the file system, tmux, between machines, raw | "unix abstract", "unix path", "tmux", "vsock", "packet" |
//! | git's configuration, hooks, attributes; `.git` itself | "git config", "git hook", "git info", "move git", "link git" |
//! | `.git`, `commondir`, `config.worktree` of a worktree, links in its git directory, `git -C ../..` | `a17_an_agent_leads_no_git_elsewhere` |
//! | another process in `/proc`: environ, mem, maps, fd, cwd, root, cmdline | "proc …" |
//! | its memory, its descriptors, tracing it, a signal, limits, priority, processors | "process memory", "process descriptor", "ptrace", "signal", "prlimit", "priority", "affinity" |
//! | mode, times and attributes of a file outside; reading and writing it; a handle instead of a path | "chmod outside" …, "file handle" |
//! | shared memory, key rings | "shared memory", "keyring" |
//! | descriptors that were left open: a directory, a file, those of other processes | "inherited …" |
//! | what goes on after the command | `a17_nothing_of_a_fenced_command_is_left` |
//! | typing into a terminal, its line discipline, the console, the person's terminal | "type into a terminal", "line discipline …", "console", "the person's terminal" |
//! | namespaces in the fence, calls of another architecture, `io_uring`, `bpf` | "user namespace", "mount namespace", "other architecture", "io_uring", "bpf" |
//! | files that the user's session starts | "bashrc", "unit file", "envrc", "settings", "home" |

use std::{
    collections::BTreeMap,
    net::TcpListener,
    os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixListener},
    },
    path::PathBuf,
    process::{Child, Command, Stdio},
};

use serde_json::json;
use testkit::wait_until;

use super::{go, picture, result, results, run, script, settings};
use crate::place::Place;

const PROBE: &str = include_str!("probe.py");

/// What there is outside, and the command that tries to reach it.
struct Outside {
    _tcp: TcpListener,
    _unix: UnixListener,
    _abstract: UnixListener,
    process: Child,
    /// Holds a segment of shared memory, and answers datagrams.
    helper: Child,
    tmux: PathBuf,
    secret: PathBuf,
    arguments: String,
}

/// Prints the number of a UDP port and of a shared memory segment, and answers.
const HELPER: &str = "import ctypes, socket\n\
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(('127.0.0.1', 0))\n\
    libc = ctypes.CDLL(None); shm = libc.shmget(0, 4096, 0o1600)\n\
    at = libc.shmat; at.restype = ctypes.c_void_p; at(shm, None, 0); libc.shmctl(shm, 0, None)\n\
    print(s.getsockname()[1], shm, flush=True)\n\
    while True:\n  data, who = s.recvfrom(9); s.sendto(data, who)\n";

fn helper() -> (Child, u16, i32) {
    let mut child =
        Command::new("/usr/bin/python3").args(["-c", HELPER]).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(child.stdout.take().unwrap()), &mut line)
        .unwrap();
    let mut numbers = line.split_whitespace();
    let (udp, shm) = (numbers.next().unwrap().parse().unwrap(), numbers.next().unwrap().parse().unwrap());
    (child, udp, shm)
}

impl Outside {
    fn new(place: &Place) -> Self {
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = place.env.root().join("run/outside.sock");
        let unix = UnixListener::bind(&socket).unwrap();
        let name = format!("caliban-test-{}", tcp.local_addr().unwrap().port());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let hidden = UnixListener::bind_addr(&address).unwrap();
        let process = Command::new("sleep").arg("600").stdin(Stdio::null()).spawn().unwrap();
        let secret = place.env.root().join("work/secret.txt");
        place.env.write(&secret, "the secret\n");
        place.env.write(place.env.root().join("home/.profile"), "x\n");
        place.env.write(place.repo.join("probe.py"), PROBE);
        place.env.write(place.repo.join(".envrc"), "x\n");
        place.env.write(place.repo.join(".caliban/settings.toml"), "");
        let port = tcp.local_addr().unwrap().port();
        let (helper, udp, shm) = helper();
        let tmux = place.env.root().join("run/t.sock");
        let server = Command::new("tmux")
            .arg("-S")
            .arg(&tmux)
            .args(["new-session", "-d", "sleep 600"])
            .status()
            .unwrap();
        assert!(server.success());
        let arguments = format!(
            "{port} '{}' {name} {} '{}' '{}' {udp} '{}' {shm}",
            socket.display(),
            process.id(),
            secret.display(),
            place.repo.display(),
            tmux.display()
        );
        Self { _tcp: tcp, _unix: unix, _abstract: hidden, process, helper, tmux, secret, arguments }
    }

    fn command(&self) -> String {
        format!("/usr/bin/python3 probe.py {} 2>/dev/null", self.arguments)
    }

    /// Words before a program that starts it as a careless caller would: with a directory and a file of ours open, and at a
    /// terminal, which shows what the program prints.
    fn careless(&self) -> Vec<String> {
        let start = "import os, pty, sys\n\
            os.dup2(os.open(sys.argv[1], os.O_RDONLY), 77); os.dup2(os.open(sys.argv[2], os.O_RDWR), 78)\n\
            sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[3:])))\n";
        let directory = self.secret.parent().unwrap();
        let words = ["-c", start].map(str::to_owned);
        words.into_iter().chain([directory, &self.secret].map(|path| path.display().to_string())).collect()
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        for child in [&mut self.process, &mut self.helper] {
            let _gone = child.kill();
            let _gone = child.wait();
        }
        let _gone = Command::new("tmux").arg("-S").arg(&self.tmux).arg("kill-server").status();
    }
}

fn probed(text: &str) -> BTreeMap<String, String> {
    let line = text.lines().find(|line| line.starts_with('{')).unwrap_or_else(|| panic!("{text}"));
    serde_json::from_str(line).unwrap()
}

/// The names of what was open.
fn open(found: &BTreeMap<String, String>) -> Vec<&str> {
    found.iter().filter(|(_, state)| *state == "open").map(|(name, _)| name.as_str()).collect()
}

#[test]
fn a17_no_attempt_gets_out_of_the_edit_fence() {
    let place = Place::new(script(&[]));
    let outside = Outside::new(&place);
    // Without the fence they work: the attempts are real.
    let bare = Command::new("/usr/bin/python3")
        .args(outside.careless())
        .args(["bash", "-c", &outside.command()])
        .current_dir(&place.repo)
        .env("HOME", place.env.root().join("home"))
        .env("XDG_DATA_HOME", place.env.data())
        .output()
        .unwrap();
    let bare = probed(&String::from_utf8_lossy(&bare.stdout));
    for name in [
        "tcp",
        "unix path",
        "unix abstract",
        "udp",
        "tmux",
        "listen without bind",
        "signal",
        "proc environ",
        "proc cmdline",
        "proc mem",
        "proc maps",
        "proc fd",
        "proc cwd",
        "proc root",
        "process memory",
        "process descriptor",
        "shared memory",
        "inherited directory",
        "inherited directory by path",
        "inherited directory above",
        "inherited directory as cwd",
        "inherited file",
        "inherited file by path",
        "inherited by another process",
        "type into a terminal",
        "line discipline of a terminal",
        "console",
        "the person's terminal",
        "other architecture",
        "bashrc",
        "unit file",
        "priority",
        "affinity",
        "prlimit",
        "read outside",
        "write outside",
        "chmod outside",
        "times outside",
        "keyring",
        "git config",
        "git hook",
        "git info",
        "move git",
        "link git",
        "envrc",
        "move envrc",
        "settings",
        "home",
        "user namespace",
        "workspace",
        "loopback",
        "temporary",
    ] {
        assert_eq!(bare.get(name).map(String::as_str), Some("open"), "{name} outside: {bare:?}");
    }
    std::fs::remove_file(place.repo.join("linked")).unwrap();
    std::fs::remove_file(place.repo.join(".git/hooks/post-checkout")).unwrap();
    std::fs::remove_file(place.repo.join(".git/info/attributes")).unwrap();
    std::fs::remove_file(place.repo.join("made")).unwrap();
    let before =
        (picture(&place.repo.join(".git")), std::fs::metadata(&outside.secret).unwrap().modified().unwrap());
    place.server.set_script(script(&[json!({"command": outside.command()})]));
    let program = place.env.cmd("caliban").get_program().to_str().unwrap().to_owned();
    let asked = testkit::ProgramRun::new(place.env.program("/usr/bin/python3"))
        .args(outside.careless().iter().map(String::as_str))
        .args([program.as_str()])
        .args(place.server.args(place.protocol).iter().map(String::as_str))
        .args(["-p", "go", "--permission-mode", "accept-edits"])
        .dir(&place.repo)
        .output();
    assert_eq!(asked.code, 0, "{asked:?}");
    let (fence, text, code) = result(&place);
    assert_eq!((fence.as_str(), code), ("edit", Some(0)), "{text}");
    let found = probed(&text);
    assert_eq!(found.len(), bare.len());
    assert_eq!(open(&found), ["loopback", "temporary", "workspace"], "{found:?}");
    let after =
        (picture(&place.repo.join(".git")), std::fs::metadata(&outside.secret).unwrap().modified().unwrap());
    assert_eq!(before, after);
}

#[test]
fn a17_the_network_can_be_on_and_nothing_else_is_then() {
    let place = Place::new(script(&[]));
    settings(&place, "[fence]\nnetwork = \"on\"\n");
    let outside = Outside::new(&place);
    place.server.set_script(script(&[json!({"command": outside.command()})]));
    go(&place, "accept-edits", &[]);
    let found = probed(&result(&place).1);
    let open: Vec<&str> = open(&found).into_iter().filter(|name| *name != "fastopen").collect();
    let network = ["listen without bind", "loopback", "mptcp", "tcp", "temporary", "udp", "workspace"];
    assert_eq!(open, network, "{found:?}");
}

/// In default and plan mode only reading commands run, and they can change nothing whatever their words mean.
#[test]
fn a17_a_reading_command_changes_nothing() {
    for mode in ["default", "plan"] {
        let place = run(mode, &["ls; cat file.txt; pwd; git status --short; git log --oneline"]);
        let (fence, text, code) = result(&place);
        assert_eq!((fence.as_str(), code), ("read", Some(0)), "{text}");
    }
}

/// Seen: a hostile `.git/config` that came in a tarball, and `git status`, which is allowed everywhere.
#[test]
fn a17_what_a_hostile_git_configuration_runs_is_fenced() {
    let place = Place::new(script(&[json!({"command": "git status --short"})]));
    let (mark, inside) = (place.env.root().join("work/mark"), place.repo.join("inside"));
    let hook = format!("touch '{}' '{}'; echo", mark.display(), inside.display());
    place.env.git(&place.repo, &["config", "core.fsmonitor", &hook]);
    place.env.git(&place.repo, &["config", "--unset", "core.fsmonitor"]);
    // By hand, so that no git of the test runs it.
    let config = place.repo.join(".git/config");
    let text = place.env.read(&config);
    place.env.write(&config, format!("{text}[core]\n\tfsmonitor = \"{}\"\n", hook.replace('"', "\\\"")));
    go(&place, "default", &[]);
    let (fence, text, _) = result(&place);
    assert_eq!(fence, "read", "{text}");
    assert!(!mark.exists() && !inside.exists());
}

/// Seen: in the fence it ran all the same, and said to the model what it liked.
#[test]
fn a17_git_that_only_reads_runs_nothing_of_the_repositorys_configuration() {
    let commands = [
        "git status --short",
        "git diff",
        "git log -p",
        "git blame a.txt",
        "git show HEAD",
        "git diff --stat",
        "git log --show-signature -1",
    ];
    let place = Place::new(script(&commands.map(|command| json!({"command": command}))));
    place.env.write(place.repo.join("a.txt"), "one\n");
    place.env.write(place.repo.join(".gitattributes"), "* filter=hostile diff=hostile\n");
    place.env.git(&place.repo, &["add", "."]);
    place.env.git(&place.repo, &["commit", "-qm", "a"]);
    place.env.write(place.repo.join("a.txt"), "one\ntwo\n");
    let config = place.repo.join(".git/config");
    let text = place.env.read(&config);
    let says = "sh -c 'echo HOSTILE; echo HOSTILE >&2; cat'";
    place.env.write(
        &config,
        format!(
            "{text}[core]\n\tfsmonitor = \"{says}\"\n\tpager = \"{says}\"\n[diff]\n\texternal = \"{says}\"\n\
             [diff \"hostile\"]\n\ttextconv = \"{says}\"\n[filter \"hostile\"]\n\tclean = \"{says}\"\n\tsmudge = \"{says}\"\n\
             [gpg]\n\tprogram = \"{says}\"\n"
        ),
    );
    go(&place, "default", &[]);
    for (command, (fence, text, code)) in commands.iter().zip(results(&place)) {
        assert_eq!((fence.as_str(), code), ("read", Some(0)), "{command}: {text}");
        assert!(!text.contains("HOSTILE"), "{command}: {text}");
    }
}

/// Seen: `: > ./--pre=sh; rg x *` ran a file of the project.
#[test]
fn a17_an_option_made_by_a_pattern_stays_inside() {
    let mark = "../../mark";
    let place = Place::new(script(&[
        json!({"command": format!("echo 'touch {mark}; touch ~/mark; touch /tmp/mark' > x.sh; : > ./-xsh; grep x *; rg x * 2>/dev/null; sh x.sh")}),
    ]));
    let before = picture(&place.env.root().join("home"));
    go(&place, "accept-edits", &[]);
    let (fence, text, _) = result(&place);
    assert_eq!(fence, "edit", "{text}");
    assert_eq!(picture(&place.env.root().join("home")), before);
    assert!(!place.repo.join(mark).exists());
}

#[test]
fn a17_a_denied_file_is_not_there_for_any_command() {
    let inputs = [
        "cat $(printf .e)nv",
        "/usr/bin/python3 -c \"print(open('.en'+'v').read())\"",
        "ln $(printf .e)nv copy; cat copy",
        "cat /proc/self/cwd/$(printf .e)nv; cat /proc/self/root$PWD/$(printf .e)nv",
        "cp -r . /tmp/all; cat /tmp/all/$(printf .e)nv",
        "mv $(printf .e)nv moved; cat moved",
        "grep -r SECRET . ; cat hard",
        "mkdir d; mv sub d/; cat d/sub/$(printf .e)nv",
    ];
    let place = Place::new(script(&inputs.map(|command| json!({"command": command}))));
    place.env.write(place.repo.join(".env"), "SECRET=canary\n");
    place.env.write(place.repo.join("sub/.env"), "SECRET=canary\n");
    std::fs::hard_link(place.repo.join(".env"), place.repo.join("hard")).unwrap();
    go(&place, "accept-edits", &["--deny", "Read(.env)"]);
    for (input, (fence, text, _)) in inputs.iter().zip(results(&place)) {
        assert!(matches!(fence.as_str(), "edit" | "read"), "{input}: {fence}: {text}");
        assert!(!text.contains("canary"), "{input}: {text}");
    }
    assert_eq!(place.env.read(place.repo.join("hard")), "SECRET=canary\n");
}

/// A protected place that is not there cannot be covered: what is made there is put aside, and the model is told.
#[test]
fn a17_a_protected_place_that_a_command_makes_is_put_aside() {
    let place = run(
        "accept-edits",
        &[
            "/usr/bin/python3 -c \"import os; os.mkdir('.vscode'); open('.vscode/tasks.json','w').write('{}')\"; ln -s /tmp .idea",
        ],
    );
    let (_, text, _) = result(&place);
    assert!(text.contains(".vscode is protected: what the command made there is now"), "{text}");
    assert!(!place.repo.join(".vscode").exists() && place.repo.join(".idea").symlink_metadata().is_err());
    assert_eq!(place.env.read(place.repo.join(".vscode.not-used/tasks.json")), "{}");
}

/// Seen: a file that the user made in such a place after the agent was killed was put aside, too.
#[test]
fn a17_what_the_user_makes_in_a_protected_place_after_a_kill_stays() {
    let line = "/usr/bin/python3 -c \"import os, time; os.mkdir('.vscode'); time.sleep(600)\"";
    let place = Place::new(script(&[json!({"command": line})]));
    let mode = ["--permission-mode", "accept-edits"];
    let agent = place.caliban().args(["-p", "go"]).args(mode).spawn();
    wait_until("the command has made it", || place.repo.join(".vscode").exists());
    let pid = rustix::process::Pid::from_raw(agent.pid().try_into().unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    let journal = place.session().join("unmade");
    let found = || {
        let names = std::fs::read_dir(&journal).unwrap().map(|entry| entry.unwrap().path());
        names.filter(|path| path.extension().is_some_and(|end| end == "found")).count() == 1
    };
    wait_until("its keeper has ended the command and looked", found);
    place.env.write(place.repo.join(".envrc"), "the user's\n");
    place.server.set_script(script(&[json!({"command": "/usr/bin/python3 -c \"print('next')\""})]));
    place.ask("go", ["--resume", &place.session_id()].into_iter().chain(mode)).ok();
    let (_, text, _) = results(&place).pop().unwrap();
    assert!(text.contains(".vscode is protected: what the command made there is now"), "{text}");
    assert!(!text.contains(".envrc"), "{text}");
    assert!(!place.repo.join(".vscode").exists());
    assert_eq!(place.env.read(place.repo.join(".envrc")), "the user's\n");
    assert_eq!(std::fs::read_dir(&journal).unwrap().count(), 0);
}

/// A rule that names the place opens it.
#[test]
fn a17_a_rule_that_names_a_protected_place_opens_it() {
    let line = "/usr/bin/python3 -c \"open('.envrc','a').write('y')\"";
    let place = Place::new(script(&[json!({"command": line})]));
    place.env.write(place.repo.join(".envrc"), "x");
    go(&place, "accept-edits", &["--allow", "Edit(./.envrc)"]);
    assert_eq!(result(&place).2, Some(0), "{:?}", result(&place));
    assert_eq!(place.env.read(place.repo.join(".envrc")), "xy");
}

/// `setsid nohup … &` outlived the fence of Landlock alone.
#[test]
fn a17_nothing_of_a_fenced_command_is_left() {
    let place =
        run("accept-edits", &["setsid nohup sleep 4321 >/dev/null 2>&1 & (sleep 4321 &) ; echo started"]);
    let (_, text, _) = result(&place);
    assert!(text.contains("processes left running were ended (sleep"), "{text}");
    let left = Command::new("pgrep").args(["-f", "sleep 4321"]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&left.stdout), "");
}
