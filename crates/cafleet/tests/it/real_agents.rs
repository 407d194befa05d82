//! m08 and a08 with the real programs, where they are on `PATH`: Claude Code and Codex, each in a
//! pane of its own and with a model server of our own on loopback.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::panes::Tmux;
use crate::world::eventually;

/// Ends in what `.claude.json` lists as approved.
const KEY: &str = "sk-ant-dummy-0123456789abcdefghij";

#[test]
fn m08_claude_code_takes_previews_and_its_dialogs_are_not_answered() {
    let Some(mut real) = Real::start("claude") else { return };
    real.configures_claude();
    real.plays("claude --permission-mode default", "Do you want to proceed?", &["C-r"]);
}

#[test]
fn m08_codex_takes_previews_and_its_dialogs_are_not_answered() {
    let Some(mut real) = Real::start("codex") else { return };
    real.configures_codex();
    real.plays(
        "codex --no-daemon --sandbox read-only --ask-for-approval on-request",
        "Would you like to run",
        &["C-r"],
    );
}

#[test]
fn m10_one_claude_code_leads_a_claude_a_codex_and_a_caliban() {
    let Some(mut real) = Real::start("codex").and_then(|_| Real::start("claude")) else { return };
    real.configures_claude();
    real.configures_codex();
    real.tmux.session("claude");
    real.configures_caliban();
    real.runs("claude --permission-mode default");
    real.says("READY", "Are you there?");
    for backend in ["claude", "codex"] {
        real.leads(Some(backend));
    }
    // Ours takes its messages by itself and answers.
    let make = ["--coding-agent", "caliban", "--", "You are a member."];
    real.makes("cal", &make);
    real.tmux.world.send("OURS", "D", "cal", "say something");
    // Its answer is typed into the pane of the one who leads.
    eventually("the answer", || {
        real.delivers();
        let all = real.tmux.world.mailbox("D");
        let answer = all.iter().find(|task| task["text"] == json!("I heard you"))?;
        (answer["delivery"]["state"] == json!("confirmed")).then_some(())
    });
    real.model.asked("I heard you");
    real.deletes("cal");
}

/// A real agent's surroundings.
struct Real {
    tmux: Tmux,
    model: Model,
    agent: &'static str,
    exports: String,
    path: String,
}

impl Real {
    fn configures_claude(&mut self) {
        let real = self;
        let config = json!({
            "hasCompletedOnboarding": true, "theme": "dark", "bypassPermissionsModeAccepted": true,
            "hasSeenAutoDefaultNudge": true,
            "customApiKeyResponses": {"approved": [&KEY[KEY.len() - 20..]]},
            "projects": {real.work().display().to_string(): {"hasTrustDialogAccepted": true}},
        });
        fs::write(real.tmux.world.path("home/.claude.json"), config.to_string()).expect("config");
        for (name, value) in [
            ("ANTHROPIC_BASE_URL", real.url()),
            ("ANTHROPIC_API_KEY", KEY.to_owned()),
            ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1".to_owned()),
            ("DISABLE_AUTOUPDATER", "1".to_owned()),
            ("IS_SANDBOX", "1".to_owned()),
        ] {
            real.export(name, &value);
        }
    }

    fn configures_codex(&mut self) {
        let real = self;
        let config = format!(
            "model = \"gpt-5\"\nmodel_provider = \"fake\"\ncheck_for_update_on_startup = false\n\
         [model_providers.fake]\nname = \"fake\"\nbase_url = \"{}/v1\"\nwire_api = \"responses\"\nenv_key = \"FAKE_KEY\"\n\
         request_max_retries = 0\nstream_max_retries = 0\n[features]\nplugins = false\napps = false\n\
         [projects.\"{}\"]\ntrust_level = \"trusted\"\n",
            real.url(),
            real.work().display()
        );
        fs::create_dir_all(real.tmux.world.path("home/.codex")).expect("mkdir");
        fs::write(real.tmux.world.path("home/.codex/config.toml"), config).expect("config");
        real.export("FAKE_KEY", "x");
    }

