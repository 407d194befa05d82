//! Bash, through a real keeper process.

use std::{fs, os::unix::fs::symlink, time::Duration};

use caliban_core::access::Access;
use caliban_tools::ToolOutput;
use serde_json::json;

use crate::bench::Bench;

impl Bench {
    pub(crate) async fn bash(&self, command: &str) -> ToolOutput {
        self.call("Bash", json!({"command": command})).await
    }

    /// What a command said: output and notes.
    async fn said(&self, command: &str) -> String {
        self.bash(command).await.joined_text()
    }
}

#[tokio::test]
async fn output_exit_code_and_both_streams_in_order() {
    let bench = Bench::new();
    let output = bench.bash("echo one; echo two >&2; echo three; exit 3").await;
    assert_eq!(output.joined_text(), "one\ntwo\nthree\n[exit code 3]");
    assert_eq!((output.is_error, output.exit_code), (true, Some(3)));
    assert!(output.summary.starts_with("exit 3 after "), "{}", output.summary);
    let output = bench.bash("true").await;
    assert_eq!(output.joined_text(), "(no output)");
    assert_eq!((output.is_error, output.exit_code), (false, Some(0)));
    assert_eq!(bench.said("kill -9 $$").await, "[killed by signal 9: exit code 137]");
    assert_eq!(bench.said("printf 'caf\\351\\n'").await, "caf\u{fffd}\n");
    assert_eq!(bench.said("cat; echo $?; tty").await, "0\nnot a tty\n[exit code 1]");
    assert_eq!(*bench.seen.lock().unwrap(), "one\ntwo\nthree\ncaf\u{fffd}\n0\nnot a tty\n");
}

#[tokio::test]
async fn the_command_is_the_shells_own_business() {
    let bench = Bench::new();
    assert_eq!(bench.said("echo \"it's $((1 + 1))\" '$x' | tr a-z A-Z").await, "IT'S 2 $X\n");
    assert_eq!(bench.said("cat <<'E'\na 'b' \"c\"\nE").await, "a 'b' \"c\"\n");
    assert_eq!(bench.said("echo $# [$1] # a comment at the end").await, "0 []\n");
    assert_eq!(bench.said("trap 'echo bye' EXIT; echo hi").await, "hi\nbye\n");
    assert_eq!(bench.said("set -e; false; echo not here").await, "[exit code 1]");
    let broken = bench.bash("if then").await;
    assert!(broken.is_error);
    assert!(broken.joined_text().contains("syntax error"), "{}", broken.joined_text());
    assert_eq!(bench.said("echo hello \\").await, "hello \\\n");
}

#[tokio::test]
async fn errors_name_the_commands_own_lines() {
    let bench = Bench::new();
    let text = bench.said("echo one\nif true\nthen nosuch\nfi\necho $LINENO").await;
    assert_eq!(text, "one\nbash: line 3: nosuch: command not found\n5\n");
    let text = bench.said("echo 'it'\\''s'\n\nls (").await;
    assert!(text.contains("line 3: syntax error"), "{text}");
}

#[tokio::test]
async fn a12_commands_get_the_given_environment_and_nothing_else() {
    let bench = Bench::with(|options| options.env.push(("GIVEN".into(), "yes".into())));
    let text = bench.said("env | cut -d= -f1 | sort").await;
    let names: Vec<&str> = text.lines().filter(|name| !["PWD", "SHLVL", "_"].contains(name)).collect();
    assert_eq!(
        names,
        [
            "CALIBAN",
            "CALIBAN_JOB",
            "DEBIAN_FRONTEND",
            "EDITOR",
            "GIT_CONFIG_COUNT",
            "GIT_CONFIG_KEY_0",
            "GIT_CONFIG_VALUE_0",
            "GIT_EDITOR",
            "GIT_PAGER",
            "GIT_SEQUENCE_EDITOR",
            "GIT_TERMINAL_PROMPT",
            "GIVEN",
            "OLDPWD",
            "PAGER",
            "PATH",
            "TERM",
            "VISUAL"
        ]
        .into_iter()
        .filter(|name| *name != "OLDPWD" || text.contains("OLDPWD"))
        .collect::<Vec<_>>()
    );
    // Nor does the keeper show anything of it to others.
    let keeper = bench.said("tr '\\0' '\\n' < /proc/$PPID/environ; tr '\\0' ' ' < /proc/$PPID/cmdline").await;
    assert!(!keeper.contains("GIVEN") && keeper.trim_end().ends_with("/reap __reap"), "{keeper}");
}

