//! The real shell as the judge: what is allowed here is run by bash, with a command `evil` that leaves a
//! mark and no rule that allows it. The mark must never appear. Without bash this tests nothing.

use std::{
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, Stdio},
};

use caliban_permissions::Mode;
use proptest::prelude::*;

use crate::{junk::pieces, place::Place};

const BASH: &str = "/bin/bash";

fn stub(directory: &Path, name: &str, body: &str) {
    let path = directory.join(name);
    std::fs::write(&path, format!("#!/bin/sh\n{body}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// Lines of many levels, most of which parse, with `evil` where it may or may not be run.
fn nested() -> impl Strategy<Value = String> {
    let leaf = prop::sample::select(vec![
        "ok",
        "evil",
        "ok evil",
        "echo evil",
        "a",
        "'",
        "\"",
        ")",
        "(",
        "#",
        " # ",
        "\n",
        ";",
        "\\",
        "$",
        "EOF",
        "x",
    ]);
    leaf.prop_map(str::to_owned).prop_recursive(5, 24, 3, |inner| {
        let shape = prop::sample::select(vec![
            "$(A)",
            "\"A\"",
            "`A`",
            "'A'",
            "echo A",
            "ok A",
            "echo \"A\"",
            "echo $(A)",
            "echo \"$(A)\"",
            "# A\nB",
            "A; B",
            "A\nB",
            "A && B",
            "A | B",
            "(A)",
            "{ A; }",
            "cat <<EOF\nA\nEOF\nB",
            "cat <<'EOF'\nA\nEOF\nB",
            "echo \"$(cat <<'EOF'\nA\nEOF\n)\" B",
            "cat <<-E\n\tA\n\tE\nB",
            "${x:-A}",
            "\"${x:-A}\"",
            "case a in a) A;; esac",
            "if A; then B; fi",
            "for i in A; do B; done",
            "A\\\nB",
            "$'A'",
            "<(A)",
            "A$(B # C\n)",
            "f() { A; }; B",
            "x=A B",
            "echo {A,B}",
            "bash -c 'A'",
            "bash -c \"A\"",
            "env A",
            "env x=B A",
            "timeout 5 A",
            "nice A",
            "command A",
            "eval A",
            "A > /dev/null",
            "A 2>&1 B",
            "A <<< B",
            "$((A))",
            "[[ A == B ]]",
            "echo `echo \\`A\\``",
            "ok <<< \"A\"",
            "ok A <<EOF B\nC\nEOF\n",
        ]);
        (shape, inner.clone(), inner.clone(), inner).prop_map(|(shape, a, b, c)| {
            shape.chars().fold(String::new(), |mut text, part| {
                match part {
                    'A' => text.push_str(&a),
                    'B' => text.push_str(&b),
                    'C' => text.push_str(&c),
                    other => text.push(other),
                }
                text
            })
        })
    })
}

/// Whether the line is allowed; if so, it has been run and has not left the mark.
fn holds(place: &Place, line: &str) -> Result<(), TestCaseError> {
    let policy = place.policy(Mode::Default, &["Bash(ok *)", "Bash(echo *)"]);
    if !Path::new(BASH).exists() || !policy.decide("Bash", &[place.command(line)]).is_allowed() {
        return Ok(());
    }
    let stubs = place.home.join("stubs");
    std::fs::create_dir_all(&stubs).unwrap();
    let mark = place.home.join("mark");
    stub(&stubs, "evil", &format!(": > '{}'", mark.display()));
    stub(&stubs, "ok", "exit 0");
    stub(&stubs, "cat", "exit 0");
    for wrapper in ["bash", "env", "timeout", "nice"] {
        // One that is not there tests nothing, and harms nothing.
        let _ = std::os::unix::fs::symlink(format!("/usr/bin/{wrapper}"), stubs.join(wrapper));
    }
    let mut bash = Command::new(BASH);
    bash.args(["--norc", "--noprofile", "-c", line]).env_clear().env("PATH", &stubs).current_dir(&place.root);
    bash.stdin(Stdio::null()).output().unwrap();
    prop_assert!(!mark.exists(), "allowed, but runs evil: {line:?}");
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(80))]
    #[test]
    fn what_is_allowed_never_runs_evil(a in pieces(), b in pieces(), c in pieces()) {
        let place = Place::new();
        for line in [
            format!("{a}evil{b}"),
            format!("{a} evil {b}"),
            format!("{a}\nevil\n{b}"),
            format!("ok {a} evil {b}{c}"),
            format!("echo \"{a}\" ; ok '{b}' evil {c}"),
        ] {
            holds(&place, &line)?;
        }
    }

    #[test]
    fn what_is_allowed_never_runs_evil_however_nested(lines in prop::collection::vec(nested(), 8)) {
        let place = Place::new();
        for line in &lines {
            holds(&place, line)?;
            holds(&place, &format!("ok {line}"))?;
        }
    }
}
