//! `caliban config`: sources, mistakes with their position, secrets that stay hidden.

use testkit::Env;

/// The environment's own directories as `~`, so that whole outputs can be compared.
fn plain(env: &Env, text: &str) -> String {
    text.replace(&env.root().display().to_string(), "~")
}

#[test]
fn show_names_the_source_of_every_value() {
    let mut env = Env::new();
    let repo = env.repo();
    env.write(
        env.config().join("caliban/settings.toml"),
        "effort = \"high\"\n\n[permissions]\nallow = [\"Bash(git *)\"]\n\n[providers.openrouter]\napi_key = \"canary\"\n",
    );
    env.write(
        repo.join(".caliban/settings.toml"),
        "limits.max_turns = 50\n\n[[hooks.Stop]]\ncommand = \"make check\"\n\n[permissions]\nallow = [\"Edit(src/**)\"]\n",
    );
    env.run_in(&repo, ["trust"]).ok();
    env.set("ANTHROPIC_API_KEY", "canary").set("CALIBAN_MODEL", "claude-x");
    let shown = env.run_in(&repo, ["config", "show", "--allow", "Read", "--permission-mode", "plan"]).ok();
    assert_eq!(shown.stderr, "");
    let expected = r#"
provider = "anthropic"                                        # environment ANTHROPIC_API_KEY
model = "claude-x"                                            # environment CALIBAN_MODEL
effort = "high"                                               # ~/config/caliban/settings.toml:1
sub_agents = true                                             # default
providers.anthropic.base_url = "https://api.anthropic.com/v1" # default
providers.anthropic.api_key = "set"                           # environment ANTHROPIC_API_KEY
providers.openrouter.api_key = "set"                          # ~/config/caliban/settings.toml:7
limits.max_turns = 50                                         # ~/repo/.caliban/settings.toml:1
budget.on_limit = "stop"                                      # default
permissions.mode = "plan"                                     # flag --permission-mode
permissions.allow[0] = "Bash(git *)"                          # ~/config/caliban/settings.toml:4
permissions.allow[1] = "Edit(src/**)"                         # ~/repo/.caliban/settings.toml:7
permissions.allow[2] = "Read"                                 # flag --allow
git_programs = "ask"                                          # default
fence.network = "off"                                         # default
fence.hooks = "none"                                          # default
fence.mcp = "none"                                            # default
fence.setup = "none"                                          # default
fence.notify = "none"                                         # default
hooks.Stop[0] = { command = "make check", timeout = 60 }      # ~/repo/.caliban/settings.toml:3
context.max_bytes = 32768                                     # default
context.files = ["AGENTS.md", "CLAUDE.md", ".claude/CLAUDE.md", "CLAUDE.local.md"]                    # default
web.allow_private = false                                     # default
bash.timeout_ms = 120000                                      # default
bash.job_wait_seconds = 120                                   # default
worktrees.keep = false                                        # default
worktrees.setup_timeout = 600                                 # default
background_agents.max_agents = 3                              # default
background_agents.per_agent_budget = 50000                    # default
background_agents.global_budget = 200000                      # default
background_agents.isolation = "none"                          # default
fleet.max_running = 8                                         # default
fleet.max_by_model = 16                                       # default
fleet.pids_max = 8192                                         # default
fleet.disk_max = "64 GB"                                      # default
fleet.quiet_hours = ""                                        # default
fleet.isolation = "worktree"                                  # default
fleet.grace_seconds = 5                                       # default
fleet.idle_minutes = 10                                       # default
fleet.sweep = true                                            # default
fleet.archive_days = 30                                       # default
fleet.archive_mb = 1024                                       # default
ui.start = "session"                                          # default
ui.theme = "auto"                                             # default
ui.alt_screen = true                                          # default
ui.screen_reader = false                                      # default
ui.mouse = true                                               # default
ui.wheel_rows = 3                                             # default
ui.copy_on_select = false                                     # default
ui.on_leave = "ask"                                           # default
ui.notify = "auto"                                            # default
retry.attempts = 5                                            # default
retry.outage_seconds = 600                                    # default
retry.print_outage_seconds = 15                               # default
retry.patience_seconds = 1800                                 # default
claude.user_settings = false                                  # default
"#;
    let squeezed = |text: &str| {
        text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect::<Vec<_>>()
    };
    assert_eq!(squeezed(&plain(&env, &shown.stdout)), squeezed(expected.trim_start()));
}