#[tokio::test]
async fn the_working_directory_is_kept() {
    let bench = Bench::new();
    fs::create_dir_all(bench.path("a/b c\nd")).unwrap();
    let a = bench.path("a");
    assert_eq!(bench.said("cd a").await, format!("[working directory is now {}]", a.display()));
    assert_eq!(
        bench.access("Bash", json!({"command": "x"})),
        Ok(vec![Access::Command { line: "x".into(), cwd: a.clone(), outside: None }])
    );
    assert_eq!(bench.said("pwd").await, format!("{}\n", a.display()));
    bench.said("cd b*; exit 7").await;
    assert_eq!(bench.workspace.cwd(), bench.path("a/b c\nd"));
    // Only directories of the work count, and none behind a link: a command can report anything.
    let back = format!("is outside of the project: back in {}]", bench.root.display());
    assert_eq!(bench.said("cd /; trap 'echo bye' EXIT").await, format!("bye\n[/ {back}"));
    assert_eq!(bench.said("(cd /tmp)").await, "(no output)");
    symlink("/usr", bench.path("usr")).unwrap();
    for descriptor in 3..20 {
        bench.said(&format!("printf '%s\\0' \"$PWD/usr/bin\" >&{descriptor}; exec kill -9 $$")).await;
        assert_eq!(bench.workspace.cwd(), bench.root);
    }
    fs::remove_file(bench.path("usr")).unwrap();
    bench.workspace.set_cwd(a.clone());
    // Files are named relative to it.
    bench.put("a/f", "x");
    assert_eq!(bench.ok("Read", json!({"file_path": "f"})).await, "     1\tx\n");
    let root = bench.root.display();
    assert_eq!(
        bench.said("rm -r ../a").await,
        format!("[the working directory does not exist any more; back in {root}]")
    );
    fs::create_dir(&a).unwrap();
    bench.said("cd a").await;
    fs::remove_dir(&a).unwrap();
    assert_eq!(
        bench.said("pwd").await,
        format!("{root}\n[{} does not exist any more; back in {root}]", a.display())
    );
}

#[tokio::test]
async fn a_root_that_is_moved_and_moved_back_leaves_no_ghost() {
    let bench = Bench::new();
    fs::create_dir(bench.path("sub")).unwrap();
    bench.said("cd sub").await;
    let away = bench.root.with_extension("away");
    let said = bench.said(&format!("mv '{}' '{}'", bench.root.display(), away.display())).await;
    assert_eq!(said, "(no output)");
    assert_eq!(bench.workspace.cwd(), bench.path("sub"));
    let gone = format!("{} does not exist any more; was it moved?", bench.root.display());
    for path in ["late.txt".to_owned(), bench.path("late.txt").display().to_string()] {
        assert_eq!(bench.err("Write", json!({"file_path": path, "content": "x"})).await, gone);
    }
    assert!(!bench.root.exists());
    fs::rename(&away, &bench.root).unwrap();
    bench.ok("Write", json!({"file_path": "late.txt", "content": "x"})).await;
    assert_eq!(bench.get("sub/late.txt"), b"x");
    // A directory inside that is gone is left for the root.
    fs::rename(bench.path("sub"), bench.path("other")).unwrap();
    bench.ok("Write", json!({"file_path": "late.txt", "content": "y"})).await;
    assert_eq!(bench.get("late.txt"), b"y");
    assert!(!bench.path("sub").exists());
}

