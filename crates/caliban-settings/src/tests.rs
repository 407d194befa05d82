//! The settings as a whole: layers, sources, errors with positions, and bytes that are no settings.

use std::{fs, path::Path};

use caliban_providers::ProviderKind;
use proptest::prelude::*;

use super::{
    provider::{Choice, ModelTarget, ProviderEndpoint},
    show::{SettingRow, rows},
    *,
};
use crate::trust::{RepoFiles, TrustStore};

/// A home and a repo of their own.
struct World {
    dir: tempfile::TempDir,
    vars: Vec<(String, String)>,
}

impl World {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("repo/.git")).unwrap();
        fs::create_dir_all(dir.path().join("home")).unwrap();
        let home = dir.path().canonicalize().unwrap().join("home").display().to_string();
        Self { dir, vars: vec![("HOME".into(), home)] }
    }

    fn root(&self) -> PathBuf {
        self.dir.path().canonicalize().unwrap()
    }

    fn repo(&self) -> PathBuf {
        self.root().join("repo")
    }

    fn user(&self, text: impl AsRef<[u8]>) -> PathBuf {
        self.write("home/.config/caliban/settings.toml", text)
    }

    fn write(&self, path: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.root().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    }

    fn set(&mut self, name: &str, value: &str) {
        self.vars.push((name.into(), value.into()));
    }

    fn environment(&self) -> Environment {
        self.vars.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect()
    }

    fn trust(&self) {
        let paths = self.environment().paths().unwrap();
        TrustStore::trust(&paths, &self.repo(), &RepoFiles::read(&paths, &self.repo()).unwrap()).unwrap();
    }

    fn load(&self) -> Result<Loaded, SettingsError> {
        self.load_with(Layer::default())
    }

    fn load_with(&self, flags: Layer) -> Result<Loaded, SettingsError> {
        load(&self.environment(), &self.repo(), flags)
    }

    /// The error as `(what is said, hint)`, with the world's directory cut off.
    fn error(&self) -> (String, Option<String>) {
        let error = self.load().unwrap_err();
        (error.to_string().replace(&format!("{}/", self.root().display()), ""), error.hint)
    }
}

fn flag(path: &[&str], value: impl Into<toml::Value>) -> Layer {
    let mut layer = Layer::default();
    layer.set(path, value, Source::Flag("--flag".into()));
    layer
}

#[test]
fn without_anything_every_value_is_its_default() {
    let loaded = World::new().load().unwrap();
    assert_eq!(loaded.settings, Settings::default());
    assert_eq!(loaded.policy().mode, caliban_permissions::Mode::Default);
    assert_eq!(loaded.notes, Vec::<String>::new());
    assert!(rows(&loaded, None).iter().all(|row| row.source == "default"));
}

#[test]
fn each_layer_wins_over_the_ones_below_it() {
    let mut world = World::new();
    let text = |turns| format!("model = 'm{turns}'\nlimits.max_turns = {turns}\n");
    let turns = |loaded: &Loaded| loaded.settings.limits.max_turns.get();
    world.user(text(1));
    assert_eq!(turns(&world.load().unwrap()), 1);
    world.write("repo/.caliban/settings.toml", text(2));
    world.trust();
    assert_eq!(turns(&world.load().unwrap()), 2);
    world.write("repo/.caliban/settings.local.toml", text(3));
    world.trust();
    assert_eq!(turns(&world.load().unwrap()), 3);
    let loaded = world.load_with(flag(&["limits", "max_turns"], 4)).unwrap();
    assert_eq!(turns(&loaded), 4);
    assert_eq!(loaded.source_of(&["limits", "max_turns"]), Source::Flag("--flag".into()));
    world.set("CALIBAN_MODEL", "from-environment");
    let loaded = world.load().unwrap();
    assert_eq!(loaded.settings.model.as_deref(), Some("from-environment"));
    assert_eq!(loaded.source_of(&["model"]), Source::Environment("CALIBAN_MODEL".into()));
    assert_eq!(
        loaded.source_of(&["limits", "max_turns"]),
        Source::File { path: world.repo().join(".caliban/settings.local.toml"), line: 2 }
    );
}

