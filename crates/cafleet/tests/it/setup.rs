//! `setup`: skills and rules for claude and codex, installed without taking anything away from anybody.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::world::{Said, World};

/// A world with the directories of both programs, and a project that both trust.
fn world() -> World {
    let world = World::new();
    fs::create_dir_all(world.path("home/.claude")).expect("mkdir");
    fs::create_dir_all(world.path("home/.codex")).expect("mkdir");
    // The commands run in the world's own directory.
    let here = world.path("").canonicalize().expect("path");
    let here = here.to_str().expect("text").trim_end_matches('/').to_owned();
    write(
        &world.path("home/.claude.json"),
        &json!({"projects": {&here: {"hasTrustDialogAccepted": true}}}).to_string(),
    );
    write(
        &world.path("home/.codex/config.toml"),
        &format!("[projects.\"{here}\"]\ntrust_level = \"trusted\"\n"),
    );
    world
}

fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().expect("parent")).expect("mkdir");
    fs::write(path, text).expect("write");
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The states of everything, by what it is.
fn states(world: &World, args: &[&str]) -> Vec<String> {
    let report = world.json(&[&["--json", "setup"], args].concat());
    let word = |item: &Value| {
        let done = item["result"].as_str().or(item["state"].as_str()).expect("state");
        format!(
            "{} {}: {done}",
            item["client"].as_str().expect("client"),
            item["what"].as_str().expect("what")
        )
    };
    report["items"].as_array().expect("items").iter().map(word).collect()
}

fn files(world: &World) -> Vec<(PathBuf, String)> {
    fn walk(dir: &Path, found: &mut Vec<(PathBuf, String)>) {
        for entry in fs::read_dir(dir).expect("dir").flatten() {
            let path = entry.path();
            if path.is_dir() { walk(&path, found) } else { found.push((path.clone(), read(&path))) }
        }
    }
    let mut found = Vec::new();
    walk(&world.path("home"), &mut found);
    found.sort();
    found
}

#[test]
fn setup_installs_everything_once_and_check_changes_nothing() {
    let world = world();
    let before = files(&world);
    let missing = states(&world, &["--check"]);
    assert_eq!(
        missing,
        [
            "claude member skill: missing",
            "claude Director skill: missing",
            "claude permissions: missing",
            "codex member skill: missing",
            "codex Director skill: missing",
            "codex rules: missing",
        ]
    );
    assert_eq!(files(&world), before);
    let report = world.json(&["--json", "setup", "--check"]);
    assert_eq!(report["ok"], json!(false));
    // Without our rule codex runs cafleet in its sandbox, which cannot write the database.
    let rules: Vec<&str> =
        report["obstacles"].as_array().expect("list").iter().filter_map(|it| it["rule"].as_str()).collect();
    assert_eq!(
        rules,
        [
            "Bash(cafleet --session-id:*)",
            "sandbox_workspace_write.writable_roots",
            "sandbox_workspace_write.network_access"
        ]
    );
    assert!(states(&world, &[]).iter().all(|line| line.ends_with(": installed")));
    let installed = files(&world);
    assert!(states(&world, &[]).iter().all(|line| line.ends_with(": nothing")));
    assert_eq!(files(&world), installed);
    let said = world.run(&["setup", "--check"]);
    assert!(said.out.ends_with("\nLiteral calls of cafleet pass unasked.\n"), "{}", said.out);
    // What the skills are for.
    let skill = |name: &str| read(&world.path(&format!("home/.claude/skills/cafleet-{name}/SKILL.md")));
    for (name, words) in [
        (
            "member",
            &["message poll", "message ack", "--wait 300", "Never wait with `sleep`", "member exec"][..],
        ),
        (
            "director",
            &[
                "three beats",
                "member send-input",
                "member exec",
                "recovery tree",
                "session delete",
                "--wait 300",
            ],
        ),
    ] {
        let text = skill(name);
        assert!(text.starts_with(&format!("---\nname: cafleet-{name}\ndescription: ")), "{text}");
        for word in words {
            assert!(text.contains(word), "the {name} skill does not have {word}");
        }
    }
    assert!(
        read(&world.path("home/.codex/rules/cafleet.rules"))
            .contains("pattern = [\"cafleet\", \"--session-id\"]")
    );
}

