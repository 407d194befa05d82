//! Bad input: places, prompts and bytes that make no sense get a clear message, and hostile text is shown inert (a09).

use std::{
    fs,
    io::Read as _,
    process::{Command, Stdio},
};

use serde_json::{Value, json};
use testkit::{Output, ProgramRun, StepExt, script, text, tool, tools};

use crate::place::Place;

fn texts(place: &Place, request: usize) -> String {
    place.server.model_requests()[request].body["messages"].to_string()
}

/// Nothing of the program's own making is in it: no panic, no backtrace.
fn no_panic(output: &Output) {
    assert!(!output.stderr.contains("panicked"), "{}", output.stderr);
}

#[test]
fn a_repo_without_commits_is_a_place_to_work_in() {
    let mut place = Place::new(script![tool("Bash", json!({"command": "git status --short"})), text("ok")]);
    place.repo = place.env.root().join("unborn");
    fs::create_dir(&place.repo).unwrap();
    place.env.git(&place.repo, &["init", "--quiet"]);
    assert_eq!(place.ask("hello", []).ok().stdout, "ok\n");
    assert!(texts(&place, 0).contains("git: branch main without commits"), "{}", texts(&place, 0));
}

#[test]
fn a_path_that_git_and_json_cannot_say_is_refused_by_the_first_command() {
    use std::os::unix::ffi::OsStrExt as _;
    let mut place = Place::new(script![text("ok").forever()]);
    let root = place.env.root().to_owned();
    for (name, why) in [(&b"two\nlines"[..], "a line end"), (b"bad\xffname", "bytes that are not UTF-8")] {
        place.repo = root.join(std::ffi::OsStr::from_bytes(name));
        fs::create_dir(&place.repo).unwrap();
        place.env.git(&place.repo, &["init", "--quiet"]);
        let asked = place.ask("hello", []).expect_code(1);
        assert!(
            asked.stderr.contains(why) && asked.stderr.contains("rename the directory"),
            "{}",
            asked.stderr
        );
        let sent = place.verb(["--bg", "hello"]).expect_code(1);
        assert!(sent.stderr.contains(why), "{}", sent.stderr);
    }
    assert_eq!(place.server.requests().len(), 0);
}

#[test]
fn no_repo_at_all_is_a_place_to_work_in() {
    let mut place = Place::new(script![tool("Glob", json!({"pattern": "*"})), text("ok"), text("again")]);
    place.repo = place.env.work();
    assert_eq!(place.ask("hello", []).ok().stdout, "ok\n");
    assert!(texts(&place, 0).contains("git: not a git repository"), "{}", texts(&place, 0));
    assert_eq!(place.ask("more", ["--continue"]).ok().stdout, "again\n");
}

#[test]
fn a_broken_repo_is_a_place_to_work_in() {
    for (file, content) in
        [(".git/HEAD", &b"\xff\xfe"[..]), (".git/HEAD", b""), (".git/packed-refs", b"\xff\n")]
    {
        let place = Place::new(script![text("ok")]);
        place.env.write(place.repo.join(file), content);
        no_panic(&place.ask("hello", []).ok());
    }
    let mut place = Place::new(script![text("ok")]);
    place.repo = place.env.root().join("lost");
    place.env.write(place.repo.join(".git"), "gitdir: /nowhere/at/all\n");
    no_panic(&place.ask("hello", []).ok());
}

#[test]
fn a_data_directory_that_cannot_be_written_is_named() {
    let mut place = Place::new(script![text("never")]);
    let file = place.env.write("a-file", "");
    place.env.set("XDG_DATA_HOME", file.join("below"));
    let output = place.ask("hello", []).expect_code(1);
    no_panic(&output);
    let lines: Vec<&str> = output.stderr.lines().collect();
    assert!(lines[0].starts_with("error: ") && lines[0].contains(&file.display().to_string()), "{lines:?}");
    assert!(lines[0].contains("Not a directory") || lines[0].contains("not a directory"), "{lines:?}");
    assert!(place.server.model_requests().is_empty(), "nothing is asked before it can be kept");
}

