//! Rules that mean what they say: the same words with another meaning are not what a rule allows, and other words with the
//! same meaning are what it denies.

use caliban_core::fence::Profile;
use caliban_permissions::{Effect, Fencing, Mode, Verdict};

use crate::place::{Place, short};

fn decided(rules: &[&str], line: &str) -> &'static str {
    let place = Place::new();
    short(&place.policy(Mode::Default, rules).decide("Bash", &[place.command(line)]))
}

#[test]
fn a_rule_names_no_command_with_other_variables() {
    for (line, expected) in [
        ("make test", "allow"),
        ("MAKEFILES=x make test", "ask"),
        ("export MAKEFILES=x; make test", "ask"),
        ("RUST_BACKTRACE=1 make test", "allow"),
        ("hook='touch x' make test", "ask"),
        ("export hook=x; make test", "ask"),
        ("env hook=x make test", "ask"),
        ("env MAKEFILES=x make test", "ask"),
    ] {
        assert_eq!(decided(&["Bash(make test)"], line), expected, "{line}");
    }
}

#[test]
fn a_path_in_an_allow_rule_is_not_left_by_dots() {
    let rules = ["Bash(./scripts/*)", "Bash(./scripts/* *)"];
    assert_eq!(decided(&rules, "./scripts/run x"), "allow");
    assert_eq!(decided(&rules, "./scripts/../../usr/bin/touch x"), "ask");
    let rules = ["Bash(touch build/*)", "Bash(cp a.txt build/*)", "Bash(make build/*.o *)"];
    for (line, expected) in [
        ("touch build/x", "allow"),
        ("touch build/x/../y", "ask"),
        ("touch build/../../x", "ask"),
        ("cp a.txt build/b", "allow"),
        ("cp a.txt build/../b", "ask"),
        ("make build/a.o ../x", "allow"),
        ("make build/../a.o", "ask"),
    ] {
        assert_eq!(decided(&rules, line), expected, "{line}");
    }
}

#[test]
fn a_path_in_an_allow_rule_is_not_left_through_a_link() {
    let place = Place::new();
    std::fs::create_dir_all(place.root.join("scripts/own")).unwrap();
    std::os::unix::fs::symlink("/usr/bin", place.root.join("scripts/link")).unwrap();
    let policy = place.policy(Mode::Default, &["Bash(./scripts/* *)"]);
    for (line, expected) in
        [("./scripts/own/touch x", "allow"), ("./scripts/new x", "allow"), ("./scripts/link/touch x", "ask")]
    {
        assert_eq!(short(&policy.decide("Bash", &[place.command(line)])), expected, "{line}");
    }
}

/// Seen: the path in the value of an option was taken for the name of a file, so no link in it was followed.
#[test]
fn a_path_in_an_option_of_an_allow_rule_is_not_left() {
    let place = Place::new();
    std::fs::create_dir_all(place.root.join("build/own")).unwrap();
    std::os::unix::fs::symlink("/etc", place.root.join("build/link")).unwrap();
    let policy = place.policy(
        Mode::Default,
        &[
            "Bash(tool --out=build/*)",
            "Bash(tool -obuild/*)",
            "Bash(dd of=build/*)",
            "Bash(tool --map=x:build/*)",
            "Bash(tool --in=*/x)",
        ],
    );
    for (line, expected) in [
        ("tool --out=build/x", "allow"),
        ("tool --out=build/own/x", "allow"),
        ("tool --out=build/link/x", "ask"),
        ("tool --out=build/own/../../x", "ask"),
        ("tool -obuild/x", "allow"),
        ("tool -obuild/link", "ask"),
        ("dd of=build/x", "allow"),
        ("dd of=build/link/x", "ask"),
        ("tool --map=x:build/own", "allow"),
        ("tool --map=x:build/link/passwd", "ask"),
        ("tool --in=build/x", "allow"),
        ("tool --in=../x", "ask"),
        ("tool --in=build/link/x", "ask"),
    ] {
        assert_eq!(short(&policy.decide("Bash", &[place.command(line)])), expected, "{line}");
    }
}

#[test]
fn a_denied_script_is_denied_however_it_is_called() {
    for line in [
        "./deploy.sh",
        "deploy.sh",
        "./x/../deploy.sh now",
        "sh deploy.sh",
        "bash -e ./deploy.sh now",
        ". ./deploy.sh",
        "sudo ./deploy.sh",
    ] {
        assert_eq!(decided(&["Bash", "deny Bash(./deploy.sh *)"], line), "deny", "{line}");
    }
    assert_eq!(decided(&["Bash", "deny Bash(./deploy.sh *)"], "sh other.sh"), "allow");
}

