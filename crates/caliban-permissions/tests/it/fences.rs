//! Where a fence holds, nothing is guessed about the words of a reading command; where none does, only plain words pass.

use caliban_core::{access::Access, fence::Profile};
use caliban_permissions::{Fencing, Mode, Verdict};

use crate::place::{Place, short};

/// The fence of a line, or none of it is allowed.
#[track_caller]
fn check(mode: Mode, fencing: Fencing, rules: &[&str], table: &[(&str, Option<Profile>)]) {
    let place = Place::new();
    let mut policy = place.policy(mode, rules);
    policy.fencing = fencing;
    for (line, expected) in table {
        let found = match policy.decide("Bash", &[place.command(line)]) {
            Verdict::Allow { fence, .. } => Some(fence),
            Verdict::Ask { .. } | Verdict::Deny { .. } => None,
        };
        assert_eq!(found, *expected, "{mode} {fencing:?}: {line}");
    }
}

#[test]
fn in_the_read_fence_a_reading_command_may_have_any_words() {
    let lines = [
        "for f in src/*.rs; do head -3 \"$f\"; done",
        "cat \"$x\"",
        "git status \"$x\"",
        "FOO=1 sort --parallel=2 notes.txt",
        "ls | xargs wc -l",
        "find . -name '*.rs' -exec grep -l main {} +",
        "cd \"$x\" && ls",
        "cut -d/ -f1 notes.txt",
        "[ \"$x\" = y ] && ls",
        "sort -o sorted notes.txt",
        "rg --pre=./x main",
    ];
    for mode in [Mode::Default, Mode::Plan] {
        check(mode, Fencing::Holds, &[], &lines.map(|line| (line, Some(Profile::Read))));
    }
    // A person who is asked gets more done than a command that fails.
    let writing = [
        "find . -name x -delete",
        "find . -exec rm {} +",
        "git branch new",
        "git tag v1",
        "git diff --output=x",
        "hostname x",
    ];
    check(Mode::Default, Fencing::Holds, &[], &writing.map(|line| (line, None)));
}

#[test]
fn in_the_edit_fence_runs_what_may_write() {
    check(
        Mode::AcceptEdits,
        Fencing::Holds,
        &[],
        &[
            ("sort -o sorted notes.txt", Some(Profile::Edit)),
            ("uniq notes.txt other", Some(Profile::Edit)),
            ("sort notes.txt", Some(Profile::Edit)),
            ("rg main", Some(Profile::Read)),
            // It may be one of the agent's temporary files, which only this fence has.
            ("cat \"$x\"", Some(Profile::Edit)),
            ("for f in /tmp/*.log; do tail \"$f\"; done", Some(Profile::Edit)),
            ("cd \"$x\"; ls", Some(Profile::Edit)),
            ("git log \"$x\"", Some(Profile::Read)),
            // There the repository's configuration has no effect.
            ("git status", Some(Profile::Read)),
            ("git diff --output=x", None),
        ],
    );
}

/// Seen: a rule for `make` and a Makefile that the agent had edited ran anything, with the user's rights.
#[test]
fn a_rule_says_do_not_ask_and_the_fence_holds() {
    let rules = ["Bash(make *)"];
    let lines = [
        "make",
        "make | tail -n 20",
        "make; rg --pre=./x main",
        "cd src && make",
        "make; cat \"$x\"",
        "V=1 make all",
    ];
    for mode in [Mode::Default, Mode::AcceptEdits] {
        check(mode, Fencing::Holds, &rules, &lines.map(|line| (line, Some(Profile::Edit))));
        check(mode, Fencing::Missing, &rules, &[("make | tail -n 20", Some(Profile::None))]);
    }
    for rule in ["*", "Bash", "Bash(*)"] {
        check(Mode::Default, Fencing::Holds, &[rule], &[("touch x; eval \"$x\"", Some(Profile::Edit))]);
    }
    check(Mode::Default, Fencing::Holds, &rules, &[("make; touch x", None)]);
    check(Mode::Plan, Fencing::Holds, &rules, &[("make", None)]);
    check(Mode::Unattended, Fencing::Holds, &rules, &[("make", Some(Profile::None))]);
    // Without a rule, what the fence surely stops is asked about at once.
    let git = ["Bash(git commit *)"];
    check(Mode::AcceptEdits, Fencing::Holds, &[], &[("git commit -m x", None)]);
    check(
        Mode::Default,
        Fencing::Holds,
        &git,
        &[("git commit -m x", Some(Profile::Edit)), ("git status", Some(Profile::Read))],
    );
    check(Mode::Default, Fencing::HoldsGit, &git, &[("git commit -m x", Some(Profile::Edit))]);
}