#[test]
fn a_directory_that_is_not_there_is_named() {
    let place = Place::new(script![text("never")]);
    let output = place.ask("hello", ["-C", "nowhere"]).expect_code(2);
    let nowhere = place.repo.join("nowhere").display().to_string();
    let said = format!(
        "error: cannot work in {nowhere}: no such file or directory\n\
         hint: -C takes a directory that is there; a relative one starts here\n"
    );
    assert_eq!(output.stderr, said);
    let output = place.ask("hello", ["-C", "README.md"]).expect_code(2);
    let file = place.repo.join("README.md").display().to_string();
    assert_eq!(output.stderr, format!("error: cannot work in {file}: it is not a directory\n"));
    // One that is gone under our feet.
    let gone = place.env.root().join("gone");
    fs::create_dir(&gone).unwrap();
    let program = place.env.cmd("caliban").get_program().to_owned();
    let script = format!("cd {0} && rmdir {0} && {1} -p hello", gone.display(), program.display());
    let output = ProgramRun::new(place.env.program("sh")).args(["-c", &script]).output().expect_code(1);
    assert!(output.stderr.starts_with("error: the working directory cannot be used"), "{}", output.stderr);
}

#[test]
fn an_empty_prompt_is_a_usage_error() {
    let said = "error: there is no prompt\nhint: say what to do: caliban -p \"fix the failing test\"\n";
    let place = Place::new(script![text("never")]);
    assert_eq!(place.ask("", []).expect_code(2).stderr, said);
    assert_eq!(place.ask("  \n ", []).expect_code(2).stderr, said);
    assert_eq!(place.caliban().args(["-p"]).stdin(" \n").output().expect_code(2).stderr, said);
    assert_eq!(place.caliban().output().expect_code(2).stderr, said);
    assert!(place.sessions().is_empty(), "nothing is left behind");
}

#[test]
fn what_is_wrong_with_a_background_task_is_said_with_what_to_do() {
    let place = Place::new(script![text("never")]);
    place.env.write(place.repo.join("long"), vec![b'x'; 1024 * 1024 + 1]);
    let nowhere = place.repo.join("nowhere").display().to_string();
    let missing = format!(
        "error: --add-dir: there is no directory {nowhere}\n\
         hint: name one that is there, or make it first\n"
    );
    for (args, said) in [
        (
            &["--bg", " "][..],
            "error: the prompt is empty\nhint: say what to do: caliban --bg \"fix the failing test\"\n"
                .to_owned(),
        ),
        (
            &["--bg", "--prompt-file", "nowhere"],
            "error: cannot read nowhere: no such file or directory\n\
             hint: --prompt-file takes a file that has the task, or - for stdin\n"
                .to_owned(),
        ),
        (
            &["--bg", "--prompt-file", "long"],
            "error: the prompt has more than 1048576 bytes\n\
             hint: name the file in a short prompt: the agent can read it\n"
                .to_owned(),
        ),
        (&["--bg", "hello", "--add-dir", "nowhere"], missing.clone()),
        (&["-p", "hello", "--add-dir", "nowhere"], missing),
    ] {
        assert_eq!(place.caliban().args(args).output().expect_code(2).stderr, said);
    }
    for flag in ["--max-turns", "--budget-tokens"] {
        let output = place.ask("hello", [flag, "0"]).expect_code(2);
        assert!(output.stderr.contains("expected a whole number above 0"), "{}", output.stderr);
    }
}

#[test]
fn a_prompt_over_the_cap_of_stdin_is_refused_before_anything_is_kept() {
    let place = Place::new(script![text("never")]);
    let output = place.caliban().args(["-p", "sum it up"]).stdin(vec![b'x'; 65 * 1024 * 1024]).output();
    let output = output.expect_code(2);
    assert_eq!(
        output.stderr,
        "error: stdin has more than 67108864 bytes\nhint: put it into a file and name that in the prompt\n"
    );
    assert!(place.sessions().is_empty());
}

#[test]
fn r16_a_prompt_that_the_transcript_cannot_hold_leaves_a_session_that_can_be_read() {
    let place = Place::new(script![text("never"), text("ok")]);
    // Each of these is six bytes of JSON: as much as stdin takes is more than a record may have.
    let output = place.caliban().args(["-p", "x"]).stdin(vec![1; 40 * 1024 * 1024]).output().expect_code(1);
    no_panic(&output);
    assert!(output.stderr.contains("too large for the transcript"), "{}", output.stderr);
    place.verb(["sessions", "list"]).ok();
    place.verb(["sessions", "show", &place.session_id()]).ok();
    assert!(place.server.model_requests().is_empty());
}