#[tokio::test]
async fn a_call_runs_where_it_was_judged_although_the_directory_changed_in_between() {
    let bench = Bench::new();
    fs::create_dir(bench.path("sub")).unwrap();
    bench.put("f", "root");
    bench.put("sub/f", "sub");
    let (pwd, read) = (json!({"command": "pwd"}), json!({"file_path": "f"}));
    bench.access("Bash", pwd.clone()).unwrap();
    bench.access("Read", read.clone()).unwrap();
    bench.bash("cd sub").await;
    assert_eq!(
        bench.call_only("Bash", pwd.clone()).await.joined_text(),
        format!("{}\n", bench.root.display())
    );
    assert_eq!(bench.call_only("Read", read.clone()).await.joined_text(), "     1\troot\n");
    // And a command that stayed where it was does not take the others back.
    assert_eq!(bench.workspace.cwd(), bench.path("sub"));
    assert_eq!(bench.ok("Read", read).await, "     1\tsub\n");
    assert_eq!(bench.ok("Bash", pwd).await, format!("{}\n", bench.path("sub").display()));
}

#[tokio::test]
async fn a_command_that_cannot_run_is_refused_in_words() {
    let bench = Bench::new();
    assert_eq!(bench.said(" \n").await, "Bash: the command is empty");
    assert_eq!(bench.said("a\0b").await, "Bash: a command cannot contain a NUL character");
    assert_eq!(
        bench.said(&"x".repeat(100_001)).await,
        "Bash: the command has 100001 bytes, at most 100000: write it to a file and run that"
    );
    let long = bench.bash(&format!("echo {}", "x".repeat(90_000))).await;
    assert_eq!(fs::metadata(long.whole.unwrap()).unwrap().len(), 90_001);
    fs::remove_dir_all(&bench.root).unwrap();
    assert_eq!(
        bench.said("true").await,
        format!("{} does not exist any more: no command can run there", bench.root.display())
    );
    let lost = Bench::with(|options| options.helper = "/nowhere/caliban".into());
    assert_eq!(
        lost.said("true").await,
        "the command could not be started (/nowhere/caliban): no such file or directory"
    );
}

#[tokio::test]
async fn a_long_output_is_cut_in_the_middle_and_kept_whole() {
    let bench = Bench::new();
    let output = bench.bash("seq 1 100000; echo the end").await;
    let whole = output.whole.clone().unwrap();
    let expected: String = (1..=100_000).map(|n| format!("{n}\n")).collect::<String>() + "the end\n";
    assert_eq!(fs::read_to_string(&whole).unwrap(), expected);
    let text = output.joined_text();
    assert!(text.starts_with("1\n2\n3\n"));
    assert!(
        text.ends_with(&format!("the end\n[whole output: {}]", whole.display())),
        "{}",
        &text[text.len() - 200..]
    );
    assert!(text.chars().count() < 31_000);
    // And the model can read it.
    assert!(bench.ok("Read", json!({"file_path": whole, "limit": 1})).await.starts_with("     1\t1\n"));
}

#[tokio::test]
async fn a14_a_flood_of_output_is_bounded_and_its_end_is_seen() {
    let bench = Bench::new();
    let output = bench.bash("head -c 80000000 /dev/zero | tr '\\0' x; echo; echo the end").await;
    let whole = output.whole.clone().unwrap();
    assert_eq!(fs::metadata(&whole).unwrap().len(), 64 << 20);
    let text = output.joined_text();
    assert!(
        text.ends_with(&format!(
            "\nthe end\n[whole output: {}]\n[only the first 64.0 MB are kept]",
            whole.display()
        )),
        "{}",
        &text[text.len() - 300..]
    );
    assert!(text.chars().count() < 31_000);
    assert!(bench.seen.lock().unwrap().len() < 400_000);
}

#[tokio::test]
async fn time_runs_out() {
    let bench = Bench::new();
    let output = bench.call("Bash", json!({"command": "echo begun; sleep 1000", "timeout": 300})).await;
    assert_eq!(
        output.joined_text(),
        "begun\n[timed out after 0.3 s: everything it started was ended]\n[killed by signal 15: exit code 143]"
    );
    assert!(output.is_error);
    let capped = Bench::with(|options| options.limits.command_time_max = Duration::from_millis(200));
    let output = capped.call("Bash", json!({"command": "sleep 1000", "timeout": 900_000})).await;
    assert!(output.joined_text().starts_with("[timed out after 0.2 s: "), "{}", output.joined_text());
}