#[test]
fn without_a_fence_only_plain_words_pass_unasked() {
    let plain = [
        "ls -la src",
        "cat notes.txt | grep -n x | head -5",
        "cd src && ls",
        "tail --lines=3 notes.txt",
        "timeout 5 ls",
        "export A=b",
        "date +%s",
        "[ -f notes.txt ] && cat notes.txt",
    ];
    check(Mode::Default, Fencing::Missing, &[], &plain.map(|line| (line, Some(Profile::None))));
    let other = [
        "x=1; ls",
        "for f in a b; do cat notes.txt; done",
        "export A=b; ls",
        "echo $x",
        "ls --color=never",
        "grep --include=x main src",
        "cat *.txt",
        "cut -d/ -f1 notes.txt",
        "cd",
        "exit 1",
        "sort notes.txt",
        "git status",
        "rg main",
    ];
    check(Mode::Default, Fencing::Missing, &[], &other.map(|line| (line, None)));
}

#[test]
fn always_to_what_runs_others_allows_these_words_alone() {
    let place = Place::new();
    let mut policy = place.policy(Mode::Default, &[]);
    policy.fencing = Fencing::Missing;
    for (line, rule) in [
        ("valgrind ./x", "Bash(valgrind ./x)"),
        ("command -v ls", "Bash(command -v ls)"),
        ("rbash x.sh", "Bash(rbash x.sh)"),
        ("find . -delete", "Bash(find . -delete)"),
        ("time make", "Bash(make)"),
    ] {
        let Verdict::Ask { suggestions, .. } = policy.decide("Bash", &[place.command(line)]) else {
            panic!("{line}")
        };
        assert_eq!(suggestions, [rule], "{line}");
    }
}

#[test]
fn a_restricted_shell_hides_no_line() {
    let place = Place::new();
    let policy = place.policy(Mode::Unattended, &["deny Bash(git push *)"]);
    assert_eq!(short(&policy.decide("Bash", &[place.command("rbash -c 'git push'")])), "deny");
}

/// In a tree that a rule is about, a hidden directory that is named is looked through, too.
#[test]
fn a_named_tree_is_looked_through_whatever_its_name_is() {
    let place = Place::new();
    std::fs::create_dir_all(place.at(".hidden/deep")).unwrap();
    std::fs::write(place.at(".hidden/deep/secret.pem"), "").unwrap();
    let policy = place.policy(Mode::Unattended, &["deny Read(*.pem)"]);
    for (line, expected) in
        [("rg x .hidden", "ask"), ("rg x", "allow"), ("grep -r --regexp=x .hidden", "ask")]
    {
        assert_eq!(short(&policy.decide("Bash", &[place.command(line)])), expected, "{line}");
    }
}

#[test]
fn an_agent_in_its_own_worktree_has_the_edit_fence_in_the_default_mode() {
    let place = Place::new();
    let own = format!("Edit({})", place.at("src").display());
    let policy = |mode: Mode, rules: &[&str]| {
        let mut policy = place.policy(mode, rules);
        policy.worktree = Some(place.at("src"));
        policy
    };
    let decided =
        |mode: Mode, rules: &[&str]| policy(mode, rules).decide("Bash", &[place.command("touch x")]);
    assert!(matches!(decided(Mode::Default, &[&own]), Verdict::Allow { fence: Profile::Edit, .. }));
    assert_eq!(short(&decided(Mode::Plan, &[&own])), "deny");
    assert!(matches!(decided(Mode::Unattended, &[&own]), Verdict::Allow { fence: Profile::None, .. }));
    // One that another agent has started, which may not edit unasked itself, asks in its worktree.
    assert_eq!(short(&decided(Mode::Default, &[])), "ask");
    assert!(policy(Mode::Default, &[&own]).lends_edits() && !policy(Mode::Default, &[]).lends_edits());
}