#[test]
fn show_as_json_has_the_same_rows() {
    let env = Env::new();
    env.write(env.config().join("caliban/settings.toml"), "provider = \"scripted\"\n");
    let rows: Vec<serde_json::Value> = env.run(["config", "show", "--json"]).ok().json();
    let first = serde_json::json!({
        "key": "provider", "value": "scripted",
        "source": format!("{}:1", env.config().join("caliban/settings.toml").display()),
    });
    assert_eq!(rows.first(), Some(&first));
    let all: Vec<serde_json::Value> = env.run(["config", "show", "--json", "--all"]).ok().json();
    assert!(all.len() > rows.len());
    let unset = serde_json::json!({"key": "max_output_tokens", "value": null, "source": "default"});
    assert!(all.contains(&unset), "{all:?}");
}

#[test]
fn path_tells_which_files_are_read() {
    let env = Env::new();
    let repo = env.repo();
    env.write(repo.join(".mcp.json"), "{}");
    let said = env.run_in(&repo, ["config", "path"]).ok();
    let own = format!("caliban/repos/{}/settings.toml", caliban_contract::repo_hash(&repo));
    assert_eq!(
        plain(&env, &said.stdout),
        format!(
            "~/config/caliban/settings.toml  # absent\n\
             ~/repo/.mcp.json  # not trusted\n\
             ~/repo/.caliban/settings.toml  # absent\n\
             ~/repo/.caliban/settings.local.toml  # absent\n\
             ~/config/{own}  # absent\n"
        )
    );
}

#[test]
fn a_mistake_is_shown_with_its_position_and_a_hint() {
    let env = Env::new();
    env.write(env.config().join("caliban/settings.toml"), "[limits]\nmax_turn = 3\n");
    let failed = env.run(["config", "show"]).expect_code(1);
    assert_eq!(
        (failed.stdout.as_str(), plain(&env, &failed.stderr).as_str()),
        (
            "",
            "error: ~/config/caliban/settings.toml:2:1: unknown key `max_turn`\nhint: did you mean `max_turns`?\n"
        )
    );
    env.write(env.config().join("caliban/settings.toml"), "model = \"x\"\neffort = [\n");
    let failed = env.run(["config", "show"]).expect_code(1);
    assert!(
        plain(&env, &failed.stderr).starts_with("error: ~/config/caliban/settings.toml:"),
        "{}",
        failed.stderr
    );
}

#[test]
fn without_a_home_the_words_say_what_to_set() {
    let mut env = Env::new();
    env.unset("HOME").unset("XDG_CONFIG_HOME").unset("XDG_DATA_HOME");
    let failed = env.run(["config", "show"]).expect_code(1);
    assert_eq!(
        failed.stderr,
        "error: neither HOME nor XDG_CONFIG_HOME is set, so there is no place for Caliban's files\n\
         hint: set HOME, or both XDG_CONFIG_HOME and XDG_DATA_HOME, to absolute paths\n"
    );
}

#[test]
fn a12_no_key_is_ever_shown() {
    let mut env = Env::new();
    for name in ["ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", "OPENROUTER_API_KEY"] {
        env.set(name, "canary-key");
    }
    for args in
        [&["config", "show", "--all"][..], &["config", "show", "--json", "--all"], &["config", "path"]]
    {
        let shown = env.run(args).ok();
        assert!(!(shown.stdout + &shown.stderr).contains("canary-key"), "{args:?}");
    }
}