#[tokio::test]
async fn what_a_command_leaves_running_is_ended_and_said() {
    let bench = Bench::new();
    assert_eq!(
        bench.said("sleep 1000 & echo started").await,
        "started\n[1 process left running was ended (sleep); use run_in_background for what shall go on]"
    );
    // What only finishes its work may do so.
    assert_eq!(bench.said("echo late > >(cat)").await, "late\n");
}

impl Bench {
    /// Looks at a command until it has said this behind what it said before; a loaded machine may take several looks.
    async fn until_said(&self, mut said: String, words: &str) -> String {
        while !said.contains(words) {
            said += &self.ok("BashOutput", json!({"bash_id": "bash_1", "wait_ms": 50})).await;
        }
        said
    }
}

#[tokio::test]
async fn a_command_in_a_terminal_is_typed_into() {
    let bench = Bench::new();
    let ask = "tty; read -p 'name? ' name; echo \"hello $name\"; read -s -p 'more? ' x; echo; sleep 1000";
    let text = bench.ok("Bash", json!({"command": ask, "tty": true})).await;
    assert!(text.starts_with("started in a terminal as bash_1: "), "{text}");
    let text = bench.until_said(text, "name? ").await;
    assert!(text.contains("/dev/pts/"), "{text}");
    let type_in = |text: &'static str| json!({"bash_id": "bash_1", "text": text});
    // Judged like a command, with what stands on the line already.
    let judged = |text| bench.access("BashInput", type_in(text)).unwrap();
    // It runs without a fence, so what is typed is judged as if it did, too.
    let outside = Some("it is typed into a command that runs without one".to_owned());
    let command = |line: &str| {
        vec![Access::Command { line: line.into(), cwd: bench.root.clone(), outside: outside.clone() }]
    };
    assert_eq!(judged("Ada\n"), command("Ada\n"));
    assert_eq!(judged("\u{3}"), [Access::Nothing]);
    bench.ok("BashInput", type_in("A")).await;
    assert_eq!(judged("da\n"), command("Ada\n"));
    let text = bench.ok("BashInput", type_in("da\n")).await;
    let text = bench.until_said(text, "more? ").await;
    assert!(text.contains("hello Ada\n") && text.contains("[bash_1: running;"), "{text}");
    bench.ok("BashInput", type_in("\n")).await;
    // Ctrl-C ends what runs in the foreground.
    let text = bench.ok("BashInput", type_in("\u{3}")).await;
    bench.until_said(text, "[bash_1: killed by signal 2").await;
    let error = bench.err("BashInput", type_in("x\n")).await;
    assert!(error.starts_with("bash_1 has ended: nothing was typed"), "{error}");
    bench.ok("Bash", json!({"command": "sleep 1000", "run_in_background": true})).await;
    let error = bench.err("BashInput", json!({"bash_id": "bash_2", "text": "x"})).await;
    assert_eq!(error, "bash_2 has no terminal; start the command with tty to type into it");
    bench.workspace.shutdown().await;
}

#[tokio::test]
async fn programs_in_a_terminal_have_job_control_and_a_size() {
    let bench = Bench::new();
    bench.ok("Bash", json!({"command": "exec bash --norc -i", "tty": true})).await;
    let type_in = |text: &'static str| json!({"bash_id": "bash_1", "text": text});
    let text = bench.ok("BashInput", type_in("stty size; echo $TERM; sleep 1000 & jobs\n")).await;
    let text = bench.until_said(text, "Running").await;
    assert!(text.contains("40 160") && text.contains("xterm"), "{text}");
    assert!(!text.contains('\u{1b}') && !text.contains("no job control"), "{text}");
    let text = bench.ok("BashInput", type_in("kill %1; exit 7\n")).await;
    bench.until_said(text, "exit code 7").await;
    bench.workspace.shutdown().await;
}
