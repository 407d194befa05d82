//! Files: patterns, links, protected places.

use caliban_permissions::{Mode, normalise, resolve};

use crate::place::{Place, read, short, write};

/// `r path` or `w path`; the path from the project root, `~` for the home directory.
#[track_caller]
fn check(mode: Mode, rules: &[&str], table: &[(&str, &str)]) {
    let place = Place::new();
    let policy = place.policy(mode, rules);
    let wrong: Vec<String> = table
        .iter()
        .filter_map(|(what, expected)| {
            let (kind, path) = what.split_once(' ').unwrap();
            let path = match path.strip_prefix("~/") {
                Some(rest) => place.home.join(rest),
                None => place.at(path),
            };
            let (tool, access) = if kind == "r" { ("Read", read(path)) } else { ("Write", write(path)) };
            let verdict = policy.decide(tool, &[access]);
            (short(&verdict) != *expected).then(|| format!("{what}: expected {expected}, got {verdict:?}"))
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn without_rules_the_project_can_be_read() {
    check(
        Mode::Default,
        &[],
        &[
            ("r src/main.rs", "allow"),
            ("r new/file", "allow"),
            ("r src/../notes.txt", "allow"),
            ("r ../home/notes/a.md", "ask"),
            ("r /etc/passwd", "ask"),
            ("r .git/config", "allow"),
            ("w src/main.rs", "ask"),
            ("w ~/x", "ask"),
        ],
    );
    check(
        Mode::Plan,
        &["Edit"],
        &[("r src/main.rs", "allow"), ("w src/main.rs", "deny"), ("r /etc/passwd", "ask")],
    );
    check(
        Mode::Unattended,
        &["deny Read(.env)"],
        &[("w ~/.bashrc", "allow"), ("r a/.env", "deny"), ("w .git/config", "allow")],
    );
}

#[test]
fn a07_a_link_is_where_it_leads() {
    check(
        Mode::AcceptEdits,
        &["Read(src/**)", "Read(out/**)"],
        &[
            ("r out/.ssh/id", "ask"),
            ("r out/../home/.ssh/id", "ask"),
            ("w out/x", "ask"),
            ("w out/../root/notes.txt", "allow"),
            ("w dangling", "ask"),
            ("w src/main.rs", "allow"),
            ("w src/new/deep/file", "allow"),
        ],
    );
    check(
        Mode::AcceptEdits,
        &["deny Read(~/.ssh/**)"],
        &[("r out/.ssh/id", "deny"), ("r out/.SSH/x", "ask")],
    );
    check(Mode::Default, &["Edit(~/notes/**)"], &[("w out/notes/a.md", "ask"), ("w ~/notes/a.md", "allow")]);
    check(Mode::AcceptEdits, &["deny Edit(out)"], &[("w out/notes/a.md", "deny")]);
}

#[test]
fn links_are_followed_as_the_kernel_does() {
    let place = Place::new();
    let link = |target: &str, name: &str| std::os::unix::fs::symlink(target, place.root.join(name)).unwrap();
    link("src", "s");
    link("s/../notes.txt", "n");
    link("loop-b", "loop-a");
    link("loop-a", "loop-b");
    let root = |path: &str| place.root.join(path);
    assert_eq!(resolve(&root("s/main.rs")), Some(root("src/main.rs")));
    assert_eq!(resolve(&root("s/../notes.txt")), Some(root("notes.txt")));
    assert_eq!(resolve(&root("n")), Some(root("notes.txt")));
    assert_eq!(resolve(&root("out/../x")), Some(place.home.parent().unwrap().join("x")));
    assert_eq!(resolve(&root("dangling")), Some(place.home.join("made-later")));
    assert_eq!(resolve(&root("none/../x")), Some(root("x")));
    assert_eq!(resolve(&root("loop-a/x")), None);
    assert_eq!(normalise(&root("a/./b/../../c")), root("c"));
    let policy = place.policy(Mode::AcceptEdits, &["Edit"]);
    assert_eq!(short(&policy.decide("Write", &[write(root("loop-a"))])), "ask");
}

#[test]
fn protected_places_ask_unless_they_are_named() {
    let table = [
        "w .git/hooks/pre-commit",
        "w .GIT/config",
        "w sub/.git/config",
        "w .caliban/settings.toml",
        "w .claude/settings.json",
        "w .mcp.json",
        "w .bashrc",
        "w ~/.zshrc",
        "w ~/anything",
        "w .envrc",
        "w .gitmodules",
        "w .cargo/config.toml",
        "w sub/.cargo/config",
        "w .bash_aliases",
        "w .yarnrc.yml",
        "w .pnpmfile.cjs",
        "w .pre-commit-config.yaml",
        "w .gdbinit",
        "w .vimrc",
        "w .exrc",
        "w .devcontainer/devcontainer.json",
        "w .config/fish/config.fish",
        "w mise.toml",
        "w .tool-versions",
        "w .gnupg/gpg.conf",
    ];
    check(Mode::AcceptEdits, &["Edit", "*"], &table.map(|what| (what, "ask")));
    check(
        Mode::AcceptEdits,
        &["Edit(.caliban/**)", "Edit(**)"],
        &[
            ("w .caliban/settings.toml", "allow"),
            ("w .git/config", "ask"),
            ("w .gitignore", "allow"),
            ("w .github/x.yml", "allow"),
            ("w .cargo/audit.toml", "allow"),
            ("w .config/nextest.toml", "allow"),
            ("w docs/cargo/config.toml", "allow"),
        ],
    );
    check(
        Mode::AcceptEdits,
        &["Edit(.cargo/**)", "Edit(.config/fish/config.fish)", "Edit(src/**)"],
        &[
            ("w .cargo/config.toml", "allow"),
            ("w .config/fish/config.fish", "allow"),
            ("w src/.cargo/config.toml", "ask"),
        ],
    );
    check(
        Mode::Default,
        &["Write(.mcp.json)"],
        &[("w .mcp.json", "allow"), ("w sub/.mcp.json", "allow"), ("w x", "ask")],
    );
}

#[test]
fn patterns_are_read_like_gitignore() {
    check(
        Mode::Default,
        &[
            "Edit(src/**)",
            "Edit(*.md)",
            "Edit(build/)",
            "Edit(./top.txt)",
            "Edit(a?c)",
            "Edit(~/notes/*.md)",
            "Edit(//tmp/x/**)",
            "Edit(/tmp/y)",
        ],
        &[
            ("w src/a", "allow"),
            ("w src/a/b/c", "allow"),
            ("w srcx/a", "ask"),
            ("w lib/src/a", "ask"),
            ("w deep/down/x.md", "allow"),
            ("w x.mdx", "ask"),
            ("w build/x/y", "allow"),
            ("w sub/build/x", "allow"),
            ("w top.txt", "allow"),
            ("w sub/top.txt", "ask"),
            ("w abc", "allow"),
            ("w a/c", "ask"),
            ("w ~/notes/a.md", "allow"),
            ("w ~/notes/sub/a.md", "ask"),
            ("w /tmp/x/deep/file", "allow"),
            ("w /tmp/y", "allow"),
            ("w /tmp/y/below", "allow"),
            ("w tmp/y", "ask"),
        ],
    );
    // As Claude Code means a single slash: a rule that forbids covers both readings.
    check(Mode::AcceptEdits, &["deny Edit(/src/**)"], &[("w src/main.rs", "deny"), ("w notes.txt", "allow")]);
    check(Mode::AcceptEdits, &["deny Read(secret)"], &[("r a/secret/b", "deny"), ("w secret", "deny")]);
}

#[test]
fn read_rules_cover_glob_and_grep_and_edit_rules_cover_write() {
    let place = Place::new();
    let policy = place.policy(Mode::Default, &["Read(~/notes/**)", "deny Grep", "Write(src/**)"]);
    let note = read(place.home.join("notes/a.md"));
    assert_eq!(short(&policy.decide("Glob", std::slice::from_ref(&note))), "allow");
    assert_eq!(short(&policy.decide("Grep", &[note])), "deny");
    assert_eq!(short(&policy.decide("Edit", &[write(place.root.join("src/x"))])), "allow");
    let both = [read(place.root.join("notes.txt")), write(place.root.join("notes.txt"))];
    assert_eq!(short(&policy.decide("Edit", &both)), "ask");
}

#[test]
fn extra_directories_and_a_worktree_count_as_inside() {
    let place = Place::new();
    let mut policy = place.policy(Mode::AcceptEdits, &[]);
    policy.extra_dirs = vec![place.home.join("notes")];
    let verdict = |policy: &caliban_permissions::Policy, path: &str| {
        short(&policy.decide("Write", &[write(place.home.join(path))]))
    };
    assert_eq!((verdict(&policy, "notes/a.md"), verdict(&policy, "other")), ("allow", "ask"));
    policy.read_dirs = vec![place.home.join("outputs")];
    assert_eq!(verdict(&policy, "outputs/bash-1.txt"), "ask");
    assert_eq!(short(&policy.decide("Read", &[read(place.home.join("outputs/bash-1.txt"))])), "allow");
    policy.worktree = Some(place.home.join("tree"));
    assert_eq!((verdict(&policy, "tree/src/a.rs"), verdict(&policy, "other")), ("allow", "ask"));
    assert_eq!(short(&policy.decide("Write", &[write(place.root.join("src/main.rs"))])), "ask");
    assert_eq!(short(&policy.decide("Read", &[read(place.root.join("src/main.rs"))])), "allow");
    crate::place::add(&mut policy, "deny Edit(src/**)");
    assert_eq!(verdict(&policy, "tree/src/a.rs"), "deny");
}

#[test]
fn a_worktree_in_a_protected_place_protects_its_own() {
    let place = Place::new();
    let tree = place.home.join(".caliban/worktrees/x");
    std::fs::create_dir_all(&tree).unwrap();
    let rule = format!("Edit(/{}/**)", tree.display());
    let mut policy = place.policy(Mode::Default, &[&rule, "Edit(~/.caliban/worktrees/x/.claude/**)"]);
    policy.worktree = Some(tree.clone());
    let verdict = |path: &str| short(&policy.decide("Write", &[write(tree.join(path))]));
    let verdicts = ["src/a.rs", ".caliban/settings.toml", ".git", ".claude/x", "../y/src/a.rs"].map(verdict);
    assert_eq!(verdicts, ["allow", "ask", "ask", "allow", "ask"]);
}
