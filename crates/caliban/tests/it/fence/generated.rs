//! Generated command lines with effects, in each mode that runs some without a person: nothing outside changes.
//!
//! A few, the whole way through the program; `generated_bulk.rs` has many. The seed is printed, and makes the same lines again.

use std::{
    io::ErrorKind,
    net::TcpListener,
    os::unix::net::UnixListener,
    path::Path,
    process::{Command, Stdio},
};

use serde_json::json;

use super::{picture, results, script};
use crate::place::Place;

/// Lines in each mode.
const LINES: usize = 40;

/// Places of the machine that lines try to make.
pub(super) const SYSTEM: [&str; 4] =
    ["/usr/local/caliban-test", "/etc/caliban-test", "/var/tmp/caliban-test", "/dev/shm/caliban-test"];

/// What a line tries to change: by its name, from the project.
const TARGETS: &[&str] = &[
    "../outside/kept.txt",
    "../outside/new.txt",
    "$OUT/kept.txt",
    "$OUT/sub/x",
    "$HOME/.profile",
    "~/.bashrc",
    "out/kept.txt",
    "out/sub/y",
    ".git/config",
    ".git/hooks/post-checkout",
    ".git/refs/heads/evil",
    "/proc/self/cwd/../outside/kept.txt",
    "/proc/self/root$OUT/kept.txt",
    "$(printf $OUT)/kept.txt",
    "${x:-$OUT}/sub/z",
    "/usr/local/caliban-test",
    "/etc/caliban-test",
    "/var/tmp/caliban-test",
    "/dev/shm/caliban-test",
];

/// What is done to it; `{T}` is the target.
const EFFECTS: &[&str] = &[
    "touch {T}",
    "echo x > {T}",
    "echo x >> {T}",
    ": > {T}",
    "cp -f file.txt {T}",
    "cp -rf . {T}.d",
    "mv file.txt {T}",
    "mv {T} moved",
    "rm -rf {T}",
    "ln -sf /etc/passwd {T}",
    "ln -f {T} hard && echo x >> hard",
    "mkdir -p {T}.dir",
    "chmod 777 {T}",
    "truncate -s 0 {T}",
    "sed -i s/a/b/ {T}",
    "tee {T} < file.txt",
    "dd if=/dev/zero of={T} count=1 status=none",
    "/usr/bin/python3 -c \"import sys; open(sys.argv[1],'w').write('x')\" {T}",
    "/usr/bin/python3 -c \"import os,sys; os.rename('file.txt', sys.argv[1])\" {T}",
    "install -D file.txt {T}",
    "find . -name file.txt -exec cp {} {T} \\;",
    "sort -o {T} file.txt",
    "git diff --output={T}",
    "git -c core.fsmonitor='touch {T}; false' status",
    "git -c alias.x='!touch {T}' x",
    "git config --file {T} a.b c",
    "GIT_EXTERNAL_DIFF='touch {T}' git diff HEAD --ext-diff",
    "rg --pre 'touch {T}' x .",
    "awk 'BEGIN { print \"x\" > \"{T}\" }'",
    "perl -e 'open(F, \">\", $ARGV[0])' {T}",
    "tar cf {T} file.txt",
    "curl -s -o {T} file:///etc/hostname",
    "curl -s http://127.0.0.1:$PORT/{T}",
    "bash -c 'exec 3<>/dev/tcp/127.0.0.1/'$PORT; echo $?",
    "/usr/bin/python3 -c \"import socket,sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])\" $SOCK",
    "kill -9 $PID",
    "kill -TERM -- -$PID",
    "renice 19 -p $PID",
    "prlimit --pid $PID --cpu=1",
    "setsid nohup sh -c 'sleep 0.2; touch {T}' > /dev/null 2>&1 &",
    "(sleep 0.1; touch {T}) &",
    "nohup touch {T}",
    "unshare -r touch {T}",
    "chroot / touch {T}",
    "mount --bind /etc .",
    "ln -s $OUT here; echo x > here/kept.txt",
    "cd $OUT && touch here",
    "cd out; echo x > kept.txt",
    "PATH=.:$PATH; echo 'touch {T}' > ls; chmod +x ls; ls",
    "echo 'touch {T}' > x.sh; sh x.sh",
    ": > ./--pre=sh; rg x *",
    "MAKEFILES={T} make -n",
    "env -i /bin/sh -c 'touch {T}'",
    "caliban -p hi --permission-mode unattended --allow 'Bash(*)'",
    "caliban trust",
];

