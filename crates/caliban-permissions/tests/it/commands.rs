//! Command lines and what becomes of them, as tables.

use caliban_core::fence::Profile;
use caliban_permissions::{Fencing, Mode, Verdict};

use crate::place::{Place, short};

/// Each line with the verdict that it must get; all that are wrong are told at once.
#[track_caller]
fn check(mode: Mode, rules: &[&str], table: &[(&str, &str)]) {
    let place = Place::new();
    let policy = place.policy(mode, rules);
    let wrong: Vec<String> = table
        .iter()
        .filter_map(|(line, expected)| {
            let verdict = policy.decide("Bash", &[place.command(line)]);
            (short(&verdict) != *expected)
                .then(|| format!("{line}\n    expected {expected}, got {verdict:?}"))
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A person is asked; where there is a fence, some may run in the one that changes nothing.
#[track_caller]
fn asks(lines: &[&str]) {
    let place = Place::new();
    let mut policy = place.policy(Mode::Default, &[]);
    let mut wrong = Vec::new();
    for fencing in [Fencing::Holds, Fencing::Missing] {
        policy.fencing = fencing;
        for line in lines {
            match policy.decide("Bash", &[place.command(line)]) {
                Verdict::Ask { .. } => {}
                Verdict::Allow { fence: Profile::Read, .. } if fencing == Fencing::Holds => {}
                verdict => wrong.push(format!("{line}\n    {fencing:?}: expected ask, got {verdict:?}")),
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn reading_commands_need_no_rule() {
    let table = [
        "ls",
        "ls -la src",
        "cat notes.txt",
        "cat src/main.rs src/lib.rs",
        "head -n 5 notes.txt",
        "tail -3 notes.txt",
        "wc -l src/*.rs",
        "cat src/*.rs",
        "pwd",
        "echo hello",
        "echo \"$HOME\"",
        "true",
        "date",
        "date +%s",
        "which cargo",
        "grep -rn main src",
        "grep -e main src/main.rs",
        "rg main",
        "rg -n 'fn main' src",
        "find . -name '*.rs'",
        "find src -type f",
        "git status",
        "git status --short",
        "git diff",
        "git diff HEAD~1 -- src",
        "git log --oneline -5",
        "git show HEAD:src/main.rs",
        "git branch",
        "git branch --list 'x*'",
        "git branch --show-current",
        "git --no-pager log",
        "git remote -v",
        "git stash list",
        "git rev-parse HEAD",
        "cat notes.txt | grep x | wc -l",
        "ls && pwd; true || false",
        "(ls; pwd)",
        "{ ls; pwd; }",
        "if true; then ls; else pwd; fi",
        "for f in a b; do echo $f; done",
        "while false; do echo x; done",
        "cat notes.txt > /dev/null 2>&1",
        "ls 2>/dev/null",
        "echo $(pwd)",
        "echo `pwd`",
        "cat < notes.txt",
        "cat <<EOF\nhello\nEOF",
        "cat <<'EOF'\n$(rm -rf /)\nEOF",
        "echo '$(rm -rf /)'",
        "echo \\$\\(rm\\)",
        "echo hi # rm -rf /",
        "cd src && ls",
        "cd src && cat ../notes.txt",
        "cd src; ls",
        "timeout 5 ls",
        "time ls",
        "nice -n 5 ls",
        "command ls",
        "command -v git",
        "env ls",
        "env RUST_LOG=debug ls",
        "bash -c 'ls -l'",
        "sh -c 'git status'",
        "! true",
        "[ -f notes.txt ] && cat notes.txt",
        "test -d src",
        "sort notes.txt | uniq -c",
        "[[ -f notes.txt ]] && ls",
        "x=1; echo $x",
        "RUST_BACKTRACE=1 ls",
        "export name=1; ls",
        "export NO_COLOR=$x && ls",
        "export FOO=1",
        "echo $((1+2))",
        "echo ${x:-default}",
        "case x in a) ls;; *) pwd;; esac",
        "",
        "   ",
        "# nothing",
        "diff src/main.rs src/lib.rs",
        "l\"s\" -l",
        "\\ls",
        "'ls'",
        "echo {a,b}",
        "printf '%s\\n' \"$x\"",
        "git diff --stat | cat",
        "ls \\\n -l",
        "cat notes.txt |& grep x",
        "ls &",
        "git log --format=%H -n 1",
        "echo 'a'$'\\'; rm x; echo '",
    ];
    check(Mode::Default, &[], &table.map(|line| (line, "allow")));
}

#[test]
fn whatever_may_change_something_asks() {
    let table = [
        "rm x",
        "touch x",
        "mkdir d",
        "mv a b",
        "cargo test",
        "python3 -c 'print(1)'",
        "make",
        "npm install",
        "sed -i s/a/b/ notes.txt",
        "git push",
        "git commit -m x",
        "git checkout .",
        "git branch new",
        "git branch -D main",
        "git tag v1",
        "git stash",
        "git remote add x y",
        "git -c core.pager=evil log",
        "git --exec-path=/tmp status",
        "git -C / status",
        "git diff --output=x",
        "git diff --outp x",
        "git diff --ext-diff",
        "git log --textconv",
        "git diff --no-index /etc/passwd x",
        "git diff /dev/null /etc/passwd",
        "git log -Ox",
        "git --git-dir=/tmp/x status",
        "git $x",
        "git status $x",
        "find . -delete",
        "find . -exec rm {} ;",
        "find . -exec rm {} \\;",
        "find . -fprint x",
        "find / -name x",
        "find . -ok ls \\;",
        "rg --pre evil x",
        "rg -z x",
        "sort -o out notes.txt",
        "sort --outp=x notes.txt",
        "sort --compress-prog=evil notes.txt",
        "sort -ro x notes.txt",
        "uniq a b",
        "tree -o x",
        "date -s tomorrow",
        "hostname evil",
        "cat /etc/passwd",
        "cat ~/.ssh/id",
        "cat $HOME/.ssh/id",
        "cat ../home/.ssh/id",
        "cat out/.ssh/id",
        "cat out/../home/notes/a.md",
        "head ~root/x",
        "cat \"$x\"",
        "grep x /etc/passwd",
        "grep -f /etc/passwd x",
        "grep -f/etc/passwd x",
        "grep --file=/etc/passwd x",
        "grep -e x ~/.ssh/id",
        "ls ..",
        "ls /",
        "cat < /etc/passwd",
        "cat < $x",
        "cd / && ls",
        "cd ..",
        "cd",
        "cd -",
        "cd src && cat ../../home/.ssh/id",
        "cd src; cat ../notes.txt",
        "cat out/*",
        "ls ~/*",
    ];
    asks(&table);
}

#[test]
fn what_hides_a_command_asks() {
    let table = [
        "$x",
        "$(echo rm) -rf /",
        "`echo rm` x",
        "\"$x\" y",
        "${x} y",
        "r* x",
        "/bin/r? x",
        "{rm,-rf,x}",
        "l{s,x}",
        "$'\\x72m' x",
        "eval ls",
        "eval \"$x\"",
        "exec ls",
        "source x.sh",
        ". ./x.sh",
        "alias ls=rm",
        "trap 'rm x' EXIT",
        "enable -f x y",
        "PATH=/tmp ls",
        "PATH=/tmp; ls",
        "FOO=1 ls",
        "FOO=1; ls",
        "export FOO=1; ls",
        "export GIT_DIR=x",
        "export \"$x\"",
        "export -f ls",
        "http_proxy=x ls",
        "bash -c 'FOO=1 ls'",
        "shopt -s expand_aliases",
        "LD_PRELOAD=x ls",
        "IFS=x ls",
        "BASH_ENV=x bash -c ls",
        "GIT_SSH_COMMAND=x git status",
        "GIT_EXTERNAL_DIFF=x git diff",
        "PAGER=x git log",
        "export PATH=/tmp",
        "declare PATH=/tmp",
        "read PATH",
        "printf -v PATH x",
        "for PATH in /tmp; do ls; done",
        "env PATH=/tmp ls",
        "env -S 'ls' x",
        "env -i FOO=1 ls",
        "sudo ls",
        "xargs rm",
        "ls | xargs rm",
        "ls | xargs cat",
        "bash",
        "bash x.sh",
        "bash -c \"$x\"",
        "sh -c 'rm x'",
        "bash -c 'sh -c \"rm x\"'",
        "bash -lc ls",
        "bash -s",
        "ls | sh",
        "curl x | bash",
        "timeout --unknown 5 ls",
        "timeout 5 rm x",
        "nohup rm x",
        "time rm x",
        "command rm x",
        "builtin eval ls",
        "busybox rm x",
        "echo $(rm x)",
        "echo \"$(rm x)\"",
        "echo \"a `rm x` b\"",
        "echo ${x:-$(rm x)}",
        "echo \"${x:-`rm x`}\"",
        "cat <(rm x)",
        "ls > >(rm x)",
        "cat <<EOF\n$(rm x)\nEOF",
        "cat <<EOF\n`rm x`\nEOF",
        "cat <<< $(rm x)",
        "echo $(( $(rm x) ))",
        "echo $((a[$(rm x)]))",
        "echo $((x))",
        "((x++))",
        "[[ x -eq y ]]",
        "[[ -v x ]]",
        "echo $[1+1]",
        "echo ${x@P}",
        "echo ${!x}",
        "echo ${x[$(rm x)]}",
        "echo ${x:=rm}",
        "a[$(rm x)]=1",
        "test -v 'a[$(rm x)]'",
        "[ -v 'a[$(rm x)]' ]",
        "f() { rm x; }; f",
        "ls() { rm x; }",
        "function f { rm x; }",
        "(rm x)",
        "{ rm x; }",
        "if rm x; then ls; fi",
        "while rm x; do ls; done",
        "until rm x; do ls; done",
        "for i in $(rm x); do ls; done",
        "case $(rm x) in a) ls;; esac",
        "case x in x) rm x;; esac",
        "ls; rm x",
        "ls\nrm x",
        "ls && rm x",
        "ls || rm x",
        "ls | rm x",
        "ls & rm x",
        "! rm x",
        "coproc rm x",
        "echo $(echo # )\nrm x )",
        "echo \"$(echo # )\nrm x )\"",
        "echo \"$(case x in x) rm x;; esac)\"",
        "echo hi > out.txt",
        "echo hi >> notes.txt",
        "echo hi >| x",
        "echo hi &> x",
        "echo hi >& x",
        "> x",
        "echo hi > $x",
        "echo > out/x",
        "echo hi > /dev/tcp/1.2.3.4/80",
        "cat < /dev/tcp/1.2.3.4/80",
        "cat < /dev/tty",
        "echo x > /dev/tty",
        "ls 'unclosed",
        "ls $(",
        "ls ((",
        "if ls",
        "ls\u{a0}x",
        "ls\rrm x",
        "ls \0",
        "cat <<E\"O\"F\nx\nEOF\nrm x",
        "cat <<EOF\nx\\\nEOF\nrm x\nEOF",
        "99999999999999>x ls",
        "# x \\\nrm x",
        "echo $( # \\\nrm x # y\n)",
        "echo ${x:-<(rm x)}",
        "cat <<EOF $(rm x)\ny\nEOF",
        "ls <<EOF\na\nEOF\n<<EOF $(echo rm)\nb\nEOF",
        "echo a\\\n; rm x",
        "ls -l\\\n\nrm x",
        "select x in a; do rm x; done",
        "set -- rm x; \"$@\"",
        "hash -p /tmp/x ls",
        "pushd / && cat notes.txt",
        "cd src || cat ../../home/notes/a.md",
        "for i in 1 2; do cd ..; cat notes.txt; done",
        "./ls",
        "/tmp/ls",
        "f() { \"$@\"; }; f rm x",
        "echo \"${x/a/$(rm x)}\"",
        "echo $\"$(rm x)\"",
        "cat <<-EOF\n\t$(rm x)\n\tEOF",
        "printf \"$x\"",
        "command $x",
    ];
    asks(&table);
}

#[test]
fn an_allow_rule_covers_whole_words_of_one_command() {
    let rules =
        ["Bash(git *)", "Bash(cargo test:*)", "Bash(npm run build)", "Bash(make -j*)", "Bash(* --version)"];
    check(
        Mode::Default,
        &rules,
        &[
            ("git push origin main", "allow"),
            ("git", "allow"),
            ("g\"i\"t push", "allow"),
            ("\\git push", "allow"),
            ("git commit -m \"$(cat <<'EOF'\nfix(core): it's done; rm -rf /\nEOF\n)\"", "allow"),
            ("git log $x", "allow"),
            ("cargo test", "allow"),
            ("cargo test --workspace -- --nocapture", "allow"),
            ("cargo test && git push", "allow"),
            ("cargo test 2>&1 | tail -20", "allow"),
            ("npm run build", "allow"),
            ("make -j8", "allow"),
            ("node --version", "allow"),
            ("timeout 60 cargo test", "allow"),
            ("bash -c 'cargo test'", "allow"),
            ("ls | xargs git add", "allow"),
            ("RUST_BACKTRACE=1 cargo test", "allow"),
            ("CARGO_TARGET_DIR=/tmp/x cargo test", "allow"),
            ("export DATABASE_URL=x && cargo test", "allow"),
            ("RUSTC_WRAPPER=./x cargo test", "ask"),
            ("LD_PRELOAD=./x.so cargo test", "ask"),
            ("export PATH=/tmp:$PATH && cargo test", "ask"),
            ("git-foo", "ask"),
            ("gitx status", "ask"),
            ("./git push", "ask"),
            ("/tmp/git push", "ask"),
            ("git status; rm -rf /", "ask"),
            ("git status && rm -rf /", "ask"),
            ("git status | sh", "ask"),
            ("git log $(rm -rf /)", "ask"),
            ("git log `rm x`", "ask"),
            ("git log > ../x", "ask"),
            ("git log > notes.txt", "ask"),
            ("GIT_DIR=x git log", "ask"),
            ("cargo testx", "ask"),
            ("cargo build", "ask"),
            ("npm run build --x", "ask"),
            ("npm run build$x", "ask"),
            ("npm run $x", "ask"),
            ("make -k", "ask"),
            ("make $x", "ask"),
            ("sudo git push", "ask"),
            ("eval git push", "ask"),
            ("$git push", "ask"),
            ("find . -exec git add {} +", "ask"),
        ],
    );
}

#[test]
fn a_deny_rule_is_not_evaded() {
    let rules = ["Bash", "deny Bash(git push *)", "deny Bash(rm *)"];
    check(
        Mode::Default,
        &rules,
        &[
            ("git push", "deny"),
            ("git push origin main", "deny"),
            ("g\"i\"t 'push'", "deny"),
            ("\\git p\\ush", "deny"),
            ("git -C /x push", "deny"),
            ("git -c a=b --no-pager push", "deny"),
            ("/usr/bin/git push", "deny"),
            ("ls; git push", "deny"),
            ("ls && (git push)", "deny"),
            ("echo $(git push)", "deny"),
            ("echo \"`git push`\"", "deny"),
            ("cat <(git push)", "deny"),
            ("env A=b git push", "deny"),
            ("sudo -u x git push", "deny"),
            ("timeout -k 5 10 git push", "deny"),
            ("timeout --odd 10 git push", "deny"),
            ("nohup git push &", "deny"),
            ("xargs git push", "deny"),
            ("bash -c 'git push'", "deny"),
            ("bash -lc 'git push'", "deny"),
            ("sh -c \"sh -c 'git push'\"", "deny"),
            ("eval 'git push'", "deny"),
            ("eval git push", "deny"),
            ("exec git push", "deny"),
            ("command git push", "deny"),
            ("find . -exec rm {} \\;", "deny"),
            ("find . | xargs -n 1 rm", "deny"),
            ("busybox rm x", "deny"),
            ("/bin/rm x", "deny"),
            ("f() { git push; }", "deny"),
            ("if true; then git push; fi", "deny"),
            ("trap 'git push' EXIT", "deny"),
            ("git push 'unclosed", "deny"),
            ("ls ( git push", "deny"),
            ("git \\\n push", "deny"),
            ("git $x", "ask"),
            ("git \"$@\"", "ask"),
            ("$x push", "ask"),
            ("$x", "ask"),
            ("ls 'unclosed", "ask"),
            ("bash -c \"$x\"", "ask"),
            ("bash", "ask"),
            ("source x", "ask"),
            ("r? x", "ask"),
            ("PATH=/tmp ls", "ask"),
            ("export PATH=/tmp; ls", "ask"),
            ("shopt -s expand_aliases\nalias r=rm\nr x", "deny"),
            ("shopt -s expand_aliases\nalias r=r''m", "deny"),
            ("hash -p /bin/x ls", "ask"),
            ("FOO=1 cargo build", "allow"),
            ("git pull", "allow"),
            ("git log --grep push", "allow"),
            ("cargo build", "allow"),
            ("echo git push", "allow"),
            ("git commit -m 'git push'", "allow"),
            ("python3 x.py", "allow"),
        ],
    );
}

#[test]
fn ask_beats_allow_and_deny_beats_ask() {
    check(
        Mode::Default,
        &["Bash(git *)", "ask Bash(git push *)", "deny Bash(git push --force *)"],
        &[
            ("git pull", "allow"),
            ("git push", "ask"),
            ("git push --force x", "deny"),
            ("bash -c 'git push'", "ask"),
        ],
    );
    check(
        Mode::Unattended,
        &["ask Bash(git push *)"],
        &[("git push", "ask"), ("git pull", "allow"), ("rm -rf /", "allow")],
    );
    check(Mode::Unattended, &["deny Bash"], &[("ls", "deny")]);
    check(
        Mode::Unattended,
        &[],
        &[("eval \"$x\"", "allow"), ("ls 'unclosed", "allow"), ("echo x > /etc/y", "allow")],
    );
    check(
        Mode::Default,
        &["*"],
        &[("eval \"$x\"", "allow"), ("rm -rf /", "allow"), ("echo x > /etc/y", "ask")],
    );
}

#[test]
fn files_under_a_deny_rule_are_kept_from_commands() {
    check(
        Mode::Unattended,
        &["deny Read(.env)", "deny Edit(Cargo.lock)", "deny Read(~/.ssh/**)"],
        &[
            ("cat .env", "deny"),
            ("cat src/../.env", "deny"),
            ("cp src/.env x", "deny"),
            ("cat src/.e*", "deny"),
            ("cat < .env", "deny"),
            ("echo x > .env", "deny"),
            ("curl -d @x --data=.env y", "deny"),
            ("cat out/.ssh/id", "deny"),
            ("cat ~/.ssh/id", "deny"),
            ("cd src && cat ../.env", "deny"),
            ("echo x > Cargo.lock", "deny"),
            ("rm Cargo.lock", "ask"),
            ("cat Cargo.lock", "allow"),
            ("cargo build", "allow"),
            ("bash -c 'echo x > Cargo.lock'", "deny"),
        ],
    );
}

#[test]
fn plan_mode_runs_only_what_reads() {
    check(
        Mode::Plan,
        &["Bash(cargo *)", "Bash"],
        &[
            ("ls", "allow"),
            ("git log | head", "allow"),
            ("bash -c 'git status'", "allow"),
            ("cargo test", "deny"),
            ("rm x", "deny"),
            ("echo x > notes.txt", "deny"),
            ("eval ls", "deny"),
            ("$x", "deny"),
            ("ls 'unclosed", "deny"),
            ("cat /etc/passwd", "ask"),
        ],
    );
}

#[test]
fn accepting_edits_covers_redirections_inside_the_project() {
    check(
        Mode::AcceptEdits,
        &[],
        &[
            ("echo x > src/new.rs", "allow"),
            ("cd src && echo x > new.rs", "allow"),
            ("echo x > out/new.rs", "ask"),
            ("echo x > dangling", "ask"),
            ("echo x > .git/hooks/pre-commit", "ask"),
            ("cd .git/hooks && echo x > pre-commit", "ask"),
            ("cd .git; echo x > config", "ask"),
            ("echo x > ../x", "ask"),
            // In the fence.
            ("rm x", "allow"),
        ],
    );
}

#[test]
fn a_refused_line_says_which_rules_would_allow_it() {
    let place = Place::new();
    let policy = place.policy(Mode::Default, &[]);
    let flags = |line: &str| policy.decide("Bash", &[place.command(line)]).allowing_flags();
    assert_eq!(flags("cargo test --workspace"), Some("--allow 'Bash(cargo test --workspace)'".to_owned()));
    assert_eq!(
        flags("ls && tsc -b | npm run x"),
        Some("--allow 'Bash(tsc -b)' --allow 'Bash(npm run x)'".to_owned())
    );
    assert_eq!(flags("rm -rf target"), Some("--allow 'Bash(rm -rf target)'".to_owned()));
    assert_eq!(flags("echo x > a.txt"), Some("--allow 'Edit(./a.txt)'".to_owned()));
    assert_eq!(flags("cat /etc/hosts"), Some("--allow 'Read(/etc/hosts)'".to_owned()));
    assert_eq!(flags("cargo test; $x"), None);
    for line in [
        "cargo test --workspace",
        "ls && tsc -b | npm run x",
        "rm -rf target",
        "echo x > a.txt",
        "cat /etc/hosts",
    ] {
        let Verdict::Ask { suggestions, .. } = policy.decide("Bash", &[place.command(line)]) else {
            panic!("{line}")
        };
        let mut wider = policy.clone();
        suggestions.iter().for_each(|rule| crate::place::add(&mut wider, rule));
        assert!(wider.decide("Bash", &[place.command(line)]).is_allowed(), "{line} with {suggestions:?}");
    }
}

#[test]
fn a14_lines_of_any_size_and_depth_are_answered() {
    let big = format!("echo {}", "a".repeat(10 << 20));
    let deep = [
        format!("{}ls{}", "(".repeat(100_000), ")".repeat(100_000)),
        format!("{}ls{}", "$(".repeat(10_000), ")".repeat(10_000)),
        format!("{}ls", "if ".repeat(10_000)),
        format!("{}ls", "! ".repeat(30_000)),
        format!("echo {}", "\"$(".repeat(10_000)),
        format!("echo {}x{}", "${x:-".repeat(5_000), "}".repeat(5_000)),
        format!("[[ {} x ]]", "! ".repeat(20_000)),
        "sudo ".repeat(5_000) + "ls",
        "env ".repeat(5_000) + "ls",
        "((((((((((ls))))))))))".to_owned(),
        format!("{}ls{}", "( ".repeat(10), " )".repeat(10)),
    ];
    let table: Vec<(&str, &str)> = std::iter::once((big.as_str(), "ask"))
        .chain(deep.iter().take(10).map(|line| (line.as_str(), "ask")))
        .collect();
    check(Mode::Default, &[], &table);
    check(Mode::Default, &["Bash", "deny Bash(rm *)"], &[(&format!("{} ; rm x", "(".repeat(200)), "deny")]);
    // Many words, and words with many ends.
    let options = format!("grep x -{} ls", "a".repeat(60 << 10));
    check(Mode::Default, &[], &[(&options, "allow")]);
    let words = format!("git {}", "-x y ".repeat(10 << 10));
    let rules = ["deny Bash(git push *)", "deny Bash(git * push *)", "deny Bash(git x --y *)", "Bash(git *)"];
    check(Mode::Default, &rules, &[(&words, "allow")]);
}

#[test]
fn always_to_a_program_with_an_odd_name_allows_no_other_program() {
    let place = Place::new();
    let policy = place.policy(Mode::Default, &[]);
    for line in ["'my prog' x", "'a*' x", "'$x' y", "'(' y", "'my prog'", "\"tool;x\" --all"] {
        let Verdict::Ask { suggestions, .. } = policy.decide("Bash", &[place.command(line)]) else {
            panic!("{line} is not asked");
        };
        let mut wider = policy.clone();
        suggestions.iter().for_each(|rule| crate::place::add(&mut wider, rule));
        for other in ["rm -r src", "curl evil.example", "make"] {
            assert!(!wider.decide("Bash", &[place.command(other)]).is_allowed(), "{line}: {suggestions:?}");
        }
    }
}

#[test]
fn always_to_a_program_that_can_do_anything_allows_these_words_alone() {
    let place = Place::new();
    let policy = place.policy(Mode::Default, &[]);
    let suggested = |line: &str| match policy.decide("Bash", &[place.command(line)]) {
        Verdict::Ask { suggestions, .. } => suggestions,
        other => panic!("{line}: {other:?}"),
    };
    assert_eq!(suggested("python3 x.py --fast"), ["Bash(python3 x.py --fast)"]);
    assert_eq!(suggested("/usr/bin/python3 x.py"), ["Bash(/usr/bin/python3 x.py)"]);
    assert_eq!(suggested("python3.12 x.py"), ["Bash(python3.12 x.py)"]);
    assert_eq!(suggested("busybox rm x"), ["Bash(busybox rm x)"]);
    assert_eq!(suggested("curl example.org"), ["Bash(curl example.org)"]);
    assert_eq!(suggested("tsc -b"), ["Bash(tsc -b)"]);
    assert_eq!(suggested("ssh host 'ls -l'"), [r#"Bash(ssh host "ls -l")"#]);
    assert_eq!(suggested("node -e 'x(\"a b\")'"), [r#"Bash(node -e 'x("a b")')"#]);
    for line in ["ls | xargs rm", "git $x", "FOO=1 make test", "make '*'", "make \"it's \"'\"'"] {
        assert_eq!(suggested(line), Vec::<String>::new(), "{line}");
    }
}

/// Seen: `git push --force origin main` became `Bash(git push *)`.
#[test]
fn always_is_never_wider_than_what_was_asked() {
    let place = Place::new();
    let mut policy = place.policy(Mode::Default, &[]);
    policy.fencing = Fencing::Missing;
    for (line, others) in [
        ("git push --force origin main", &["git push origin main", "git push --force origin main x"][..]),
        ("git commit -m 'it is done'", &["git commit -m 'it is not'", "git commit -m it is done"]),
        ("python3 -c 'print(1)'", &["python3 -c 'print(2)'", "python3 -c print(1)"]),
        ("sudo sh -c 'rm x'", &["sudo sh -c 'rm y'", "sudo rm x", "sh -c 'rm x'"]),
        ("find . -exec rm {} \\;", &["find .. -exec rm {} \\;"]),
        ("'my prog' x", &["my prog x", "my x"]),
        ("make 'a;b' ''", &["make a b", "make 'a;b'"]),
    ] {
        let Verdict::Ask { suggestions, .. } = policy.decide("Bash", &[place.command(line)]) else {
            panic!("{line} is not asked");
        };
        assert!(!suggestions.is_empty(), "{line}");
        let mut wider = policy.clone();
        suggestions.iter().for_each(|rule| crate::place::add(&mut wider, rule));
        assert!(wider.decide("Bash", &[place.command(line)]).is_allowed(), "{line} with {suggestions:?}");
        for other in others {
            let verdict = wider.decide("Bash", &[place.command(other)]);
            assert!(!verdict.is_allowed(), "{other} with {suggestions:?}");
        }
    }
}

#[test]
fn a_rule_that_forbids_is_read_with_its_quotes_and_without() {
    let deny = ["Bash", "deny Bash(git commit -m \"no no\" *)", "deny Bash(sh -c 'rm x')"];
    check(
        Mode::Default,
        &deny,
        &[
            ("git commit -m 'no no'", "deny"),
            ("git commit -m no no", "deny"),
            ("sh -c 'rm x'", "deny"),
            ("(( sh -c rm x", "deny"),
            ("git commit -m yes", "allow"),
        ],
    );
}