#[test]
fn lists_add_up_and_each_element_knows_its_source() {
    let world = World::new();
    let user =
        world.user("[permissions]\nallow = ['Read', 'Bash(ls)']\nadd_dirs = ['~/notes', 'docs', '/srv']\n");
    let repo = world.write(
        "repo/.caliban/settings.toml",
        "[[hooks.PreToolUse]]\ncommand = 'one'\n\n[permissions]\nallow = [\n  'Bash(make *)',\n]\nadd_dirs = ['../other']\n",
    );
    world.write(
        "repo/.caliban/settings.local.toml",
        "[[hooks.PreToolUse]]\ncommand = 'two'\nmatcher = 'Bash'\ntimeout = 5\n",
    );
    world.trust();
    let mut flags = Layer::default();
    flags.push(&["permissions", "allow"], "Edit", Source::Flag("--allow".into()));
    flags.push(&["permissions", "add_dirs"], "here", Source::Flag("--add-dir".into()));
    let loaded = world.load_with(flags).unwrap();
    assert_eq!(loaded.settings.permissions.allow, ["Read", "Bash(ls)", "Bash(make *)", "Edit"]);
    let home = world.root().join("home");
    assert_eq!(
        loaded.settings.permissions.add_dirs,
        [
            home.join("notes"),
            home.join("docs"),
            "/srv".into(),
            world.repo().join("../other"),
            world.repo().join("here")
        ]
    );
    let commands: Vec<_> =
        loaded.settings.hooks.pre_tool_use.iter().map(|hook| hook.command.as_str()).collect();
    assert_eq!(commands, ["one", "two"]);
    let sources: Vec<Source> =
        (0..4).map(|index| loaded.source_of(&["permissions", "allow", &index.to_string()])).collect();
    assert_eq!(
        sources,
        [
            Source::File { path: user.clone(), line: 2 },
            Source::File { path: user, line: 2 },
            Source::File { path: repo.clone(), line: 6 },
            Source::Flag("--allow".into()),
        ]
    );
    assert_eq!(loaded.source_of(&["hooks", "PreToolUse", "0"]), Source::File { path: repo, line: 1 });
}

#[test]
fn rows_show_values_with_their_sources_and_no_secret() {
    let mut world = World::new();
    world.user("[providers.openrouter]\napi_key = 'canary-file'\n[mcp.servers.x]\ncommand = 'x'\nenv = { A_TOKEN = 'canary-env' }\n");
    world.set("ANTHROPIC_API_KEY", "canary-variable");
    let loaded = world.load().unwrap();
    let choice = loaded.choose().unwrap();
    let rows: Vec<SettingRow> = rows(&loaded, Some(&choice)).into_iter().filter(SettingRow::is_set).collect();
    let text = serde_json::to_string(&rows).unwrap();
    assert!(!text.contains("canary"), "{text}");
    let row = |key: &str| {
        let row = rows.iter().find(|row| row.key == key).unwrap();
        let source = row.source.replace(&world.root().display().to_string(), "");
        (row.value.to_string(), source)
    };
    let file = |line| format!("/home/.config/caliban/settings.toml:{line}");
    assert_eq!(
        row("providers.anthropic.api_key"),
        ("\"set\"".into(), "environment ANTHROPIC_API_KEY".into())
    );
    assert_eq!(row("providers.openrouter.api_key"), ("\"set\"".into(), file(2)));
    assert_eq!(row("mcp.servers.x.env.A_TOKEN"), ("\"set\"".into(), file(5)));
    assert_eq!(row("provider"), ("\"anthropic\"".into(), "environment ANTHROPIC_API_KEY".into()));
    assert_eq!(row("model").1, "default");
    assert!(!format!("{loaded:?}").contains("canary"));
}