#[test]
fn what_a_person_changed_is_left_alone_or_kept_as_a_copy() {
    let world = world();
    let mine =
        r#"{"model": "opus", "permissions": {"allow": ["Bash(ls:*)"], "deny": ["Read(.env)"]}, "x": [1]}"#;
    let settings = world.path("home/.claude/settings.json");
    write(&settings, mine);
    // Somebody else's skill of that name.
    let skill = world.path("home/.claude/skills/cafleet-member/SKILL.md");
    write(&skill, "my own\n");
    let text = world.run(&["setup", "--claude"]);
    assert!(
        text.out.contains(
            "updated; your version is kept as <dir>/home/.claude/skills/cafleet-member/SKILL.md.kept-1"
        ),
        "{}",
        text.out
    );
    assert!(
        text.out.contains("updated; your version is kept as <dir>/home/.claude/settings.json.kept-1"),
        "{}",
        text.out
    );
    assert_eq!(read(&skill.with_extension("md.kept-1")), "my own\n");
    assert_eq!(read(&settings.with_extension("json.kept-1")), mine);
    let now: Value = serde_json::from_str(&read(&settings)).expect("json");
    assert_eq!(
        now,
        json!({
            "model": "opus",
            "permissions": {
                "allow": ["Bash(ls:*)", "Bash(cafleet --session-id:*)", "Bash(cafleet doctor:*)", "Bash(cafleet session list:*)"],
                "deny": ["Read(.env)"],
                "ask": ["Bash(cafleet --session-id * member exec *)"],
            },
            "x": [1],
        })
    );
    // The present version with a line of one's own, before or behind our last line, stays.
    for changed in [read(&skill).replace("# A member", "# My member"), read(&skill) + "And be brief.\n"] {
        write(&skill, &changed);
        assert_eq!(states(&world, &["--claude"])[0], "claude member skill: left");
        assert_eq!(read(&skill), changed);
        assert_eq!(states(&world, &["--check", "--claude"])[0], "claude member skill: changed");
    }
    assert!(!skill.with_extension("md.kept-2").exists());
}

#[test]
fn an_old_skill_is_told_blocks_nothing_and_is_replaced() {
    let world = world();
    world.run(&["setup"]);
    // What an earlier program wrote: another text with its own hash.
    let skill = world.path("home/.codex/skills/cafleet-director/SKILL.md");
    let hash = "dc51b8c96c2d745df3bd5590d990230a482fd247123599548e0632fdbf97fc22";
    write(&skill, &format!("ok\n<!-- written by cafleet setup; sha256 {hash} -->\n"));
    assert_eq!(states(&world, &["--check", "--codex"])[1], "codex Director skill: old");
    let made = world.run(&["session", "create", "--no-tmux"]);
    assert_eq!(
        made,
        Said {
            err: "note: the cafleet skills of codex are old; 'cafleet setup' brings them up to date\n"
                .to_owned(),
            ..crate::world::ok("<id>\n<id>")
        }
    );
    assert_eq!(states(&world, &["--codex"])[1], "codex Director skill: updated");
    assert_eq!(world.run(&["session", "create", "--no-tmux"]).err, "");
    assert!(!skill.with_extension("md.kept-1").exists());
}

