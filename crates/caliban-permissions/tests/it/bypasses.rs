//! Ways around the rules that were once found: each ran a command, wrote or read what nobody had allowed.

use caliban_core::fence::Profile;
use caliban_permissions::{Fencing, Mode, Policy, Verdict};

use crate::place::{Place, short};

fn wrong(place: &Place, policy: &Policy, lines: &[&str], expected: &str) -> Vec<String> {
    let verdict = |line: &&str| policy.decide("Bash", &[place.command(line)]);
    let wrong = lines.iter().filter(|line| short(&verdict(line)) != expected);
    wrong.map(|line| format!("{line}\n    expected {expected}, got {:?}", verdict(line))).collect()
}

/// Without a fence a person is asked, and in plan mode, which only reads, they are refused. In a fence they may be allowed: the read
/// fence makes them harmless in every mode, the edit fence where edits are accepted.
#[track_caller]
fn held(lines: &[&str]) {
    let place = Place::new();
    let mut all = Vec::new();
    for (mode, expected) in [(Mode::Plan, "deny"), (Mode::Default, "ask"), (Mode::AcceptEdits, "ask")] {
        let mut policy = place.policy(mode, &[]);
        let is_fenced = |line: &&str| match policy.decide("Bash", &[place.command(line)]) {
            Verdict::Allow { fence: Profile::Read, .. } => true,
            Verdict::Allow { fence: Profile::Edit, .. } => mode == Mode::AcceptEdits,
            Verdict::Allow { fence: Profile::None | Profile::Open, .. } => false,
            Verdict::Ask { .. } | Verdict::Deny { .. } => true,
        };
        all.extend(
            lines
                .iter()
                .filter(|line| !is_fenced(line))
                .map(|line| format!("{line}\n    not held in {mode}")),
        );
        policy.fencing = Fencing::Missing;
        all.extend(wrong(&place, &policy, lines, expected));
    }
    assert!(all.is_empty(), "{}", all.join("\n"));
}

#[track_caller]
fn free(lines: &[&str]) {
    let place = Place::new();
    let all = wrong(&place, &place.policy(Mode::Plan, &[]), lines, "allow");
    assert!(all.is_empty(), "{}", all.join("\n"));
}

#[test]
fn what_xargs_puts_in_is_known_only_when_it_runs() {
    held(&[
        "echo touch | xargs -I echo timeout 5 echo pwn",
        "echo sh | xargs -I echo env echo -c 'touch pwn'",
        "echo sh | xargs -Iecho env echo -c 'touch pwn'",
        "echo touch | xargs -I ec nohup echo pwn",
        "echo x | xargs -i timeout 5 {} pwn",
        "echo x | xargs --replace=R env R pwn",
        "echo x | xargs -a notes.txt env",
    ]);
    let place = Place::new();
    let policy = place.policy(Mode::Default, &["Bash", "deny Bash(git push *)"]);
    let lines = ["echo git | xargs -I echo env echo push", "echo push | xargs -I x git x"];
    assert_eq!(wrong(&place, &policy, &lines, "ask"), Vec::<String>::new());
    let policy = place.policy(Mode::Default, &["Bash(gzip *)"]);
    assert_eq!(wrong(&place, &policy, &["ls | xargs -I{} gzip {}"], "allow"), Vec::<String>::new());
}

#[test]
fn a_line_for_sh_is_not_judged_as_one_for_bash() {
    held(&[
        "sh -c \"echo \\$'\\\\' ; touch pwn #'\"",
        "dash -c \"echo \\$'\\\\' ; touch pwn #'\"",
        "timeout 5 sh -c \"echo \\$'\\\\' ; touch pwn #'\"",
        "sh -c 'echo a &> x'",
        "sh -c 'a+=x/y'",
        "sh -c 'a[0]=x/y'",
        "sh -c '[[ a > b ]]'",
        "sh -c 'cat 10</dev/null'",
        "sh -c 'export a=$x; git diff'",
        "sh -c 'function ls { pwd; }'",
        "sh -c 'echo \"`pwd`\"'",
        "sh -c 'echo ${x/a/b}'",
        "sh -c 'cat <<<x'",
        "sh -c 'echo hi >&x'",
        "zsh -c 'ls'",
        "zsh -c 'path=(.); ls'",
        "ksh -c ls",
    ]);
    free(&[
        "sh -c 'git status && ls | head -3'",
        "sh -c 'cd src; echo \"$(pwd)\" ${x} 2>&1'",
        "dash -c 'for i in a b; do echo $i; done'",
        "sh -c '{ ls; pwd; } 2>/dev/null'",
        "bash -c '[[ -f notes.txt ]] && ls'",
    ]);
}

