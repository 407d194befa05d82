//! The hermetic environment and its processes.

use std::os::unix::fs::PermissionsExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use testkit::{Env, ProgramRun, Signal, Tmux, wait_until};

fn shell(env: &Env, script: &str) -> ProgramRun {
    ProgramRun::new(env.program("/bin/sh")).args(["-c", script])
}

#[test]
fn programs_see_only_what_is_theirs() {
    let mut env = Env::new();
    env.set("EXTRA", "1").set("EXTRA", "2");
    let output = shell(&env, "env").output().ok();
    let root = env.root().display().to_string();
    let mut seen: Vec<String> = output
        .stdout
        .lines()
        .filter(|line| !line.starts_with("PATH=") && !line.starts_with("_=") && !line.starts_with("SHLVL="))
        .map(|line| line.replace(&root, "ROOT"))
        .collect();
    seen.sort();
    assert_eq!(
        seen,
        [
            "EXTRA=2",
            "GIT_CEILING_DIRECTORIES=ROOT",
            "GIT_CONFIG_GLOBAL=ROOT/gitconfig",
            "GIT_CONFIG_NOSYSTEM=1",
            "GIT_TERMINAL_PROMPT=0",
            "HOME=ROOT/home",
            "LANG=C.UTF-8",
            "LOGNAME=test",
            "NO_COLOR=1",
            "PWD=ROOT/work",
            "SHELL=/bin/sh",
            "TERM=dumb",
            "TMPDIR=ROOT/tmp",
            "TMUX_TMPDIR=ROOT/run",
            "TZ=UTC",
            "USER=test",
            "XDG_CACHE_HOME=ROOT/cache",
            "XDG_CONFIG_HOME=ROOT/config",
            "XDG_DATA_HOME=ROOT/data",
            "XDG_RUNTIME_DIR=ROOT/run",
            "XDG_STATE_HOME=ROOT/state",
        ]
    );
    let mode = std::fs::metadata(env.runtime()).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o700);
}

#[test]
fn stdin_goes_in_and_codes_and_texts_come_out() {
    let env = Env::new();
    let big = "x".repeat(1 << 20);
    let output = shell(&env, "cat; echo talk >&2; exit 3").stdin(big.clone()).output();
    assert_eq!((output.code, output.stdout == big, output.stderr.as_str()), (3, true, "talk\n"));
    assert_eq!(shell(&env, "kill -TERM $$").output().code, 128 + 15);
}

#[test]
fn a_program_over_its_limit_is_killed_with_its_group_and_shown() {
    let env = Env::new();
    let run = shell(&env, "echo begun; sleep 1000 & wait").limit(Duration::from_millis(300));
    let panic = catch_unwind(AssertUnwindSafe(|| run.output())).unwrap_err();
    let panic = panic.downcast_ref::<String>().unwrap();
    assert!(panic.contains("did not end within") && panic.contains("begun"), "{panic}");
    wait_until("the group is gone", || env.processes().is_empty());
}

#[test]
fn a_spawned_program_can_be_talked_to_and_dies_with_its_guard() {
    let env = Env::new();
    let mut cat = shell(&env, "cat").spawn();
    cat.write("hello\n");
    cat.wait_for_stdout("hello");
    assert!(cat.running());
    assert_eq!(cat.wait().code, 0);

    let mut sleeper = shell(&env, "echo ready; exec sleep 1000").spawn();
    sleeper.wait_for_stdout("ready");
    sleeper.signal(Signal::TERM);
    assert_eq!(sleeper.wait().code, 128 + 15);

    let sleeper = shell(&env, "sleep 1000 & sleep 1000").spawn();
    wait_until("all three run", || env.processes().len() == 3);
    drop(sleeper);
    wait_until("all three are gone", || env.processes().is_empty());
}

#[test]
fn a_daemon_that_left_its_group_dies_with_the_environment() {
    let env = Env::new();
    shell(&env, "setsid sleep 1000 >/dev/null 2>&1 </dev/null &").output().ok();
    wait_until("the daemon runs", || env.processes().iter().any(|(_, line)| line == "sleep 1000"));
    let pids: Vec<u32> = env.processes().into_iter().map(|(pid, _)| pid).collect();
    let root = env.root().to_owned();
    drop(env);
    let gone = |pid: &u32| match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => stat.contains(") Z "),
        Err(_) => true,
    };
    assert!(pids.iter().all(gone));
    assert!(!root.exists());
}

#[test]
fn repos_are_fresh_and_have_a_commit_of_the_test_person() {
    let env = Env::new();
    let (one, two) = (env.repo(), env.repo());
    assert_ne!(one, two);
    assert_eq!(
        env.git(&one, &["log", "--format=%an <%ae> %s"]),
        "Test Person <test@example.org> first commit"
    );
    assert_eq!(env.git(&one, &["branch", "--show-current"]), "main");
    assert_eq!(env.git(&two, &["status", "--short"]), "");
    env.write(one.join("src/a.txt"), "a");
    assert_eq!(env.read(one.join("src/a.txt")), "a");
    assert_eq!(env.git(&one, &["status", "--short"]), "?? src/");
}

#[test]
fn a_binary_that_is_not_built_is_named() {
    let env = Env::new();
    let panic = catch_unwind(AssertUnwindSafe(|| env.cmd("no-such-binary"))).unwrap_err();
    let panic = panic.downcast_ref::<String>().unwrap();
    assert!(
        panic.ends_with("is not built: run `cargo build --workspace --bins` or cargo xtask test"),
        "{panic}"
    );
}

#[test]
fn a_terminal_shows_what_is_typed() {
    let env = Env::new();
    let tmux = Tmux::start(&env, 80, 24);
    tmux.wait_for_text("$");
    tmux.send_text("echo $((40 + 2));");
    tmux.send_keys(&["Enter"]);
    tmux.wait_for("42 is printed", |screen| screen.lines().any(|line| line == "42"));
    tmux.paste("echo pasted-$HOME");
    tmux.send_keys(&["Enter"]);
    tmux.wait_for_text(&format!("pasted-{}", env.home().display()));
    drop(tmux);
    wait_until("the server and its shell are gone", || env.processes().is_empty());
}