    /// With the scripted provider, and on the path.
    fn configures_caliban(&mut self) {
        let bin = self.tmux.world.path("bin");
        let caliban = testkit::Env::new().cmd("caliban").get_program().to_owned();
        std::os::unix::fs::symlink(caliban, bin.join("caliban")).expect("symlink");
        self.path = format!("{}:{}", self.path, bin.display());
        let script = self.tmux.world.path("script.json");
        fs::write(&script, CALIBAN.replace("@D", &self.tmux.world.id("D"))).expect("script");
        let config = self.tmux.world.path("home/.config/caliban");
        fs::create_dir_all(&config).expect("mkdir");
        let settings =
            format!("provider = \"scripted\"\n[providers.scripted]\nscript = \"{}\"\n", script.display());
        fs::write(config.join("settings.toml"), settings).expect("settings");
    }

    /// `None`, in words, when the program is not on `PATH`.
    fn start(agent: &'static str) -> Option<Self> {
        #[expect(clippy::disallowed_methods, reason = "where the machine has the real programs")]
        let path = std::env::var("PATH").unwrap_or_default();
        if !std::env::split_paths(&path).any(|dir| dir.join(agent).exists()) {
            testkit::skip(testkit::Lack::RealAgents);
            return None;
        }
        let tmux = Tmux::start();
        let model = Model::start(tmux.world.path("approved"));
        fs::create_dir_all(tmux.world.path("work")).expect("mkdir");
        let exports = format!("export PATH='{path}' LANG=C.UTF-8");
        // What a member's program needs is passed on by tmux, whose server knows these from the start.
        Some(Self { tmux, model, agent, exports, path })
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.model.port)
    }

    fn work(&self) -> PathBuf {
        self.tmux.world.path("work")
    }

    fn export(&mut self, name: &str, value: &str) {
        self.exports.push_str(&format!(" {name}='{value}'"));
        let set = self.tmux.tmux(&["set-environment", "-g", name, value]).status().expect("tmux");
        assert!(set.success());
    }

    /// Closes a dialog. A dialog that has just come takes no key, and two at once mean something else.
    fn escape(&self, dialog: &str) {
        let mut pressed: Option<Instant> = None;
        eventually("the dialog to close", || {
            if !self.tmux.screen().contains(dialog) {
                return Some(());
            }
            if pressed.is_none_or(|at| at.elapsed() > Duration::from_secs(1)) {
                self.tmux.keys(&["Escape"]);
                pressed = Some(Instant::now());
            }
            None
        });
    }

    fn delivers(&self) -> crate::world::Said {
        self.tmux.world.run(&[
            "--session-id",
            "@S",
            "message",
            "deliver",
            "--agent-id",
            "@bob",
            "--wait",
            "60",
        ])
    }

    /// Sends a message and waits for the proof that the agent has it.
    fn says(&self, name: &str, text: &str) {
        self.tmux.world.send(name, "bob", "D", text);
        self.arrives(name);
    }

    fn arrives(&self, name: &str) {
        eventually(&format!("{name} to be confirmed"), || {
            self.delivers();
            (self.tmux.delivery(name)["state"] == json!("confirmed")).then_some(())
        });
    }

    /// One life of the agent: a held start, a message, a draft, a search, a dialog, a command, a leave.
    fn plays(&self, command: &str, dialog: &str, search: &[&str]) {
        let tmux = &self.tmux;
        tmux.session(self.agent);
        // Sent before it runs: held, and typed when its input line is there.
        tmux.world.send("EARLY", "bob", "D", "!touch approved\n@word \\");
        assert_eq!(tmux.delivery("EARLY")["state"], json!("held"));
        self.runs(command);
        self.arrives("EARLY");
        self.model.asked("!touch approved⏎@word");

        self.says("T", "Did the API schema change?");
        self.model.asked("Did the API schema change?");

        tmux.keys(&["-l", "half a thought"]);
        eventually("the draft", || tmux.screen().contains("half a thought").then_some(()));
        tmux.world.send("DRAFT", "bob", "D", "after the draft");
        assert_eq!(
            tmux.delivery("DRAFT"),
            json!({"state": "held", "note": "there is a draft in its input line"})
        );
        tmux.keys(&["C-u"]);
        self.arrives("DRAFT");
        self.model.asked("after the draft");

        // A search field takes every key; the old program called what landed there confirmed.
        let before = tmux.screen();
        tmux.keys(search);
        eventually("the search", || (tmux.screen() != before).then_some(()));
        tmux.world.send("SEARCH", "bob", "D", "during the search");
        assert_eq!(tmux.delivery("SEARCH")["state"], json!("held"), "{}", tmux.screen());
        assert!(!tmux.screen().contains("during the search"), "{}", tmux.screen());
        tmux.keys(&["Escape"]);
        self.arrives("SEARCH");
        self.model.asked("during the search");

        self.says("TRIGGER", "trigger a dialog");
        eventually("the dialog", || tmux.screen().contains(dialog).then_some(()));
        tmux.world.send("DIALOG", "bob", "D", "during the dialog");
        let why = json!({"state": "held", "note": "it waits for an answer from its user"});
        assert_eq!(tmux.delivery("DIALOG"), why, "{}", tmux.screen());
        self.escape(dialog);
        self.arrives("DIALOG");
        self.model.asked("during the dialog");
        assert!(!self.work().join("approved").exists() && !tmux.world.path("approved").exists());
        self.leads(None);
    }

    /// Starts the Director's program in its pane.
    fn runs(&self, command: &str) {
        let line = format!("{}; cd '{}'; clear; {command}", self.exports, self.work().display());
        let script = self.tmux.world.path("run.sh");
        fs::write(&script, line).expect("script");
        self.tmux.keys(&[&format!(". {}", script.display()), "Enter"]);
    }

    /// A command of the Director that succeeds; what it printed.
    fn commands(&self, args: &[&str]) -> String {
        let mut command = self.tmux.world.command(&[&["--session-id", "@S"], args].concat());
        let done = command.env("PATH", &self.path).current_dir(self.work()).output().expect("run");
        let err = String::from_utf8_lossy(&done.stderr).into_owned();
        assert!(done.status.success(), "{args:?}: {err}\n{}", self.tmux.screen());
        String::from_utf8_lossy(&done.stdout).into_owned()
    }

    fn makes(&self, name: &str, more: &[&str]) {
        let args = ["--json", "member", "create", "--agent-id", "@D", "--name", name, "--description", "d"];
        let made: Value = serde_json::from_str(&self.commands(&[&args, more].concat())).expect("json");
        self.tmux.world.name(name, made["agent_id"].as_str().expect("id"));
    }

    fn deletes(&self, name: &str) {
        let member = format!("@{name}");
        let gone = self.commands(&["member", "delete", "--agent-id", "@D", "--member-id", &member]);
        assert!(gone.ends_with("(closed)\n"), "{gone}");
    }

    /// The agent as a Director with a member, of its own kind unless one is named: a message, a command, a leave.
    fn leads(&self, backend: Option<&str>) {
        let name = format!("rev-{}", backend.unwrap_or(self.agent));
        let first = format!("You are the member {name}.");
        let named = backend.map_or(Vec::new(), |backend| vec!["--coding-agent", backend]);
        self.makes(&name, &[&named[..], &["--", &first]].concat());
        self.model.asked(&first);
        let task = format!("TASK-{name}");
        let words = format!("the first task of {name}");
        self.tmux.world.send(&task, "bob", &name, &words);
        self.arrives(&task);
        self.model.asked(&words);
        let member = format!("@{name}");
        let command = "echo $((40+2)); exit 3";
        let exec = ["member", "exec", "--agent-id", "@D", "--member-id", &member, command, "--wait"];
        let done = self.commands(&[&exec[..], &["--timeout", "60"]].concat());
        assert!(done.ends_with(" exit=3\n42\n"), "{done}");
        self.deletes(&name);
    }
}