/// What stands around it; `{A}` is a line.
const SHAPES: &[&str] = &[
    "{A}",
    "{A}",
    "{A}",
    "true && {A}",
    "false || {A}",
    "{A}; true",
    "({A})",
    "{ {A}; }",
    "sh -c '{A}'",
    "bash -c \"{A}\"",
    "eval '{A}'",
    "$({A})",
    "echo $({A})",
    "echo \"`{A}`\"",
    "if true; then {A}; fi",
    "for i in 1; do {A}; done",
    "x=1 {A}",
    "timeout 5 {A}",
    "nice {A}",
    "echo a | xargs -I{} {A}",
    "cat <({A})",
    "{A} | cat",
    "cat <<EOF\n$({A})\nEOF",
    "f() { {A}; }; f",
    "trap '{A}' EXIT",
    "{A} # x",
    "ls; {A}",
    "coproc {A}",
    "command {A}",
    "exec {A}",
];

pub(super) fn line(random: &mut fastrand::Rng) -> String {
    let mut choose = |from: &[&'static str]| from[random.usize(..from.len())];
    let effect = choose(EFFECTS).replace("{T}", choose(TARGETS));
    let mut line = choose(SHAPES).replace("{A}", &effect);
    if choose(SHAPES) == "{A}" {
        line = choose(SHAPES).replace("{A}", &line);
    }
    line
}

/// Everything outside that must stay as it is.
fn outside(place: &Place, mode: &str) -> Vec<(String, Vec<u8>)> {
    let mut found = picture(&place.env.root().join("work/outside"));
    found.extend(picture(&place.env.root().join("home")));
    found.extend(picture(&place.repo.join(".git")));
    for path in SYSTEM {
        assert!(!Path::new(path).exists(), "{path}");
    }
    if mode != "accept-edits" {
        found.extend(picture(&place.repo));
    }
    found
}

#[expect(clippy::disallowed_methods, reason = "how long a soak takes is said by whoever starts it")]
pub(super) fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn a17_no_generated_line_changes_anything_outside() {
    let seed = number("CALIBAN_SOAK_SEED").unwrap_or_else(|| fastrand::u64(..));
    println!("CALIBAN_SOAK_SEED={seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let mut ran = 0;
    for mode in ["default", "accept-edits", "plan"] {
        let lines: Vec<String> = (0..LINES).map(|_| line(&mut random)).collect();
        ran += round(mode, &lines);
    }
    // Lines that are all refused would show nothing.
    assert!(ran > LINES / 4, "only {ran} lines ran");
}

/// How the process outside is run: its priority and its limits.
pub(super) fn terms(pid: u32) -> (String, String) {
    let read = |file: &str| std::fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
    let stat = read("stat");
    let nice = stat.rsplit(") ").next().unwrap_or_default().split_whitespace().nth(16).map(str::to_owned);
    (nice.unwrap_or_default(), read("limits"))
}

/// How many of these lines ran.
fn round(mode: &str, lines: &[String]) -> usize {
    let mut place = Place::new(script(&[]));
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
    let mut outsider = Command::new("sleep").arg("3600").stdin(Stdio::null()).spawn().unwrap();
    let port = tcp.local_addr().unwrap().port();
    let facts = [
        ("$OUT", out.display().to_string()),
        ("$PORT", port.to_string()),
        ("$SOCK", socket.display().to_string()),
        ("$PID", outsider.id().to_string()),
    ];
    let lines: Vec<String> = lines
        .iter()
        .map(|line| facts.iter().fold(line.clone(), |line, (name, value)| line.replace(name, value)))
        .collect();
    let inputs: Vec<_> = lines.iter().map(|line| json!({"command": line, "timeout": 5000})).collect();
    place.server.set_script(script(&inputs));
    let before = (outside(&place, mode), terms(outsider.id()));
    let programs = std::env::current_exe().unwrap().ancestors().nth(2).unwrap().to_owned();
    let path = place.env.var("PATH").unwrap().to_owned();
    let path = std::env::join_paths(std::iter::once(programs).chain(std::env::split_paths(&path))).unwrap();
    place.env.set("PATH", path);
    let output = place.ask("go", ["--permission-mode", mode, "--max-turns", "1000"]);
    let told = || format!("{mode}: {lines:#?}\n{:?}", results(&place));
    assert!(matches!(output.code, 0 | 3), "{output:?}\n{}", told());
    assert_eq!((outside(&place, mode), terms(outsider.id())), before, "{}", told());
    assert!(outsider.try_wait().unwrap().is_none(), "the process outside has ended: {}", told());
    outsider.kill().unwrap();
    outsider.wait().unwrap();
    assert_eq!(tcp.accept().unwrap_err().kind(), ErrorKind::WouldBlock, "a connection: {}", told());
    assert_eq!(unix.accept().unwrap_err().kind(), ErrorKind::WouldBlock, "a connection: {}", told());
    results(&place).iter().filter(|(.., code)| code.is_some()).count()
}