#[test]
fn errors_name_the_file_the_position_and_what_was_expected() {
    let cases: [(&str, &str, Option<&str>); 15] = [
        ("modle = 'x'\n", "1:1: unknown key `modle`", Some("did you mean `model`?")),
        ("\n[limits]\nmax_turn = 3\n", "3:1: unknown key `max_turn`", Some("did you mean `max_turns`?")),
        ("[limits]\nmax_turns = 'many'\n", "2:13: found \"many\", expected a whole number above 0", None),
        ("[limits]\nmax_turns = 0\n", "2:13: found 0, expected a whole number above 0", None),
        ("[limits]\nbudget_usd = -1\n", "2:14: found -1, expected an amount of dollars above 0", None),
        (
            "permissions.mode = 'plam'\n",
            "1:20: found `plam`, expected `default`, `accept-edits`, `never-ask`, `plan` or `unattended`",
            Some("did you mean `plan`?"),
        ),
        (
            "permissions.deny = [\n  'Bash(rm *)',\n  'Bash(',\n]\n",
            "3: rule `Bash(`: the parenthesis is not closed at character 6; expected `)`, for example `Bash(cargo test *)`",
            None,
        ),
        ("permissions = 3\n", "1:15: found 3, expected a table", None),
        ("permissions.allow = 'Read'\n", "1:21: found \"Read\", expected a list", None),
        (
            "[providers.anthropic]\nbase_url = 'nowhere'\n",
            "2:12: found `nowhere`, expected an address such as `https://api.example.org/v1`",
            None,
        ),
        ("[[hooks.PreToolUse]]\nmatcher = 'Bash'\n", "1:1: the key `command` is missing", None),
        ("[hooks]\nPreToolUs = []\n", "2:1: unknown key `PreToolUs`", Some("did you mean `PreToolUse`?")),
        ("model = \n", "1:9: string values must be quoted, expected literal string", None),
        ("model = 'a'\nmodel = 'b'\n", "2:1: duplicate key", None),
        (
            "mcp.servers.'a b'.command = 'x'\n",
            "1: found the server name `a b`, expected 1 to 32 letters, digits, `-` and single `_`",
            None,
        ),
    ];
    for (text, message, hint) in cases {
        let world = World::new();
        world.user(text);
        let expected = format!("home/.config/caliban/settings.toml:{message}");
        assert_eq!(world.error(), (expected, hint.map(str::to_owned)), "{text}");
    }
}

#[test]
fn files_that_cannot_be_text_are_refused_in_words() {
    let path = "home/.config/caliban/settings.toml";
    let world = World::new();
    world.user(b"model = 'x'\n# \xff\n");
    assert_eq!(
        world.error().0,
        format!("{path}:2:3: found bytes that are not UTF-8, expected text in UTF-8")
    );
    world.user(vec![b'#'; 1024 * 1024 + 1]);
    assert_eq!(
        world.error().0,
        format!("{path}: is larger than 1024 KiB, the most a settings file may have")
    );
    let file = world.root().join(path);
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    assert_eq!(world.error().0, format!("{path}: is a directory, expected a file"));
    fs::remove_dir(&file).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, &file, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR).unwrap();
    assert_eq!(world.error().0, format!("{path}: is not a regular file"));
}

#[test]
fn wrong_words_in_the_environment_name_the_variable() {
    let cases = [
        (
            "CALIBAN_PROVIDER",
            "antropic",
            "expected one of anthropic, openai, openai-chat,",
            Some("did you mean `anthropic`?"),
        ),
        (
            "CALIBAN_PERMISSION_MODE",
            "yolo",
            "expected one of default, accept-edits, never-ask, plan, unattended",
            None,
        ),
        ("CALIBAN_NO_SUB_AGENT", "maybe", "found `maybe`, expected 1 or 0", None),
        ("ANTHROPIC_BASE_URL", "api", "found `api`, expected an address", None),
    ];
    for (name, value, message, hint) in cases {
        let mut world = World::new();
        world.set(name, value);
        let (said, hinted) = world.error();
        assert!(
            said.starts_with(&format!("the environment variable {name}: ")) && said.contains(message),
            "{said}"
        );
        assert_eq!(hinted.as_deref(), hint);
    }
}

#[test]
fn a15_an_untrusted_repo_is_ignored_in_one_line_and_not_parsed() {
    let world = World::new();
    world.write("repo/.caliban/settings.toml", "this is no TOML");
    world.write("repo/.mcp.json", "neither is this JSON");
    let loaded = world.load().unwrap();
    assert_eq!(loaded.settings, Settings::default());
    let repo = world.repo().display().to_string();
    assert_eq!(
        loaded.notes,
        [format!(
            ".caliban/settings.toml, .mcp.json ignored: you have not trusted this repo; \
             look at them, then run: caliban trust {repo}"
        )]
    );
}