#[test]
fn the_rule_that_denies_or_asks_is_named_with_its_file() {
    let world = world();
    world.run(&["setup"]);
    let obstacles = || {
        let report = world.json(&["--json", "setup", "--check"]);
        let word = |it: &Value| {
            let file = world.mask(it["file"].as_str().expect("file"));
            format!(
                "{} {}: {file}: {}",
                it["client"].as_str().expect("client"),
                it["effect"].as_str().expect("effect"),
                it["rule"].as_str().expect("rule")
            )
        };
        report["obstacles"].as_array().expect("list").iter().map(word).collect::<Vec<_>>()
    };
    assert_eq!(obstacles(), Vec::<String>::new());
    write(
        &world.path(".claude/settings.json"),
        r#"{"permissions": {"deny": ["Bash(cafleet *)", "Bash(rm:*)"]}}"#,
    );
    write(
        &world.path(".claude/settings.local.json"),
        r#"{"permissions": {"ask": ["Bash(* message send *)"]}, "sandbox": {"enabled": true}}"#,
    );
    write(
        &world.path("home/.codex/rules/default.rules"),
        "prefix_rule(\n  pattern = [\"cafleet\"],\n  decision = \"prompt\",\n)\n",
    );
    assert_eq!(
        obstacles(),
        [
            "claude denies: <dir>/.claude/settings.json: Bash(cafleet *)",
            "claude asks: <dir>/.claude/settings.local.json: Bash(* message send *)",
            "claude denies: <dir>/.claude/settings.local.json: sandbox.enabled",
            "codex asks: <dir>/home/.codex/rules/default.rules: prefix_rule(pattern = [\"cafleet\"], decision = \"prompt\")",
        ]
    );
    // Setup keeps cafleet out of the user's own sandbox.
    fs::remove_dir_all(world.path(".claude")).expect("remove");
    fs::remove_file(world.path("home/.codex/rules/default.rules")).expect("remove");
    write(&world.path("home/.claude/settings.json"), r#"{"sandbox": {"enabled": true}}"#);
    assert_eq!(obstacles().len(), 2);
    world.run(&["setup"]);
    assert_eq!(obstacles(), Vec::<String>::new());
    // Nobody trusts this directory.
    fs::remove_file(world.path("home/.codex/config.toml")).expect("remove");
    write(&world.path("home/.claude.json"), "{}");
    let asks = obstacles();
    assert!(
        asks.len() == 2 && asks[0].starts_with("claude asks: <dir>/home/.claude.json: projects["),
        "{asks:?}"
    );
    assert!(asks[1].starts_with("codex asks: <dir>/home/.codex/config.toml: [projects."), "{asks:?}");
}

#[test]
fn setup_goes_where_the_programs_look_and_nowhere_else() {
    let mut world = World::new();
    let nobody = world.run(&["setup"]);
    assert_eq!((nobody.code, nobody.out.as_str()), (1, ""));
    assert_eq!(
        nobody.err,
        "Error: neither claude nor codex was found on this machine\nhint: 'cafleet setup --claude' or 'cafleet setup --codex' \
         installs the files anyway\n"
    );
    world.set("CLAUDE_CONFIG_DIR", world.path("c").to_str().expect("path"));
    world.set("CODEX_HOME", world.path("x").to_str().expect("path"));
    assert_eq!(states(&world, &["--claude", "--codex"]).len(), 6);
    assert!(world.path("c/skills/cafleet-director/SKILL.md").is_file());
    assert!(world.path("c/settings.json").is_file());
    assert!(world.path("x/rules/cafleet.rules").is_file());
    assert!(!world.path("home").exists());
    // A settings file with comments is the user's: it is not written.
    let settings = world.path("c/settings.json");
    write(&settings, "{ // mine\n}");
    let said = world.run(&["setup", "--claude"]);
    assert_eq!(said.code, 1);
    assert!(
        said.err.starts_with("Error: cannot set up <dir>/c/settings.json: it is not plain JSON: "),
        "{}",
        said.err
    );
    assert_eq!(read(&settings), "{ // mine\n}");
}

#[test]
fn m11_doctor_says_what_is_missing_beside_its_pane() {
    let tmux = crate::panes::Tmux::start();
    let world = &tmux.world;
    fs::create_dir_all(world.path("home/.claude")).expect("mkdir");
    let said = world.run(&["doctor"]);
    assert_eq!((said.code, said.out.lines().count()), (0, 5));
    assert!(
        said.err.contains(
            "note: claude: member skill missing: <dir>/home/.claude/skills/cafleet-member/SKILL.md; 'cafleet setup' installs it\n"
        ),
        "{}",
        said.err
    );
    assert!(
        said.err
            .contains("note: claude asks: <dir>/home/.claude/settings.json: Bash(cafleet --session-id:*) (")
    );
    let report = world.json(&["--json", "doctor"]);
    assert_eq!(report["setup"]["items"][0]["state"], json!("missing"));
    world.run(&["setup"]);
    assert_eq!(world.run(&["doctor"]).err, "");
}