#[test]
fn bytes_that_are_no_text_are_replaced_or_refused_never_a_panic() {
    let place = Place::new(script![
        tools([
            ("Bash", json!({"command": "printf 'a\\377\\376b'; printf 'c\\200d' >&2"})),
            ("Read", json!({"file_path": "latin.txt"})),
            ("Read", json!({"file_path": "binary"})),
            ("Grep", json!({"pattern": "caf"})),
            ("Glob", json!({"pattern": "*"})),
        ]),
        text("ok"),
    ]);
    place.env.write(place.repo.join("latin.txt"), b"caf\xe9 au lait\n");
    place.env.write(place.repo.join("binary"), b"\0\x01\x02\xff\0");
    place.env.write(place.repo.join("AGENTS.md"), b"instr\xfctions\n");
    use std::os::unix::ffi::OsStrExt as _;
    fs::write(place.repo.join(std::ffi::OsStr::from_bytes(b"na\xffme.txt")), "x").unwrap();
    let output = place
        .caliban()
        .args(["-p", "look", "--permission-mode", "unattended"])
        .stdin(b"pip\xffed\n".to_vec());
    let output = output.output().ok();
    no_panic(&output);
    let first = texts(&place, 0);
    assert!(first.contains("look\\n\\npip\u{fffd}ed") && first.contains("instr\u{fffd}tions"), "{first}");
    let second = texts(&place, 1);
    assert!(second.contains("a\u{fffd}\u{fffd}b") && second.contains("c\u{fffd}d"), "{second}");
    place.server.assert_drained();
    // What was recorded can be read again.
    place.verb(["sessions", "replay", &place.session_id()]).ok();
}

#[test]
fn arguments_that_are_no_text_are_a_usage_error() {
    use std::os::unix::ffi::OsStrExt as _;
    let place = Place::new(script![text("never")]);
    let odd = std::ffi::OsStr::from_bytes(b"pr\xffompt");
    let output = place.caliban().args([std::ffi::OsStr::new("-p"), odd]).output().expect_code(2);
    no_panic(&output);
    assert!(output.stderr.starts_with("error: "), "{}", output.stderr);
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let long = "line of text\n".repeat(100_000);
    let place = Place::new(script![tool("Read", json!({"file_path": "README.md"})), text(long)]);
    for format in ["text", "json", "stream-json"] {
        place.server.set_script(script![text("line of text\n".repeat(20_000)).in_chunks(50)]);
        let args = place.server.args(place.protocol);
        let mut child = place
            .env
            .cmd("caliban")
            .args(args)
            .args(["-p", "hello", "--output-format", format])
            .current_dir(&place.repo)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut byte = [0];
        let mut stdout = child.stdout.take().unwrap();
        stdout.read_exact(&mut byte).unwrap();
        drop(stdout);
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!((output.status.code(), said.as_str()), (Some(0), ""), "{format}");
    }
    // Its work is recorded whole.
    assert!(place.verb(["sessions", "list"]).ok().stdout.lines().skip(1).all(|line| line.contains(" done ")));
    let id = place.sessions()[0].file_name().unwrap().to_str().unwrap().to_owned();
    for verb in [["sessions", "replay", &id], ["sessions", "show", &id]] {
        let mut command: Command = place.env.cmd("caliban");
        command.args(verb).current_dir(&place.repo).stdin(Stdio::null());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]), "{verb:?}");
    }
}

#[test]
fn a14_arguments_nested_without_end_do_not_break_the_session() {
    let nested = |depth: usize| (0..depth).fold(json!(1), |inner, _| json!([inner]));
    for (depth, refused) in [(60, 0), (64, 1), (110, 1), (120, 1), (124, 1), (125, 1), (126, 1)] {
        let place = Place::new(script![
            tool("Read", json!({"file_path": "README.md", "odd": nested(depth)})),
            text("ok")
        ]);
        let output = place.ask("go", []);
        no_panic(&output);
        assert_eq!((output.code, output.stdout.as_str()), (0, "ok\n"), "{depth}: {}", output.stderr);
        let told: Vec<Value> =
            place.transcript().into_iter().filter(|record| record["event"] == "call_refused").collect();
        assert_eq!(told.len(), refused, "{depth}: {told:?}");
        place.verb(["sessions", "show", &place.session_id()]).ok();
        place.server.set_script(script![text("again")]);
        place.ask("more", ["--continue"]).ok();
    }
}