#[test]
fn a15_trust_ends_when_the_files_change_and_comes_back_with_the_next_trust() {
    let world = World::new();
    world.write("repo/.caliban/settings.toml", "model = 'a'\n");
    world.trust();
    assert_eq!(world.load().unwrap().settings.model.as_deref(), Some("a"));
    world.write("repo/.caliban/settings.toml", "model = 'b'\n");
    let loaded = world.load().unwrap();
    assert_eq!(loaded.settings.model, None);
    assert!(loaded.notes[0].contains("they have changed since you trusted this repo"), "{:?}", loaded.notes);
    world.trust();
    assert_eq!(world.load().unwrap().settings.model.as_deref(), Some("b"));
    // A file that is new counts as a change too, and so does content that moves to another file.
    world.write("repo/.mcp.json", "{}");
    assert_eq!(world.load().unwrap().settings.model, None);
    world.trust();
    fs::rename(
        world.repo().join(".caliban/settings.toml"),
        world.repo().join(".caliban/settings.local.toml"),
    )
    .unwrap();
    assert_eq!(world.load().unwrap().settings.model, None);
}

#[test]
fn a15_trust_is_for_one_path() {
    let world = World::new();
    world.write("repo/.caliban/settings.toml", "model = 'a'\n");
    world.trust();
    fs::create_dir_all(world.root().join("copy/.git")).unwrap();
    world.write("copy/.caliban/settings.toml", "model = 'a'\n");
    let loaded = load(&world.environment(), &world.root().join("copy"), Layer::default()).unwrap();
    assert_eq!((loaded.settings.model, loaded.notes.len()), (None, 1));
    let below = world.repo().join("src/deep");
    fs::create_dir_all(&below).unwrap();
    let loaded = load(&world.environment(), &below, Layer::default()).unwrap();
    assert_eq!(loaded.settings.model.as_deref(), Some("a"));
}

#[test]
fn mcp_json_is_read_and_the_repos_settings_are_stronger() {
    let mut world = World::new();
    world.set("MCP_TOKEN", "s3cret");
    world.write(
        "repo/.mcp.json",
        r#"{"mcpServers": {
            "files": {"command": "srv", "args": ["--root", "${ROOT:-/data}"], "env": {"T": "${MCP_TOKEN}"}},
            "web": {"type": "http", "url": "https://mcp.example.org", "headers": {"Authorization": "Bearer ${MCP_TOKEN}"}},
            "broken": {"command": "x", "args": ["${NOT_SET}"]}
        }}"#,
    );
    world.write("repo/.caliban/settings.toml", "[mcp.servers.web]\nenabled = false\n");
    world.trust();
    let loaded = world.load().unwrap();
    let servers = &loaded.settings.mcp.servers;
    assert_eq!(servers.keys().collect::<Vec<_>>(), ["files", "web"]);
    assert_eq!(servers["files"].args, ["--root", "/data"]);
    assert_eq!(servers["files"].env["T"].reveal(), "s3cret");
    assert_eq!(servers["web"].headers["Authorization"].reveal(), "Bearer s3cret");
    assert!(!servers["web"].enabled.0);
    assert_eq!(
        loaded.notes,
        ["the MCP server `broken` is not used: the variable NOT_SET that it needs is not set"]
    );
}

#[test]
fn a_redefined_server_takes_nothing_over() {
    let world = World::new();
    world.user("[mcp.servers.a]\ncommand = 'mine'\nenv = { MY_TOKEN = 'canary' }\n");
    world.write("repo/.caliban/settings.toml", "[mcp.servers.a]\ncommand = 'theirs'\n");
    world.trust();
    let server = world.load().unwrap().settings.mcp.servers["a"].clone();
    assert_eq!((server.command.as_deref(), server.env.len()), (Some("theirs"), 0));
}