#[test]
fn only_a_bare_export_keeps_its_words_together() {
    held(&[
        "x='1 GIT_EXTERNAL_DIFF=touch${IFS}pwn;'; \\export a=$x; git diff",
        "x='1 PATH=.'; \"export\" a=$x; ls",
        "x='1 PATH=.'; 'export' a=$x; ls",
        "x='1 PATH=.'; command export a=$x; ls",
        "x='1 PATH=.'; builtin export a=$x; ls",
        "x='1 PATH=.'; ex\\port a=$x; ls",
        "x='1 PATH=.'; export a\\=$x; ls",
        "x='1 PATH=.'; export \"a\"=$x; ls",
    ]);
    free(&["export a=$x; ls", "export NO_COLOR=$(pwd) name=$HOME && ls"]);
}

#[test]
fn a_variable_that_is_set_on_the_way_is_seen() {
    held(&[
        ": {PATH}>/dev/null; ls",
        "ls . {PATH}</dev/null; ls",
        ": {PA\\\nTH}>/dev/null; ls",
        ": {PATH[0]}>/dev/null; ls",
        "{ ls; } {PATH}>/dev/null; ls",
        "while false; do ls; done {PATH}>/dev/null",
        "coproc PATH { sleep 1; }; ls",
        "coproc ls",
        "printf '%10s%n' '' PATH >/dev/null; ls",
        "printf '%-+0 #5.3ln' PATH; ls",
        "printf '%n' 'a[$(touch pwn)]'",
        "printf '%%%n' PATH",
        "for PATH in .; do ls; done",
        "__caliban_cwd=pwn",
        "for __caliban_cwd in pwn; do :; done",
    ]);
    free(&["printf '%s\\n' a > /dev/null", "printf '%5.2f%%name\\n' 1", "echo {} 2>/dev/null"]);
}

/// Bash takes what is assigned to them for arithmetic, and that can hold a command.
#[test]
fn variables_that_are_numbers_to_bash_are_not_set_freely() {
    held(&[
        "RANDOM='a[$(touch pwn)]'",
        "SRANDOM='a[$(touch pwn)]'",
        "OPTIND='a[$(touch pwn)]'",
        "HISTCMD='a[$(touch pwn)]'",
        "SECONDS[0]='a[$(touch pwn)]'",
        "BASHPID+='a[$(touch pwn)]'",
        "for RANDOM in 'a[$(touch pwn)]'; do :; done",
        "export OPTIND='a[$(touch pwn)]'",
        // A translation can hold a substitution.
        "TEXTDOMAINDIR=$PWD; TEXTDOMAIN=x; y=$\"hi\"",
        "y=$\"hi\"",
        // In such a locale the next line reads otherwise.
        "LC_ALL=ja_JP.SJIS\necho 'ü\\'",
        "POSIXLY_CORRECT=1",
    ]);
    free(&["LC_ALL=C ls", "LANG=C.UTF-8 sort notes.txt"]);
}

#[test]
fn what_holds_git_back_is_not_taken_away() {
    held(&[
        "cd src && env -u GIT_CONFIG_COUNT git status",
        "cd src && env -i git status",
        "cd src && env - git status",
        "unset GIT_CONFIG_COUNT; git status",
        "export -n GIT_CONFIG_COUNT; git status",
    ]);
    free(&["env -u NO_COLOR ls"]);
}