#[test]
fn a_denied_name_of_two_letters_is_found_in_a_computed_word() {
    let place = Place::new();
    let policy = place.policy(Mode::Unattended, &["deny Read(id)"]);
    for (line, expected) in [("cat $x/id", "deny"), ("cat $x/ids", "ask"), ("echo $x", "allow")] {
        assert_eq!(short(&policy.decide("Bash", &[place.command(line)])), expected, "{line}");
    }
}

/// In the edit fence the system can be read, but not what a rule asks about.
#[test]
fn what_a_rule_asks_about_is_asked_about_in_the_edit_fence() {
    let rules = ["ask Read(//etc/hosts)"];
    let table =
        [("cat /etc/hosts", None), ("cat /etc/passwd", Some(Profile::Edit)), ("cat ~/notes/a.md", None)];
    check(Mode::AcceptEdits, Fencing::Holds, &rules, &table);
}

#[test]
fn a_pattern_that_may_become_an_option_is_not_plain() {
    let place = Place::new();
    let mut policy = place.policy(Mode::Default, &[]);
    policy.fencing = Fencing::Missing;
    let said = |line: &str| short(&policy.decide("Bash", &[place.command(line)]));
    assert_eq!(said("cat src/*.rs"), "allow");
    std::fs::write(place.at("src/-x.rs"), "").unwrap();
    assert_eq!(said("cat src/*.rs"), "ask");
}

#[test]
fn nothing_is_asked_for_outside_without_a_person() {
    let place = Place::new();
    let said = |fencing: Fencing, line: &str| {
        let mut policy = place.policy(Mode::AcceptEdits, &["Bash(make *)"]);
        policy.fencing = fencing;
        let (line, outside) = (line.to_owned(), Some("why".to_owned()));
        short(&policy.decide("Bash", &[Access::Command { line, cwd: place.root.clone(), outside }]))
    };
    assert_eq!(
        ["ls", "rg x", "make | tail -3", "make"].map(|line| said(Fencing::Holds, line)),
        ["allow", "ask", "ask", "ask"]
    );
    assert_eq!(["ls", "make"].map(|line| said(Fencing::Missing, line)), ["allow", "allow"]);
}

/// Git's own files are not looked through, unless a rule is about them.
#[test]
fn a_rule_about_a_git_directory_is_held() {
    let place = Place::new();
    std::fs::create_dir_all(place.home.join(".git")).unwrap();
    std::fs::write(place.home.join(".git/secret"), "").unwrap();
    let held = place.policy(Mode::Default, &["deny Read(~/.git/sec*)"]).held(&place.root).unwrap();
    let masked: Vec<_> = held.masks.iter().map(|mask| mask.path.clone()).collect();
    assert_eq!(masked, [place.home.join(".git/secret")]);
}

/// Who is never asked is held by rules about files all the same: in a fence that has everything else.
#[test]
fn a18_unattended_commands_run_in_an_open_fence_where_rules_are_about_files() {
    let place = Place::new();
    let fence = |mode, fencing, rules: &[&str]| {
        let mut policy = place.policy(mode, rules);
        policy.fencing = fencing;
        match policy.decide("Bash", &[place.command("python3 x.py")]) {
            Verdict::Allow { fence, .. } => fence.name(),
            _ => "not allowed",
        }
    };
    let held = |rules| fence(Mode::Unattended, Fencing::Holds, rules);
    assert_eq!(held(&["deny Read(.env)"]), "open");
    assert_eq!(held(&["ask Edit(src/**)"]), "open");
    assert_eq!(held(&[]), "none");
    assert_eq!(held(&["deny Bash(rm *)"]), "none");
    assert_eq!(fence(Mode::Unattended, Fencing::Missing, &["deny Read(.env)"]), "none");
    assert_eq!(fence(Mode::AcceptEdits, Fencing::Holds, &["deny Read(.env)"]), "edit");
}
