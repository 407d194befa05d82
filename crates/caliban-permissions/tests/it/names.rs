//! Rules by the names of tools, and what the policy says of them.

use caliban_core::access::Access;
use caliban_permissions::{Mode, Policy, Verdict, inherit};

use crate::place::{Place, read, short, write};

#[track_caller]
fn check(place: &Place, mode: Mode, table: &[(&str, &str, Access, &str)]) {
    for (rule, tool, access, expected) in table {
        let verdict = place.policy(mode, &[rule]).decide(tool, std::slice::from_ref(access));
        assert_eq!(short(&verdict), *expected, "{rule}: {tool} {access:?}: {verdict:?}");
    }
}

fn fetch() -> Access {
    Access::Fetch { url: "https://x.org/".to_owned(), host: "x.org".to_owned() }
}

fn mcp() -> Access {
    Access::Mcp { server: "s".to_owned(), tool: "t".to_owned(), read_only: false }
}

#[test]
fn a_rule_is_about_a_tool_by_its_own_name_or_that_of_its_kind() {
    let place = Place::new();
    let (file, line) = (
        place.at("src/main.rs"),
        Access::Command { line: "ls".to_owned(), cwd: place.root.clone(), outside: None },
    );
    check(
        &place,
        Mode::Default,
        &[
            ("deny *", "Any", Access::Nothing, "deny"),
            ("deny *", "Any", fetch(), "deny"),
            ("deny *", "Any", mcp(), "deny"),
            ("deny *", "Read", read(&file), "deny"),
            ("deny *", "Edit", write(&file), "deny"),
            ("deny *", "Bash", line.clone(), "deny"),
            ("deny *", "Bash", Access::Detach { line: "x".to_owned() }, "deny"),
            ("deny Any", "Any", Access::Nothing, "deny"),
            ("deny Any", "Other", Access::Nothing, "allow"),
            ("deny mcp__s", "mcp__s__t", Access::Nothing, "deny"),
            ("deny mcp__s", "Other", Access::Nothing, "allow"),
            ("deny mcp__o", "mcp__s__t", Access::Nothing, "allow"),
            ("WebFetch", "WebFetch", fetch(), "allow"),
            ("WebFetch", "Other", fetch(), "allow"),
            ("Other", "Other", fetch(), "allow"),
            ("Another", "Other", fetch(), "ask"),
            ("mcp__s", "Any", mcp(), "allow"),
            ("mcp__as", "mcp__as__t", mcp(), "allow"),
            ("mcp__o", "mcp__as__t", mcp(), "ask"),
            ("Any", "Any", mcp(), "allow"),
            ("deny Edit", "Any", write(&file), "deny"),
            ("deny Write", "Any", write(&file), "deny"),
            ("deny Any", "Any", write(&file), "deny"),
            ("deny Another", "Any", write(&file), "ask"),
            ("deny Bash", "Bash", line.clone(), "deny"),
            ("deny Bash", "Shell", line.clone(), "deny"),
            ("deny Shell", "Shell", line.clone(), "deny"),
            ("deny Other", "Shell", line.clone(), "allow"),
            ("deny Bash(*)", "Bash", line.clone(), "deny"),
            ("deny Bash(* *)", "Bash", line, "deny"),
            ("deny Detach", "Bash", Access::Detach { line: "x".to_owned() }, "deny"),
            ("deny Bash", "Bash", Access::Detach { line: "x".to_owned() }, "deny"),
            ("deny Other", "Bash", Access::Detach { line: "x".to_owned() }, "ask"),
            ("Bash", "Bash", Access::Detach { line: "x".to_owned() }, "ask"),
            ("Detach", "Bash", Access::Detach { line: "x".to_owned() }, "allow"),
        ],
    );
    check(
        &place,
        Mode::Unattended,
        &[
            ("Another", "Other", fetch(), "allow"),
            ("deny WebFetch", "Other", fetch(), "deny"),
            ("Another", "Other", mcp(), "allow"),
        ],
    );
}