#[test]
fn nothing_outside_is_read_by_a_pattern_or_an_option() {
    let place = Place::new();
    let link = |to: &str, name: &str| std::os::unix::fs::symlink(to, place.root.join(name)).unwrap();
    link("/etc/hostname", "é");
    link("/etc/hostname", "[x]");
    link("/etc/hostname", "zlink");
    std::fs::create_dir(place.root.join("d1")).unwrap();
    std::fs::create_dir(place.root.join("d2")).unwrap();
    link("/etc/hostname", "d1/x");
    for mode in [Mode::Default, Mode::Plan] {
        let policy = place.policy(mode, &[]);
        let lines = [
            "cat /[[:alpha:]]tc/passwd",
            "cat /[[=e=]]tc/passwd",
            "cat /[[.e.]]tc/passwd",
            "cat /[!x]tc/passwd",
            "cat /[^x]tc/passwd",
            "cat ?",
            "cat [x]",
            "cat z[k-m]ink",
            "grep *",
        ];
        assert_eq!(wrong(&place, &policy, &lines, "ask"), Vec::<String>::new());
    }
    held(&[
        "printf '/etc/passwd\\0' | sort --files0-from=-",
        "printf '/etc/passwd\\0' | wc --files0-from=-",
        "wc --files0-from=notes.txt",
        "du --files0=notes.txt",
        "file -f notes.txt",
        "file --files-from=notes.txt",
        "file -m a:../../../etc/passwd notes.txt",
        "strings @notes.txt",
        "strings *",
        "md5sum -c notes.txt",
        "sha256sum --check notes.txt",
        "find -O3 /etc",
        "find -D tree /etc",
        "find -- /etc",
        "find -E /etc",
        "diff src .git",
        "diff -N src .git",
        "diff src main.rs",
        "diff --from-file=src notes.txt",
        "ls -RL",
        "ls -R --dereference",
    ]);
    // In a fence the system can be read, and nothing of the user's is there.
    let mut policy = place.policy(Mode::Default, &[]);
    policy.fencing = Fencing::Missing;
    let lines = [
        "diff --from-file=zlink notes.txt",
        "diff --to-file=zlink notes.txt",
        "grep -rf/etc/passwd src",
        "grep -nfzlink notes.txt",
        "diff -N d1 d2",
        "diff d1 d2",
    ];
    assert_eq!(wrong(&place, &policy, &lines, "ask"), Vec::<String>::new());
    free(&[
        "find -name '*.rs'",
        "find -P . -type f",
        "wc -c notes.txt",
        "cut -c 1-5 notes.txt",
        "cat src/[lm]*.rs",
        "cat src/mai?.rs",
        "cat src/[[:lower:]]*.rs",
        "diff -u --color=never src/main.rs src/lib.rs",
        "grep -rn --include=*.rs main src",
        "file notes.txt",
        "strings -n 8 notes.txt",
        "sha256sum notes.txt",
    ]);
}

#[test]
fn a_pattern_that_may_be_an_option_is_none_of_the_operands() {
    held(&[
        "sort notes.txt -o[x]",
        "git diff --output=x?",
        "git log --output=?",
        "sort notes.txt --outpu[t]=x",
        "uniq n*",
        "tree -o?",
        "grep --file=* notes.txt",
    ]);
    free(&["grep -rn --include=*.rs main src", "grep -r --exclude-dir=.g* x src", "rg --glob=*.rs main"]);
}

/// `--` is the value of the option before it, if that takes one.
#[test]
fn two_dashes_do_not_hide_an_option() {
    held(&[
        "sort --random-source -- -o pwn notes.txt",
        "git log --author -- --output=pwn",
        "rg -g -- --pre=./x main",
    ]);
    free(&["git diff -- src", "grep -- -x notes.txt", "git log --oneline -- src/main.rs"]);
}

#[test]
fn a_function_runs_where_it_is_called() {
    let place = Place::new();
    let hooks = place.root.join(".git/hooks");
    let policy = place.policy(Mode::AcceptEdits, &["deny Read(src/.env)"]);
    let lines = [
        format!("pwd() {{ echo evil > pre-commit; }}; cd {}; pwd", hooks.display()),
        "f() { echo evil > x; } ; f".to_owned(),
        "f() { ls; } > x; f".to_owned(),
        "function f { echo evil > x; }; f".to_owned(),
    ];
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    assert_eq!(wrong(&place, &policy, &lines, "ask"), Vec::<String>::new());
    free(&["f() { echo hi; }", "pwd() { date; }; pwd; pwd"]);
}