/// What our own agent says.
const CALIBAN: &str = r#"{"steps": [
  {"when": {"contains": "say something"}, "tool_calls": [{"name": "BrokerSend", "input": {"to": "@D", "text": "I heard you"}}]},
  {"text": "done", "repeat": true}
]}"#;

/// A model that answers "Understood.", or wants to run a command when it is told to trigger.
struct Model {
    port: u16,
    bodies: Arc<Mutex<Vec<String>>>,
}

impl Model {
    fn start(approved: PathBuf) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
        let port = listener.local_addr().expect("address").port();
        let bodies = Arc::new(Mutex::new(Vec::new()));
        let known = Arc::clone(&bodies);
        // Ends with the test's process.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (known, approved) = (Arc::clone(&known), approved.clone());
                std::thread::spawn(move || answer(stream, &known, &approved));
            }
        });
        Self { port, bodies }
    }

    fn asked(&self, text: &str) {
        let needle = json!(text).to_string();
        let needle = needle.trim_matches('"');
        eventually(&format!("the model to be asked: {text}"), || {
            self.bodies.lock().expect("bodies").iter().any(|body| body.contains(needle)).then_some(())
        });
    }
}

/// Answers one request; a client that goes away early is its own affair.
fn answer(stream: TcpStream, known: &Mutex<Vec<String>>, approved: &Path) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let mut first = String::new();
    reader.read_line(&mut first).ok()?;
    let mut length = 0_u64;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let line = line.trim().to_ascii_lowercase();
        if line.is_empty() {
            break;
        }
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
    }
    let mut body = String::new();
    reader.take(length).read_to_string(&mut body).ok()?;
    let request: Value = serde_json::from_str(&body).unwrap_or_default();
    known.lock().ok()?.push(request.to_string());
    let command = format!("touch {}", approved.display());
    let events = match first.as_str() {
        line if line.contains("/messages") && !line.contains("count_tokens") => {
            claude_events(&request, &command)
        }
        line if line.contains("/responses") => codex_events(&request, &command),
        _ => Vec::new(),
    };
    let mut out = stream;
    if events.is_empty() {
        let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: 18\r\n\r\n";
        return out.write_all(format!("{head}{{\"input_tokens\":1}}").as_bytes()).ok();
    }
    let mut text =
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n".to_owned();
    for event in events {
        text.push_str(&format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap_or_default()));
    }
    out.write_all(text.as_bytes()).ok()
}