#[test]
fn a_server_is_a_command_or_an_address() {
    let world = World::new();
    world.user("# one\n[mcp.servers.a]\nenabled = true\n");
    world.user("[mcp.servers.a]\nurl = 'example.org'\n");
    assert_eq!(
        world.error().0,
        "home/.config/caliban/settings.toml:2: MCP server `a`: found `example.org`, expected an address such as \
         `https://api.example.org/v1`"
    );
    world.user("# one\n[mcp.servers.a]\nenabled = true\n");
    assert_eq!(
        world.error().0,
        "home/.config/caliban/settings.toml:3: MCP server `a`: found neither of `command` and `url`, expected one of them"
    );
}

#[test]
fn mcp_json_errors_have_a_position() {
    let world = World::new();
    world.write("repo/.mcp.json", "{\"mcpServers\": {\n \"a\": 3}, oops}");
    world.trust();
    let (message, hint) = world.error();
    assert_eq!(message, "repo/.mcp.json:2:11: key must be a string");
    assert!(hint.unwrap().starts_with("expected {\"mcpServers\""));
    // One server that is wrong does not spoil the others.
    world.write("repo/.mcp.json", "{\"mcpServers\": {\"a\": 3, \"b\": {\"command\": \"x\"}}}");
    world.trust();
    let loaded = world.load().unwrap();
    assert_eq!(loaded.settings.mcp.servers.keys().collect::<Vec<_>>(), ["b"]);
    assert!(loaded.notes[0].ends_with("expected an object; it is left out"), "{:?}", loaded.notes);
}

fn target(choice: &Choice) -> &ModelTarget {
    match choice {
        Choice::Use(target) | Choice::IfRunning(target) => target,
    }
}

fn chosen(world: &World) -> (ProviderKind, Option<String>, String) {
    let choice = world.load().unwrap().choose().unwrap();
    let target = target(&choice);
    let place = match &target.endpoint {
        ProviderEndpoint::Http { base_url, key } => {
            format!("{} {}", base_url.value.as_str(), key.as_ref().map_or("-", |key| key.value.reveal()))
        }
        ProviderEndpoint::Script(script) => format!("{:?}", script.as_ref().map(|script| &script.value)),
    };
    (target.provider.value, target.model.as_ref().map(|model| model.value.clone()), place)
}

#[test]
fn the_first_key_in_the_environment_chooses_the_provider() {
    let mut world = World::new();
    let choice = world.load().unwrap().choose().unwrap();
    assert!(matches!(&choice, Choice::IfRunning(target) if target.provider.value == ProviderKind::Ollama));
    world.set("CALIBAN_MODEL", "m");
    for (variable, provider) in [
        ("OPENROUTER_API_KEY", ProviderKind::OpenRouter),
        ("GOOGLE_API_KEY", ProviderKind::Gemini),
        ("OPENAI_API_KEY", ProviderKind::OpenAi),
        ("ANTHROPIC_API_KEY", ProviderKind::Anthropic),
    ] {
        world.set(variable, "k");
        assert_eq!(chosen(&world).0, provider);
    }
    world.set("CALIBAN_PROVIDER", "scripted");
    assert_eq!(chosen(&world).0, ProviderKind::Scripted);
}

#[test]
fn a_provider_without_its_key_says_where_the_key_goes() {
    let mut world = World::new();
    world.set("CALIBAN_PROVIDER", "openai");
    let error = world.load().unwrap().choose().unwrap_err();
    assert_eq!(error.to_string(), "there is no key for the provider `openai`");
    let settings = world.root().join("home/.config/caliban/settings.toml");
    assert_eq!(
        error.hint.unwrap(),
        format!("export OPENAI_API_KEY=…, or set api_key under [providers.openai] in {}", settings.display())
    );
}

#[test]
fn a_key_of_openai_is_not_sent_to_an_address_from_a_file() {
    let mut world = World::new();
    world.set("OPENAI_API_KEY", "canary");
    world.set("CALIBAN_PROVIDER", "openai-chat");
    assert_eq!(chosen(&world).2, "https://api.openai.com/v1 canary");
    world.user("model = 'm'\n[providers.openai-chat]\nbase_url = 'http://box:9/v1/'\n");
    assert_eq!(chosen(&world), (ProviderKind::OpenAiChat, Some("m".into()), "http://box:9/v1 -".to_owned()));
    world.user(
        "[providers.openai-chat]\nbase_url = 'http://box:9/v1/'\napi_key_env = 'BOX_KEY'\nmodel = 'm'\n",
    );
    world.set("BOX_KEY", "box");
    assert_eq!(
        chosen(&world),
        (ProviderKind::OpenAiChat, Some("m".into()), "http://box:9/v1 box".to_owned())
    );
}