/// What a terminal must not be sent: colours, OSC 52 (the clipboard), a title, a cursor move, bidi, C1, tags.
const EVIL: &str =
    "\u{1b}[31mred\u{1b}]52;c;ZXZpbA==\u{7}\u{1b}]0;title\u{7}\rover\u{9b}2J\u{202e}txet\u{e0041}\u{200b}end";
const INERT: &str = "␛[31mred␛]52;c;ZXZpbA==␇␛]0;title␇␍over<U+009B>2J<U+202E>txet<U+E0041><U+200B>end";

/// No byte of it does anything.
fn assert_inert(what: &str, text: &str) {
    let bad: Vec<char> = text
        .chars()
        .filter(|c| (c.is_control() && *c != '\n' && *c != '\t') || "\u{202e}\u{e0041}\u{200b}".contains(*c))
        .collect();
    assert!(bad.is_empty(), "{what}: {bad:?} in {text:?}");
}

#[test]
fn a09_hostile_text_is_shown_inert_everywhere() {
    let mut place = Place::new(script![
        tools([
            ("Bash", json!({"command": format!("printf '%s' '{EVIL}'")})),
            ("Bash", json!({"command": format!("curl '{EVIL}'")})),
            (EVIL, json!({"x": EVIL})),
            ("Read", json!({"file_path": EVIL})),
            ("Glob", json!({"pattern": "*"})),
            ("Write", json!({"file_path": format!("/etc/{EVIL}"), "content": "x"})),
        ]),
        text(EVIL),
    ]);
    // A directory and a file by that name, too: the model is not the only one who chooses words.
    place.repo = place.env.root().join(EVIL);
    fs::create_dir(&place.repo).unwrap();
    place.env.git(&place.repo, &["init", "--quiet"]);
    place.env.write(place.repo.join(EVIL), "content");
    let output = place.ask(EVIL, ["--verbose", "--allow", "Bash(printf *)"]).expect_code(3);
    assert_eq!(output.stdout, format!("{INERT}\n"));
    assert_inert("stderr", &output.stderr);
    assert!(output.stderr.contains(INERT), "{}", output.stderr);
    let id = place.session_id();
    for verb in ["show", "replay", "audit"] {
        let output = place.verb(["sessions", verb, &id]).ok();
        assert_inert(verb, &output.stdout);
        assert!(output.stdout.contains(INERT), "{verb}: {}", output.stdout);
    }
    for all in [&["sessions", "list"][..], &["sessions", "list", "--all"]] {
        let output = place.verb(all.iter().copied()).ok();
        assert_inert("list", &output.stdout);
        assert!(output.stdout.contains("␛[31mred"), "{}", output.stdout);
    }
    // Errors that quote what was given.
    for args in
        [vec!["sessions", "show", EVIL], vec!["-p", "x", "--resume", EVIL], vec!["-C", EVIL, "-p", "x"]]
    {
        let output = place.env.run_in(place.env.work(), &args);
        assert_ne!(output.code, 0);
        assert_inert(&format!("{args:?}"), &output.stderr);
    }
    // A model's error is somebody else's text as well.
    let body = place.protocol.error_body(400, EVIL);
    place.server.set_script(script![testkit::status(400).body(body)]);
    let output = place.ask("hello", []).expect_code(1);
    assert_inert("an error of the model", &output.stderr);
    assert!(output.stderr.contains("[31mred"), "{}", output.stderr);
}

#[test]
fn a09_json_for_scripts_holds_the_text_as_it_was() {
    let place = Place::new(script![text(EVIL)]);
    let output = place.ask("hello", ["--output-format", "json"]).ok();
    assert_eq!(output.json::<Value>()["result"], EVIL);
    assert!(!output.stdout.contains('\u{1b}') && !output.stdout.contains('\r'), "{:?}", output.stdout);
}