/// A chain may end with any of its commands.
#[test]
fn every_directory_in_which_a_chain_may_end_is_judged() {
    let place = Place::new();
    std::os::unix::fs::symlink("/etc/hostname", place.root.join("src/link")).unwrap();
    for mode in [Mode::Default, Mode::Plan] {
        let lines = [
            "cd src || cd x; cat link",
            "cd src && cd none; cat link",
            "cd src && cd none || cat link",
            "if cd src && cd none; then :; fi; cat link",
            "! cd src || cd x && cat link",
            "cd src; cd none; cat link",
        ];
        assert_eq!(wrong(&place, &place.policy(mode, &[]), &lines, "ask"), Vec::<String>::new());
    }
    let mut policy = place.policy(Mode::Default, &["Bash(source *)"]);
    policy.fencing = Fencing::Missing;
    assert_eq!(wrong(&place, &policy, &["source x.sh; cat main.rs"], "ask"), Vec::<String>::new());
    free(&["cd src && cat main.rs && cd .. && cat notes.txt", "cd src && ls || true"]);
}

#[test]
fn a_denied_sub_command_is_not_hidden_by_options() {
    let place = Place::new();
    let rules = [
        "deny Bash(git push *)",
        "deny Bash(npm publish *)",
        "deny Bash(kubectl delete pod *)",
        "deny Bash(git reset --hard *)",
        "deny Bash(rm -rf *)",
    ];
    let policy = place.policy(Mode::Unattended, &rules);
    let denied = [
        "git push",
        "git -C x -c a=b push",
        "git --no-pager push",
        "git --attr-source=HEAD push",
        "git reset HEAD~1 --hard",
        "git reset -q --hard",
        "rm -r -f x",
        "rm -fr x",
        "rm -f -v -r x",
        "kubectl -n x delete pod y",
        "kubectl delete -n x pod y",
    ];
    assert_eq!(wrong(&place, &policy, &denied, "deny"), Vec::<String>::new());
    let asked = [
        "git --attr-source HEAD push",
        "git --list-cmds main push",
        "npm --loglevel silent publish",
        "npm --loglevel silent --tag x publish",
        "kubectl delete --odd x pod y",
        "git -c alias.p=push p",
        "git -c ALIAS.p=push p",
        "git --config-env=alias.p=X p",
        "git --config-env alias.p=X p",
    ];
    assert_eq!(wrong(&place, &policy, &asked, "ask"), Vec::<String>::new());
    let passed_on =
        ["uv run git push", "make-it-so /usr/bin/git push", "sudo A=1 B=2 C=3 D=4 E=5 F=6 G=7 git status"];
    assert_eq!(wrong(&place, &policy, &passed_on, "ask"), Vec::<String>::new());
    let run_by_others = [
        "sudo A=1 B=2 C=3 D=4 E=5 F=6 G=7 git push",
        "watch 'git push'",
        "script -c 'ls; git push' out",
        "su -c 'git push'",
        "env -i git push",
        "systemd-run git push",
        "let 'a[$(git push)]'",
        "read 'a[$(git push)]'",
        "bash -c -e 'git push'",
        "sh -c -c 'git push'",
    ];
    assert_eq!(wrong(&place, &policy, &run_by_others, "deny"), Vec::<String>::new());
    let free = [
        "git log --grep push",
        "echo git push",
        "watch 'git status'",
        "git --no-pager log push",
        "git -C push log",
        "git commit -m push",
        "git stash push",
        "npm run publish",
        "npm --silent run publish",
        "git reset --soft HEAD~1",
        "rm -f x",
        "git add -A && git commit -m 'reset --hard'",
    ];
    assert_eq!(wrong(&place, &policy, &free, "allow"), Vec::<String>::new());
}
