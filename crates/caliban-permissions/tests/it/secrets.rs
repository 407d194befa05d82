//! What a rule forbids to read is not read by another way.

use caliban_permissions::Mode;

use crate::place::{Place, short};

#[track_caller]
fn check(place: &Place, mode: Mode, rules: &[&str], table: &[(&str, &str)]) {
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

/// An index of git's, version 2, with these names.
fn index(names: &[&str]) -> Vec<u8> {
    let mut bytes = b"DIRC\0\0\0\x02".to_vec();
    bytes.extend(u32::try_from(names.len()).unwrap().to_be_bytes());
    for name in names {
        let start = bytes.len();
        bytes.extend([0; 60]);
        bytes.extend(u16::try_from(name.len()).unwrap().to_be_bytes());
        bytes.extend(name.as_bytes());
        bytes.resize(start + (62 + name.len()) / 8 * 8 + 8, 0);
    }
    bytes
}

#[test]
fn a_denied_file_is_not_read_under_another_spelling() {
    let place = Place::new();
    let table = [
        ("cat $PWD/.env", "deny"),
        ("cat \"$PWD\"/.e''nv", "deny"),
        ("cat \"${n:-.env}\"", "deny"),
        ("cat .{env,x}", "ask"),
        ("cat {.env,x}", "deny"),
        ("cat $x", "ask"),
        ("cat .e$x", "ask"),
        ("head -c 100 \"$f\"", "ask"),
        ("for f in .env; do cat $f; done", "ask"),
        ("cp \"$f\" y", "ask"),
        ("cat .e[[:lower:]]v src/.e[[:lower:]]v", "deny"),
        ("find . -type f -exec cat {} +", "ask"),
        ("ls -a | xargs cat", "ask"),
        ("git show HEAD:.env", "deny"),
        ("git show HEAD:src/.env", "deny"),
        ("git cat-file -p HEAD:./.env", "deny"),
        ("git show :.env", "deny"),
        ("git show $x:.env", "deny"),
        ("cat $PWD/.environment", "ask"),
        ("echo $x", "allow"),
        ("git commit -m \"$(date)\"", "allow"),
        ("cat notes.txt src/*.rs", "allow"),
        ("cat *", "allow"),
        ("cat .*", "allow"),
        ("echo $HOME/.envrc", "allow"),
    ];
    // `cat *` would read what `out` leads to, which is a directory.
    check(&place, Mode::Unattended, &["deny Read(.env)"], &table);
    check(&place, Mode::Unattended, &["deny Read(.env)"], &table);
}

#[test]
fn a_denied_file_is_not_read_from_a_directory_that_is_not_known() {
    let place = Place::new();
    let table = [
        ("f() { cat secret; }; cd sub; f", "deny"),
        ("cd $x; cat secret", "deny"),
        ("cd $x; cat s*", "ask"),
        ("cd $x; cat notes.txt", "allow"),
        ("cat secret", "allow"),
    ];
    check(&place, Mode::Unattended, &["deny Read(sub/secret)"], &table);
}

#[test]
fn a_file_that_is_not_to_be_edited_is_not_named_in_pieces() {
    let place = Place::new();
    let table = [
        ("rm $PWD/Cargo.lock", "ask"),
        ("sed -i s/a/b/ \"$x/Cargo.lock\"", "ask"),
        ("echo \"$x/Cargo.lock\"", "allow"),
        ("rm $PWD/x", "allow"),
    ];
    check(&place, Mode::Unattended, &["deny Edit(Cargo.lock)"], &table);
}

#[test]
fn a_rule_that_asks_about_a_file_is_asked_for_commands_too() {
    let place = Place::new();
    let table = [("cat src/.env", "ask"), ("cat $PWD/.env", "ask"), ("cat notes.txt", "allow")];
    check(&place, Mode::Unattended, &["ask Read(.env)"], &table);
}

#[test]
fn what_reads_a_whole_tree_asks_where_a_denied_file_is_in_it() {
    let place = Place::new();
    std::fs::create_dir_all(place.root.join("docs/deep")).unwrap();
    std::fs::write(place.root.join("docs/deep/a.md"), "x").unwrap();
    std::fs::write(place.root.join("docs/secret.pem"), "x").unwrap();
    let rules = ["deny Read(.env)", "deny Read(*.pem)"];
    check(
        &place,
        Mode::Unattended,
        &rules,
        &[
            ("grep -r SECRET .", "ask"),
            ("grep -r SECRET", "ask"),
            ("grep -rn SECRET src", "ask"),
            ("grep --recursive SECRET src", "ask"),
            ("grep -R SECRET src docs/deep", "ask"),
            ("rg SECRET docs", "ask"),
            ("rg -uu SECRET src", "ask"),
            ("rg --hidden SECRET src", "ask"),
            ("tar cf x.tar src", "ask"),
            ("tar czf - . | wc -c", "ask"),
            ("zip -r x.zip src", "ask"),
            ("cp -r src y", "ask"),
            ("cp -a src y", "ask"),
            ("rsync -a src/ y", "ask"),
            ("diff -r src docs", "ask"),
            ("grep -rn main docs/deep", "allow"),
            ("rg main src", "allow"),
            ("cp -r docs/deep y", "allow"),
            ("grep main src/main.rs", "allow"),
            ("ls -R", "allow"),
            ("cargo build", "allow"),
        ],
    );
    let plain = Place::new();
    std::fs::remove_file(plain.root.join("src/.env")).unwrap();
    check(
        &plain,
        Mode::Default,
        &["deny Read(.env)"],
        &[("grep -rn main src", "allow"), ("rg main", "allow"), ("grep -r x .", "allow")],
    );
}

#[test]
fn history_is_shown_only_of_paths_that_are_named() {
    let place = Place::new();
    let table = [
        ("git log -p", "ask"),
        ("git log --patch -3", "ask"),
        ("git log -u", "ask"),
        ("git log -S x -p", "ask"),
        ("git log -L1,5:src/.env", "deny"),
        ("git log --binary", "ask"),
        ("git log --remerge-diff", "ask"),
        ("git log --dd", "ask"),
        ("git log --pat", "ask"),
        ("git reflog --binary", "ask"),
        ("git diff-tree --binary HEAD~1 HEAD", "ask"),
        ("git show -s --binary", "ask"),
        ("git show --stat --binary", "ask"),
        ("git log -p -- src", "ask"),
        ("git log -p -- gone", "ask"),
        ("git log $ANY", "ask"),
        ("git show", "ask"),
        ("git show HEAD", "ask"),
        ("git diff HEAD~1", "ask"),
        ("git diff HEAD~1 -- .", "ask"),
        ("git diff HEAD~1 -- :/", "ask"),
        ("git diff HEAD~1 -- src", "ask"),
        ("git cat-file -p 0123456", "ask"),
        ("git stash show -p", "ask"),
        ("git stash list -p", "ask"),
        ("git reflog -p", "ask"),
        ("git grep SECRET", "ask"),
        ("git archive HEAD", "ask"),
        ("git format-patch -1", "ask"),
        ("git -C src show", "ask"),
        ("git --no-pager show", "ask"),
        ("git --git-dir=src log -p -- src/main.rs", "ask"),
        ("git stash list", "allow"),
        ("git log --oneline", "allow"),
        ("git log --stat", "allow"),
        ("git log --oneline --graph --all -n 5", "allow"),
        ("git log -5 --format=%h --since=yesterday", "allow"),
        ("git log -p -- src/main.rs", "allow"),
        ("git diff-tree -r --name-only HEAD", "allow"),
        ("git reflog", "allow"),
        ("git show --stat", "allow"),
        ("git show --name-only HEAD", "allow"),
        ("git diff --stat HEAD~1", "allow"),
        ("git diff HEAD~1 -- src/main.rs", "allow"),
        ("git show HEAD:src/main.rs", "allow"),
        ("git show HEAD -- src/main.rs", "allow"),
        ("git blame src/main.rs", "allow"),
        ("git status", "allow"),
        ("git cat-file -p HEAD:src/main.rs", "allow"),
        ("git push", "allow"),
    ];
    check(&place, Mode::Unattended, &["deny Read(.env)"], &table);
}

#[test]
fn a_diff_of_the_working_tree_asks_only_when_git_keeps_a_denied_file() {
    let place = Place::new();
    let put = |names: &[&str]| std::fs::write(place.root.join(".git/index"), index(names)).unwrap();
    let rules = ["deny Read(.env)"];
    let lines = |verdict| [("git diff", verdict), ("git diff -w", verdict)];
    // What the index has no longer may be in the last commit: `git rm --cached .env; git diff --cached`.
    let staged = [
        ("git diff --cached", "ask"),
        ("git diff -w --staged", "ask"),
        ("git diff --cached --stat", "allow"),
    ];
    // Nothing is kept yet.
    check(&place, Mode::Default, &rules, &lines("allow"));
    put(&["a", ".env.example", "src/lib.rs", "src/main.rs"]);
    check(&place, Mode::Default, &rules, &lines("allow"));
    check(&place, Mode::Default, &rules, &staged);
    check(&place, Mode::Default, &rules, &[("git diff --no-color", "allow")]);
    put(&["a", "src/.env", "src/main.rs"]);
    check(&place, Mode::Default, &rules, &lines("ask"));
    check(
        &place,
        Mode::Default,
        &rules,
        &[("git diff -- src/main.rs", "allow"), ("git diff src/main.rs", "ask")],
    );
    std::fs::write(place.root.join(".git/index"), "DIRC\0\0\0\x04nonsense").unwrap();
    check(&place, Mode::Default, &rules, &lines("ask"));
}

#[test]
fn a_tree_is_what_is_named_behind_the_pattern() {
    let place = Place::new();
    let table = [
        ("grep -r -e x .git", "allow"),
        ("grep -r x .git", "allow"),
        ("grep -r x", "ask"),
        ("grep -r -e x src", "ask"),
        ("grep --color x notes.txt", "allow"),
    ];
    check(&place, Mode::Unattended, &["deny Read(.env)"], &table);
}