#[test]
fn an_agent_has_the_tools_that_it_and_all_above_it_have() {
    let tools = |names: &[&str]| -> Policy {
        let mut policy = Policy::new("/r", "/h");
        policy.keep_tools(&names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>());
        policy
    };
    let has = |policy: &Policy| ["Read", "Bash", "Edit"].map(|name| policy.has_tool(name));
    let all = Policy::new("/r", "/h");
    assert_eq!(has(&all), [true, true, true]);
    let mut two = tools(&["Read", "Bash"]);
    assert_eq!(has(&two), [true, true, false]);
    assert_eq!(has(&inherit(&two, all.clone())), [true, true, false]);
    assert_eq!(has(&inherit(&all, two.clone())), [true, true, false]);
    assert_eq!(has(&inherit(&two, tools(&["Bash", "Edit"]))), [false, true, false]);
    two.keep_tools(&["Edit".to_owned(), "Read".to_owned()]);
    assert_eq!(has(&two), [true, false, false], "nothing comes back");
}

/// A rule cannot say where such a path leads: the command has other files there than we see.
#[test]
fn a_path_through_a_process_asks_whatever_a_rule_allows() {
    let place = Place::new();
    let policy = place.policy(Mode::Default, &["Read(//proc/**)"]);
    let why = |path: &str| policy.decide("Read", &[read(path)]);
    for path in ["/proc/self/cwd/x", "/proc/thread-self/root/x", "/proc/1/fd/3", "/proc/self/task/1/exe"] {
        let verdict = why(path);
        assert!(
            matches!(&verdict, Verdict::Ask { why, .. } if why.contains("only the command knows")),
            "{verdict:?}"
        );
    }
    for path in ["/proc/cpuinfo", "/proc/1/status", "/proc/sys/fd/x"] {
        assert!(why(path).is_allowed(), "{path}");
    }
}

#[test]
fn the_rule_that_is_suggested_names_the_file_from_the_project() {
    let place = Place::new();
    let policy = place.policy(Mode::Default, &[]);
    let flags = |path: &str| policy.decide("Edit", &[write(place.at(path))]).allowing_flags();
    assert_eq!(flags("src/main.rs").as_deref(), Some("--allow 'Edit(src/main.rs)'"));
    assert_eq!(flags("notes.txt").as_deref(), Some("--allow 'Edit(./notes.txt)'"));
}

/// A fenced command has a temporary directory of its own, but not where the work lies there.
#[test]
fn a_fenced_command_writes_temporary_files_unless_the_work_is_there() {
    let write_below = |root: &str| {
        let mut policy = Policy::new(root, "/home/nobody");
        policy.mode = Mode::AcceptEdits;
        let line = "echo x > /var/tmp/caliban-test-file".to_owned();
        policy.decide("Bash", &[Access::Command { line, cwd: root.into(), outside: None }])
    };
    assert_eq!(short(&write_below("/srv/project")), "allow");
    assert_eq!(short(&write_below("/var/tmp/project")), "ask");
}

#[test]
fn links_are_followed_up_to_forty() {
    let dir = tempfile::tempdir().unwrap();
    let base = dir.path().canonicalize().unwrap();
    std::fs::write(base.join("0"), "").unwrap();
    for number in 1..=41 {
        std::os::unix::fs::symlink(format!("{}", number - 1), base.join(number.to_string())).unwrap();
    }
    assert_eq!(caliban_permissions::resolve(&base.join("40")), Some(base.join("0")));
    assert_eq!(caliban_permissions::resolve(&base.join("41")), None);
}

#[test]
fn a_question_names_the_command_and_the_rule_for_its_program() {
    let place = Place::new();
    let policy = place.policy(Mode::Default, &[]);
    let asked = |line: &str| policy.decide("Bash", &[place.command(line)]);
    for (line, why, flags) in [
        ("rm x", "runs `rm x`", "--allow 'Bash(rm x)'"),
        ("touch x", "runs `touch x`", "--allow 'Bash(touch x)'"),
        ("git push origin", "runs `git push origin`", "--allow 'Bash(git push origin) outside'"),
    ] {
        let verdict = asked(line);
        assert!(verdict.why().contains(why), "{verdict:?}");
        assert_eq!(verdict.allowing_flags().as_deref(), Some(flags));
    }
}