#[test]
fn scripts_of_a_denied_directory_are_denied_however_they_are_called() {
    let place = Place::new();
    std::fs::create_dir_all(place.root.join("scripts")).unwrap();
    std::fs::write(place.root.join("scripts/deploy.sh"), "").unwrap();
    std::os::unix::fs::symlink("scripts/deploy.sh", place.root.join("ship")).unwrap();
    let whole = place.root.join("scripts/deploy.sh").display().to_string();
    let said = |rule: &str, line: &str| {
        let policy = place.policy(Mode::Unattended, &["Bash", rule]);
        short(&policy.decide("Bash", &[place.command(line)]))
    };
    for rule in ["deny Bash(./scripts/* *)", "deny Bash(scripts/deploy.sh *)"] {
        for line in [
            "./scripts/deploy.sh",
            "scripts/deploy.sh now",
            "scripts//deploy.sh",
            "cd scripts && ./deploy.sh",
            "cd scripts; sh deploy.sh",
            "rbash scripts/deploy.sh",
            "busybox sh scripts/deploy.sh",
            "./ship",
            whole.as_str(),
        ] {
            assert_eq!(said(rule, line), "deny", "{rule}: {line}");
        }
        assert_eq!(said(rule, "./other.sh"), "allow");
    }
}

#[test]
fn further_wrappers_hide_nothing() {
    for wrapper in
        ["prlimit --cpu=1", "setarch -R", "choom -n 1 --", "/lib64/ld-linux-x86-64.so.2", "linux64"]
    {
        let line = format!("{wrapper} git push");
        assert_eq!(decided(&["Bash", "deny Bash(git push *)"], &line), "deny", "{line}");
    }
}

#[test]
fn a_path_through_a_process_asks() {
    for path in
        ["/proc/self/cwd/notes.txt", "/proc/self/root/etc/hosts", "/proc/thread-self/cwd/x", "/proc/1/root/x"]
    {
        assert_eq!(decided(&[], &format!("cat {path}")), "ask", "{path}");
    }
}

/// The fence of a line, in words.
#[test]
fn a_verdict_names_the_fence() {
    let place = Place::new();
    let fence =
        |mode, line: &str| match place.policy(mode, &["Bash(make *)"]).decide("Bash", &[place.command(line)])
        {
            Verdict::Allow { fence, .. } => Some(fence),
            _ => None,
        };
    for (mode, line, expected) in [
        (Mode::Default, "ls", Some(Profile::Read)),
        (Mode::Plan, "git log", Some(Profile::Read)),
        (Mode::Plan, "touch x", None),
        (Mode::Default, "touch x", None),
        (Mode::AcceptEdits, "touch x", Some(Profile::Edit)),
        (Mode::AcceptEdits, "echo x > src/new", Some(Profile::Edit)),
        (Mode::AcceptEdits, "make all", Some(Profile::Edit)),
        (Mode::Default, "make all | tail -3", Some(Profile::Edit)),
        (Mode::AcceptEdits, "make all; touch x", Some(Profile::Edit)),
        (Mode::AcceptEdits, "git commit -m x", None),
        (Mode::AcceptEdits, "touch x; git commit -m x", None),
        (Mode::AcceptEdits, "cat /etc/hosts", Some(Profile::Edit)),
        (Mode::AcceptEdits, "cat ~/notes", None),
        (Mode::AcceptEdits, "echo x > /etc/x", None),
        (Mode::AcceptEdits, "$(echo touch) x", Some(Profile::Edit)),
        (Mode::Unattended, "touch x", Some(Profile::None)),
    ] {
        assert_eq!(fence(mode, line), expected, "{mode}: {line}");
    }
}

#[test]
fn git_with_a_directory_of_its_own_runs_in_the_fence() {
    let place = Place::new();
    let fence = |rules: &[&str], line: &str| {
        let mut policy = place.policy(Mode::AcceptEdits, &[]);
        policy.fencing = Fencing::HoldsGit;
        for rule in rules {
            policy.add(Effect::Deny, rule.parse().unwrap(), "test");
        }
        match policy.decide("Bash", &[place.command(line)]) {
            Verdict::Allow { fence, .. } => Some(fence),
            _ => None,
        }
    };
    for line in
        ["git commit -m x", "touch x && git add x && git commit -m x", "git rebase -i HEAD~2", "git stash"]
    {
        assert_eq!(fence(&[], line), Some(Profile::Edit), "{line}");
    }
    // What must not be read is in git's objects, and a rule of the user's is one.
    assert_eq!(fence(&["Read(secret.txt)"], "git show HEAD:secret.txt"), None);
    assert_eq!(fence(&["Read(secret.txt)"], "git commit -m x"), None);
    assert_eq!(fence(&["Bash(git commit *)"], "git commit -m x"), None);
}