#[test]
fn a_model_stays_with_the_provider_it_was_chosen_with() {
    let world = World::new();
    world.user("provider = 'ollama'\nmodel = 'qwen3'\n[providers.lmstudio]\nmodel = 'local'\n");
    let model = |flags: Layer| {
        let choice = world.load_with(flags).unwrap().choose().unwrap();
        target(&choice).model.as_ref().map(|model| model.value.clone())
    };
    assert_eq!(model(Layer::default()).as_deref(), Some("qwen3"));
    assert_eq!(model(flag(&["provider"], "ollama")).as_deref(), Some("qwen3"));
    assert_eq!(model(flag(&["provider"], "lmstudio")).as_deref(), Some("local"));
    assert_eq!(model(flag(&["provider"], "vllm")), None);
}

#[test]
fn a_market_of_models_needs_a_name() {
    let mut world = World::new();
    world.set("OPENROUTER_API_KEY", "k");
    let error = world.load().unwrap().choose().unwrap_err();
    assert_eq!(
        (error.to_string().as_str(), error.hint.as_deref()),
        (
            "no model is named for the provider `openrouter`",
            Some("name one with --model, or set model under [providers.openrouter]")
        )
    );
}

#[test]
fn the_usual_switches_of_the_environment_work() {
    let mut world = World::new();
    world.set("CALIBAN_NO_SUB_AGENT", "1");
    world.set("CALIBAN_KEEP_WORKTREES", "1");
    world.set("CALIBAN_PERMISSION_MODE", "plan");
    let settings = world.load().unwrap().settings;
    let expected: Settings =
        toml::from_str("sub_agents = false\nworktrees.keep = true\npermissions.mode = 'plan'\n").unwrap();
    assert_eq!(settings, expected);
}

#[test]
fn the_guide_shows_every_setting_with_its_default() {
    let guide = include_str!("../../../docs/guide/settings.md");
    let block = guide.split("```toml defaults\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let shown: Settings = toml::from_str(block).unwrap();
    assert_eq!(shown, Settings::default());
    let world = World::new();
    for row in rows(&world.load().unwrap(), None) {
        let key = row.key.rsplit('.').next().unwrap();
        assert!(
            guide.contains(&format!("{key} = ")) || guide.contains(&format!(".{key}]]")),
            "{} is not in the guide",
            row.key
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a14_random_bytes_as_settings_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..512)) {
        let _either = Layer::parse(Path::new("settings.toml"), &bytes);
        let _either = mcp_json::parse(Path::new(".mcp.json"), &bytes);
    }

    #[test]
    fn a14_random_text_as_settings_never_panics(
        text in "(\\[?\\[?(hooks|mcp|providers|limits|x)(\\.[a-zA-Z]{1,8})?\\]?\\]?\n|[a-z_.]{1,12} ?= ?(-?[0-9]{1,20}|\"[^\"]{0,8}\"|\\[.{0,9}\\]|\\{.{0,9}\\}|true|.{0,6})\n){0,8}"
    ) {
        if let Err(error) = Layer::parse(Path::new("settings.toml"), text.as_bytes()) {
            prop_assert!(error.to_string().starts_with("settings.toml"), "{}", error);
            prop_assert!(!error.to_string().contains('\n'), "{}", error);
        }
    }
}

#[test]
fn a14_deep_nesting_is_an_error() {
    let deep = format!("a = {}1{}", "[".repeat(100_000), "]".repeat(100_000));
    let error = Layer::parse(Path::new("s.toml"), deep.as_bytes()).unwrap_err();
    assert!(error.to_string().starts_with("s.toml:1:"), "{error}");
    let deep = format!("{{\"mcpServers\": {}", "{\"a\":".repeat(100_000));
    assert!(mcp_json::parse(Path::new("m.json"), deep.as_bytes()).is_err());
}