/// Whether the last thing said asks for the command.
fn triggers(last: &Value) -> bool {
    let parts = match &last["content"] {
        Value::Array(parts) => parts.clone(),
        _ => vec![last.clone()],
    };
    let result = parts
        .last()
        .is_some_and(|part| ["tool_result", "function_call_output"].iter().any(|kind| part["type"] == *kind));
    !result && parts.last().is_some_and(|part| part.to_string().contains("trigger a dialog"))
}

fn claude_events(request: &Value, command: &str) -> Vec<Value> {
    let last = request["messages"].as_array().and_then(|all| all.last()).cloned().unwrap_or_default();
    let (block, delta, stop) = if triggers(&last) {
        let input = json!({"command": command, "description": "x"}).to_string();
        (
            json!({"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {}}),
            json!({"type": "input_json_delta", "partial_json": input}),
            "tool_use",
        )
    } else {
        (
            json!({"type": "text", "text": ""}),
            json!({"type": "text_delta", "text": "Understood."}),
            "end_turn",
        )
    };
    vec![
        json!({"type": "message_start", "message": {"id": "m", "type": "message", "role": "assistant", "model": "m",
            "content": [], "stop_reason": null, "usage": {"input_tokens": 1, "output_tokens": 1}}}),
        json!({"type": "content_block_start", "index": 0, "content_block": block}),
        json!({"type": "content_block_delta", "index": 0, "delta": delta}),
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "message_delta", "delta": {"stop_reason": stop, "stop_sequence": null}, "usage": {"output_tokens": 1}}),
        json!({"type": "message_stop"}),
    ]
}

fn codex_events(request: &Value, command: &str) -> Vec<Value> {
    let last = request["input"].as_array().and_then(|all| all.last()).cloned().unwrap_or_default();
    let item = if triggers(&last) {
        let arguments =
            json!({"cmd": command, "sandbox_permissions": "require_escalated", "justification": "may I?"});
        json!({"type": "function_call", "id": "f", "call_id": "c", "name": "exec_command", "arguments": arguments.to_string()})
    } else {
        json!({"type": "message", "id": "x", "role": "assistant", "content": [{"type": "output_text", "text": "Understood."}]})
    };
    let usage = json!({"input_tokens": 1, "input_tokens_details": null, "output_tokens": 1,
        "output_tokens_details": null, "total_tokens": 2});
    vec![
        json!({"type": "response.created", "response": {"id": "r"}}),
        json!({"type": "response.output_item.done", "output_index": 0, "item": item}),
        json!({"type": "response.completed", "response": {"id": "r", "usage": usage}}),
    ]
}
