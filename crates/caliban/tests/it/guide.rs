//! Every command that README.md and the guides show is run here, so that the pages stay true.
//!
//! A ```` ```console ```` block has commands (`$ …`) with their output: they run in order, in one environment per page, and
//! the output is compared (`guide/compare.rs` says how). A ```` ```sh ```` block has commands without output: each must
//! end with 0. What cannot run is listed in [`NOT_RUN`] with the reason. Other blocks are not commands; one with
//! ` file=NAME` behind its language is a file, which is written into the project when the page comes to it.

mod compare;
mod page;
mod world;

use std::path::{Path, PathBuf};

use page::{Block, Kind};
use world::World;

/// Blocks that no test can run: the page, the first line of the block, and why.
const NOT_RUN: [(&str, &str, &str); 17] = [
    ("README.md", "cargo run --release -- demo", "builds the whole program; `demo.rs` runs the demo"),
    ("README.md", "cargo install --locked --path crates/caliban", "installs programs"),
    ("README.md", "caliban    ", "needs a person at a terminal, and an editor"),
    ("README.md", "caliban dashboard", "serves until it is ended; tests/it/dashboard.rs starts it"),
    ("getting-started.md", "git clone https://github.com/caliban-dev/caliban", "needs the network"),
    ("getting-started.md", "export ANTHROPIC_API_KEY=", "the page has its model from here on; see `World`"),
    ("getting-started.md", "ollama serve &", "starts a server that is not ours"),
    ("agent-view.md", "caliban agents ", "needs a person at a terminal; tests/it/agent_view.rs is one"),
    ("terminal.md", "caliban ", "needs a person at a terminal; tests/it/screen.rs is one"),
    ("models.md", "caliban --provider ollama", "needs those providers"),
    ("models.md", "ANTHROPIC_BASE_URL=", "needs those providers"),
    ("dashboard.md", "$ caliban dashboard", "serves until it is ended; tests/it/dashboard.rs starts it"),
    (
        "dashboard.md",
        "caliban dashboard --no-open",
        "leaves a server behind when it fails; tests/it/dashboard.rs asks it",
    ),
    ("dashboard.md", "caliban dashboard --host", "needs certificates"),
    ("gateway.md", "caliban gateway run -- claude", "needs claude and codex"),
    ("gateway.md", "caliban gateway  ", "serves until it is ended; tests/it/gateway.rs starts it"),
    (
        "team-in-tmux.md",
        "",
        "needs coding agents in tmux panes; crates/cafleet/tests/it/team_guide.rs runs the page",
    ),
];

/// Each page has a test of its own, so that they run side by side.
macro_rules! pages {
    ($($test:ident: $page:literal,)+) => {
        const PAGES: &[&str] = &[$($page),+];
        $(#[test]
        fn $test() {
            follow($page);
        })+
    };
}

pages! {
    the_readme_shows_what_happens: "README.md",
    getting_started_shows_what_happens: "getting-started.md",
    the_fleet_guide_shows_what_happens: "fleet.md",
    the_headless_guide_shows_what_happens: "headless.md",
    the_hooks_guide_shows_what_happens: "hooks.md",
    the_models_guide_shows_what_happens: "models.md",
    the_permissions_guide_shows_what_happens: "permissions.md",
    the_sandbox_guide_shows_what_happens: "sandbox.md",
    the_sessions_guide_shows_what_happens: "sessions.md",
    the_settings_guide_shows_what_happens: "settings.md",
    the_budgets_guide_shows_what_happens: "budgets.md",
    the_gateway_guide_shows_what_happens: "gateway.md",
    the_schedules_guide_shows_what_happens: "schedules.md",
    the_sub_agents_guide_shows_what_happens: "sub-agents.md",
    the_worktrees_guide_shows_what_happens: "worktrees.md",
    the_background_agents_guide_shows_what_happens: "background-agents.md",
    the_terminal_guide_shows_what_happens: "terminal.md",
    the_agent_view_guide_shows_what_happens: "agent-view.md",
    the_broker_guide_shows_what_happens: "broker.md",
    the_tools_guide_shows_what_happens: "tools.md",
    coming_from_claude_code_shows_what_happens: "from-claude-code.md",
    the_dashboard_guide_shows_what_happens: "dashboard.md",
    the_monitoring_guide_shows_what_happens: "monitoring.md",
    the_team_guide_is_run_with_panes: "team-in-tmux.md",
}

/// Runs what a page shows, and panics with every command that did something else.
fn follow(page: &str) {
    let blocks = page::blocks(&read(page));
    let mut world = World::new(page);
    let mut wrong = Vec::new();
    for block in &blocks {
        if !block.is_run() || skipped(page, block) {
            world.pass(block);
            continue;
        }
        for step in &block.steps {
            wrong.extend(world.follow(block.kind, step));
        }
    }
    assert!(wrong.is_empty(), "{page} is not true any more:\n\n{}", wrong.join("\n\n"));
}

fn skipped(page: &str, block: &Block) -> bool {
    NOT_RUN.iter().any(|(at, first, _)| *at == page && block.is_run() && block.text.starts_with(first))
}

#[test]
fn every_guide_is_run_and_nothing_is_left_out_in_vain() {
    let mut found: Vec<String> = std::fs::read_dir(root().join("docs/guide"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    found.push("README.md".to_owned());
    let mut known: Vec<&str> = PAGES.to_vec();
    found.sort_unstable();
    known.sort_unstable();
    assert_eq!(known, found);
    for (page, first, why) in NOT_RUN {
        let blocks = page::blocks(&read(page));
        assert!(blocks.iter().any(|block| skipped(page, block)), "{page} has no block {first:?} ({why})");
    }
}

/// A guide is read in five minutes; details go to docs/reference. The list of all settings is as long as it has to be.
#[test]
fn guides_are_short() {
    let guides = PAGES.iter().filter(|page| !["README.md", "settings.md"].contains(*page));
    let long: Vec<(&str, usize)> =
        guides.map(|page| (*page, read(page).lines().count())).filter(|(_, lines)| *lines >= 120).collect();
    assert_eq!(long, []);
}

/// Commands are not hidden in blocks that are not run.
#[test]
fn commands_stand_in_blocks_that_are_run() {
    for page in PAGES {
        for block in page::blocks(&read(page)) {
            let first = block.text.lines().next().unwrap_or_default();
            match block.kind {
                Kind::Console => {
                    assert!(first.starts_with("$ "), "{page}: a console block begins with {first:?}")
                }
                Kind::Shell => {}
                Kind::Other => assert!(
                    !["$ ", "caliban ", "cafleet "].iter().any(|command| first.starts_with(command)),
                    "{page}: {first:?} is a command; its block should be `console` or `sh`"
                ),
            }
        }
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(page: &str) -> String {
    let path = if page == "README.md" { root().join(page) } else { root().join("docs/guide").join(page) };
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
