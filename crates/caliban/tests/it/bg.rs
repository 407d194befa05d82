//! Background agents of a session (b01–b11), as an editor sees them: `caliban acp` over stdio.

use serde_json::{Value, json};
use testkit::{
    ModelServer, Protocol, Recorded, Spawned, StepExt, Tmux, script, script::StepUsage, text, tool,
    wait_until,
};

use crate::{
    commands::says,
    place::Place,
    screen::{leave, start},
};

/// An editor that has one session.
pub(crate) struct Editor {
    program: Spawned,
    sent: u64,
    session: String,
}

impl Editor {
    pub(crate) fn open(place: &Place) -> Self {
        let (mut editor, _) = Self::connect(place, &json!({"session": {"notices": {}}}));
        let made = editor.call("session/new", json!({"cwd": place.repo, "mcpServers": []}));
        editor.session = made["sessionId"].as_str().unwrap().to_owned();
        editor
    }

    /// An editor with these abilities and no session yet, and what the agent said of itself.
    pub(crate) fn connect(place: &Place, abilities: &Value) -> (Self, Value) {
        let run = place.env.start("caliban", ["acp"]).args(place.server.args(place.protocol));
        let mut editor = Self { program: run.dir(&place.repo).spawn(), sent: 0, session: String::new() };
        let params = json!({"protocolVersion": 1, "clientCapabilities": abilities});
        let welcome = editor.call("initialize", params);
        (editor, welcome)
    }

    /// Goes on in this session.
    pub(crate) fn in_session(&mut self, session: &str) {
        self.session = session.to_owned();
    }

    /// Says something that is no request.
    pub(crate) fn write(&mut self, line: &Value) {
        self.program.write(format!("{line}\n"));
    }

    /// Everything that has come so far.
    pub(crate) fn messages(&self) -> Vec<Value> {
        let stdout = self.program.stdout();
        let whole = stdout.rfind('\n').map_or("", |end| &stdout[..end]);
        whole.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    pub(crate) fn send(&mut self, method: &str, params: Value) -> u64 {
        self.sent += 1;
        let line = json!({"jsonrpc": "2.0", "id": self.sent, "method": method, "params": params});
        self.program.write(format!("{line}\n"));
        self.sent
    }

    fn is_answered(&self, id: u64) -> bool {
        self.messages().iter().any(|message| message["id"] == id && message.get("method").is_none())
    }

    /// The answer: the result or, of an error, what it says.
    pub(crate) fn answer(&self, id: u64) -> Value {
        wait_until("an answer", || self.is_answered(id));
        let messages = self.messages();
        let answer = messages.iter().find(|message| message["id"] == id && message.get("method").is_none());
        let answer = answer.unwrap();
        answer.get("result").unwrap_or(&answer["error"]["message"]).clone()
    }

    pub(crate) fn call(&mut self, method: &str, params: Value) -> Value {
        let id = self.send(method, params);
        self.answer(id)
    }

    pub(crate) fn prompt(&mut self, text: &str) -> u64 {
        let params = json!({"sessionId": self.session, "prompt": [{"type": "text", "text": text}]});
        self.send("session/prompt", params)
    }

    /// A slash command and what it says.
    pub(crate) fn command(&mut self, text: &str) -> String {
        let before = self.messages().len();
        let id = self.prompt(text);
        match self.answer(id) {
            Value::String(error) => error,
            _ => self.messages()[before..].iter().filter_map(said).collect(),
        }
    }

    /// The last list of background agents.
    pub(crate) fn rows(&self) -> Vec<Value> {
        let messages = self.messages();
        let last = messages.iter().rev().find(|message| message["method"] == "_caliban/background");
        last.map(|message| message["params"]["agents"].as_array().unwrap().clone()).unwrap_or_default()
    }

    pub(crate) fn until_status(&self, id: usize, status: &str) -> Value {
        wait_until(&format!("agent {id} is {status}"), || {
            self.rows().iter().any(|row| row["id"] == id && row["status"] == status)
        });
        self.rows().into_iter().find(|row| row["id"] == id).unwrap()
    }

    /// What people were told about background agents: status, title and the lines below it.
    pub(crate) fn notices(&self) -> Vec<(String, String, String)> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let notice = |message: &Value| {
            let update = &message["params"]["update"];
            let about = update["_meta"]["caliban"].get("background")?;
            Some((text(&about["status"]), text(&update["title"]), text(&update["description"])))
        };
        self.messages().iter().filter_map(notice).collect()
    }

    fn questions(&self) -> Vec<Value> {
        let messages = self.messages().into_iter();
        messages.filter(|message| message["method"] == "session/request_permission").collect()
    }

    fn allow(&mut self, question: &Value) {
        let outcome = json!({"outcome": {"outcome": "selected", "optionId": "allow_once"}});
        let line = json!({"jsonrpc": "2.0", "id": question["id"], "result": outcome});
        self.program.write(format!("{line}\n"));
    }

    /// Text of the main agent and of commands.
    pub(crate) fn text(&self) -> String {
        self.messages().iter().filter_map(said).collect()
    }

    pub(crate) fn quit(mut self) {
        self.program.close_stdin();
        self.program.wait().ok();
    }
}

fn said(message: &Value) -> Option<String> {
    let update = &message["params"]["update"];
    let is_said = update["sessionUpdate"] == "agent_message_chunk";
    is_said.then(|| update["content"]["text"].as_str().unwrap_or_default().to_owned())
}

pub(crate) fn settings(place: &Place, more: &str) {
    let text =
        format!("[retry]\nattempts = 2\nstall_seconds = 30\n[permissions]\nmode = \"unattended\"\n{more}");
    place.env.write(place.env.config().join("caliban/settings.toml"), text);
}

/// The requests of the conversation that began with this prompt.
pub(crate) fn of(place: &Place, prompt: &str) -> Vec<Recorded> {
    let begins = |request: &Recorded| {
        let first = request.body["messages"][0]["content"].as_array().unwrap();
        first.iter().any(|block| block["text"] == prompt)
    };
    place.server.model_requests().into_iter().filter(begins).collect()
}

#[test]
fn b01_b04_a_background_agent_starts_at_once_while_the_main_agent_is_busy_and_tells_its_end() {
    let place = Place::new(script![
        text("main done").on_first("the main task"),
        text("one\ntwo\nthree\nfour\nfive\nsix").costs(100, 20).on_first("the side task"),
        text("I heard").on("Background agent 0 has completed").forever(),
        text("ok").on("what now?"),
    ]);
    let mut editor = Editor::open(&place);
    place.server.hold();
    let main = editor.prompt("the main task");
    place.server.wait_for_requests(1);
    assert_eq!(editor.command("/bg the side task"), "", "the notice says it");
    place.server.wait_for_requests(2);
    assert!(!editor.is_answered(main));
    let row = editor.until_status(0, "running");
    assert_eq!((&row["summary"], &row["endedMs"]), (&json!("the side task"), &Value::Null));
    assert!(row["startedMs"].as_u64().unwrap() > 1_700_000_000_000);
    place.server.release();
    assert_eq!(editor.answer(main)["stopReason"], "end_turn");
    let row = editor.until_status(0, "completed");
    assert_eq!(row["tokens"], 120);
    assert!(row["endedMs"].as_u64() >= row["startedMs"].as_u64());
    let notices = editor.notices();
    let started =
        ("running".to_owned(), "background agent 0 started: the side task".to_owned(), String::new());
    assert_eq!(notices[0], started);
    let (status, title, description) = notices[1].clone();
    assert!(title.starts_with("background agent 0 completed: 120 tokens, "), "{title}");
    assert_eq!((status.as_str(), description.as_str()), ("completed", "one\ntwo\nthree\nfour\nfive…"));
    // A person started it: the model hears of it with the next prompt, if it has not in the turn that ran.
    let next = editor.prompt("what now?");
    editor.answer(next);
    let main = of(&place, "the main task");
    let heard =
        |request: &Recorded| request.body["messages"].to_string().contains("three\\nfour\\nfive\\nsix");
    assert!(main.iter().any(heard), "{main:?}");
    // Its transcript is beside the session's.
    assert!(place.session().join("bg/0/transcript.jsonl").is_file());
    editor.quit();
}

#[test]
fn b03_the_sidebar_has_a_row_for_each_with_the_icon_of_its_status() {
    let place = Place::new(script![
        tool("Bash", json!({"command": "sleep 1000"})).on_first("the long task"),
        text("quick").on_first("the quick task"),
        tool("Read", json!({"file_path": "README.md"})).costs(42_000, 0).on_first("the dear task"),
    ]);
    settings(&place, "[background_agents]\nper_agent_budget = 43000\n");
    let tmux = Tmux::start(&place.env, 100, 30);
    start(&tmux, &place, "");
    let row = |begin: &str, end: &str| {
        tmux.wait_for(&format!("{begin} … {end}"), |screen| {
            screen.lines().any(|line| line.trim_start().starts_with(begin) && line.contains(end))
        });
    };
    says(&tmux, "/bg the long task");
    row("▶ 0 the long task", "running");
    says(&tmux, "/bg the quick task");
    row("✓ 1 the quick task", "completed");
    says(&tmux, "/bg the dear task");
    row("$ 2 the dear task", "budget exceeded");
    says(&tmux, "/bg kill 0");
    row("✗ 0 the long task", "killed");
    leave(&tmux);
}

#[test]
fn b02_b06_it_works_with_all_tools_and_its_questions_carry_its_number() {
    let place = Place::new(script![
        tool("Write", json!({"file_path": "made.txt", "content": "by the side\n"})).on_first("the side task"),
        text("written").on_first("the side task"),
        text("main done").on_first("the main task"),
    ]);
    let mut editor = Editor::open(&place);
    editor.command("/bg the side task");
    wait_until("it asks", || editor.questions().len() == 1);
    let question = editor.questions().remove(0);
    let call = &question["params"]["toolCall"];
    assert_eq!(call["_meta"]["caliban"]["ask"]["agent"], "background agent 0");
    assert!(call["title"].as_str().unwrap().starts_with("background agent 0: Write"), "{call}");
    wait_until("it says what it waits for", || {
        editor.rows().iter().any(|row| row["activity"] == "waits for your answer about Write")
    });
    // The end of a turn of the main agent takes no question of it back.
    let main = editor.prompt("the main task");
    editor.answer(main);
    editor.allow(&question);
    editor.until_status(0, "completed");
    assert_eq!(place.env.read(place.repo.join("made.txt")), "by the side\n");
    let side = of(&place, "the side task");
    let system = side[0].body["system"].to_string();
    assert!(system.contains("You are a background agent"), "{system}");
    let tools = side[0].body["tools"].to_string();
    assert!(tools.contains("\"Bash\"") && !tools.contains("spawn_background"), "{tools}");
    editor.quit();
}

#[test]
fn b05_list_kill_and_clear() {
    let place = Place::new(script![
        tool("Bash", json!({"command": "sleep 1000"})).on_first("the long task"),
        text("quick").costs(1000, 1).on_first("the quick task"),
    ]);
    settings(&place, "");
    let mut editor = Editor::open(&place);
    assert_eq!(editor.command("/bg list"), "There are no background agents.");
    editor.command("/bg the long task");
    editor.command("/bg the quick task");
    editor.until_status(1, "completed");
    wait_until("the command runs", || editor.rows()[0]["activity"] == "Bash sleep 1000");
    let list = editor.command("/bg list");
    let lines: Vec<&str> = list.lines().collect();
    assert!(lines[0].starts_with("0 ▶ running, ") && lines[0].ends_with("the long task (Bash sleep 1000)"));
    assert!(lines[1].starts_with("1 ✓ completed, 1,001 tokens, ") && lines[1].ends_with(": the quick task"));
    assert_eq!(editor.command("/bg kill 7"), "there is no background agent 7; `/bg list` shows them");
    assert_eq!(editor.command("/bg kill 0"), "Background agent 0 is stopped.");
    assert_eq!(editor.command("/bg kill 0"), "background agent 0 has ended already: killed");
    let sleeps = || place.env.processes().iter().any(|(_, line)| line.contains("sleep 1000"));
    assert!(!sleeps(), "its command is gone when the answer comes");
    editor.until_status(0, "killed");
    assert_eq!(editor.command("/bg clear"), "2 background agents were removed from the list.");
    wait_until("the list is empty", || editor.rows().is_empty());
    assert!(editor.command("/bg").starts_with("usage: /bg "));
    editor.quit();
}

#[test]
fn b06_b07_b08_the_model_starts_one_numbers_go_on_and_a_model_can_be_named() {
    let place = Place::new(script![
        tool("spawn_background", json!({"task": "the model's side task"})).on_first("the main task"),
        text("so it is 42").on("[Background agent 1 has completed. Its task: the model's side task]"),
        text("I go on").on("Started background agent 1"),
        text("it is 42").on_first("the model's side task"),
        text("a").on_first("task a"),
        text("b").on_first("task b"),
    ]);
    let mut editor = Editor::open(&place);
    let offered = |message: &Value| {
        let commands = message["params"]["update"]["availableCommands"].as_array();
        commands.and_then(|all| all.iter().find(|command| command["name"] == "bg").cloned())
    };
    wait_until("the commands are offered", || editor.messages().iter().any(|it| offered(it).is_some()));
    let bg = editor.messages().iter().find_map(offered).unwrap();
    assert!(bg["input"]["hint"].as_str().unwrap().contains("<task>"), "{bg}");
    editor.command("/bg task a");
    editor.until_status(0, "completed");
    let main = editor.prompt("the main task");
    editor.answer(main);
    // The main agent rests, or has just heard it: its model is told of the end without another prompt.
    wait_until("the model has heard of the end", || editor.text().ends_with("so it is 42"));
    editor.command("/bg clear");
    editor.command("/bg --model another-model task b");
    let row = editor.until_status(2, "completed");
    assert_eq!((editor.rows().len(), &row["model"]), (1, &json!("another-model")));
    let model = |prompt: &str| of(&place, prompt)[0].body["model"].clone();
    assert_eq!(model("task b"), "another-model");
    assert_eq!(
        (model("task a"), model("the model's side task")),
        (model("the main task"), model("the main task"))
    );
    let main = &of(&place, "the main task")[0];
    assert!(main.body["system"].to_string().contains("# Background agents"), "guidance");
    assert!(main.body["tools"].to_string().contains("\"spawn_background\""));
    editor.quit();
}

#[test]
fn b08_a_run_that_ends_with_its_turn_is_not_offered_background_agents() {
    let place = Place::new(script![text("done")]);
    place.ask("hi", []).ok();
    let body = place.server.model_requests()[0].body.to_string();
    assert!(!body.contains("spawn_background") && !body.contains("# Background agents"), "{body}");
}

#[test]
fn b09_no_more_than_max_agents_work_and_the_fleet_is_named() {
    let place = Place::new(script![text("done").on_first("the side task")]);
    settings(&place, "[background_agents]\nmax_agents = 1\n");
    let mut editor = Editor::open(&place);
    place.server.hold();
    editor.command("/bg the side task");
    let refused = editor.command("/bg another");
    assert!(refused.starts_with("as many background agents as may work at the same time (1) are running"));
    assert!(refused.contains("max_agents") && refused.contains("`caliban --bg \"<task>\"`"), "{refused}");
    place.server.release();
    editor.until_status(0, "completed");
    assert_eq!(editor.rows().len(), 1);
    editor.quit();
}

#[test]
fn b10_b09_at_its_budget_an_agent_stops_and_those_that_have_ended_count_for_all() {
    let cached = StepUsage { input: 1_000, output: 1_000, cache_read: 50_000, cache_write: 20_000 };
    let read = || tool("Read", json!({"file_path": "README.md"})).costs_cached(cached);
    let place = Place::new(script![
        read().on_first("task a"),
        read().on_first("task a"),
        text("never").on_first("task a"),
        text("b").costs(30_000, 0).on_first("task b"),
        text("never").on_first("task c"),
    ]);
    settings(&place, "[background_agents]\nper_agent_budget = 43000\nglobal_budget = 75000\n");
    let mut editor = Editor::open(&place);
    editor.command("/bg task a");
    let row = editor.until_status(0, "budget_exceeded");
    assert_eq!(
        (&row["tokens"], &row["cached"], of(&place, "task a").len()),
        (&json!(44_000), &json!(100_000), 2),
        "what is read from the cache does not count, what is written does"
    );
    wait_until("people are told", || editor.notices().len() == 2);
    let (status, title, _) = editor.notices().remove(1);
    assert_eq!(status, "budget_exceeded");
    let begin = "background agent 0 budget exceeded: 44,000 tokens · 100,000 cached, ";
    assert!(title.starts_with(begin), "{title}");
    assert!(title.contains("`/bg raise 0`") && title.contains("`per_agent_budget`"), "{title}");
    assert!(
        title.contains("the token budget of background agent 0 and those it started is used up"),
        "{title}"
    );
    editor.command("/bg task b");
    editor.until_status(1, "completed");
    // 74,000 of 75,000 are spent, also when the list is empty: nothing is asked of the model for the third.
    editor.command("/bg clear");
    editor.command("/bg task c");
    let row = editor.until_status(2, "budget_exceeded");
    assert_eq!((&row["tokens"], of(&place, "task c").len()), (&json!(0), 0));
    editor.quit();
}

#[test]
fn b10_a_provider_that_says_nothing_of_a_cache_counts_everything() {
    let place = Place::new(script![
        tool("Read", json!({"file_path": "README.md"})).costs(22_000, 0).on_first("task a"),
        text("never").on_first("task a"),
    ]);
    settings(&place, "[background_agents]\nper_agent_budget = 43000\n");
    let mut editor = Editor::open(&place);
    editor.command("/bg task a");
    let row = editor.until_status(0, "budget_exceeded");
    assert_eq!((&row["tokens"], &row["cached"], of(&place, "task a").len()), (&json!(22_000), &json!(0), 1));
    editor.quit();
}

#[test]
fn b10_an_agent_whose_budget_is_raised_goes_on_where_it_stopped() {
    let place = Place::new(script![
        tool("Read", json!({"file_path": "README.md"})).costs(30_000, 0).on_first("task a"),
        text("a at last").costs(40_000, 0).on_first("task a"),
        text("b").on_first("task b"),
    ]);
    settings(&place, "[background_agents]\nper_agent_budget = 31000\nglobal_budget = 31000\n");
    let mut editor = Editor::open(&place);
    assert_eq!(editor.command("/bg raise 0"), "there is no background agent 0; `/bg list` shows them");
    editor.command("/bg task a");
    editor.until_status(0, "budget_exceeded");
    assert_eq!(of(&place, "task a").len(), 1);
    let raised = editor.command("/bg raise 0 45000");
    assert!(raised.ends_with("Background agent 0 goes on with 45,000 tokens more."), "{raised}");
    let row = editor.until_status(0, "completed");
    assert_eq!(row["tokens"], json!(70_000), "nothing of it counts twice");
    let last = of(&place, "task a").pop().unwrap().body["messages"].to_string();
    assert!(last.contains("README.md") && last.contains("Go on where you stopped"), "{last}");
    wait_until("its end is told", || editor.notices().iter().any(|it| it.2.contains("a at last")));
    let refused = editor.command("/bg raise 0");
    assert_eq!(refused, "background agent 0 has ended already: completed");
    // Only as much as was granted was added for all.
    editor.command("/bg clear");
    editor.command("/bg task b");
    editor.until_status(1, "completed");
    editor.quit();
}

#[test]
fn b11_closing_the_session_and_quitting_stop_them_all() {
    let place = Place::new(script![
        tool("Bash", json!({"command": "sleep 1000"})).on_first("the long task").forever(),
    ]);
    settings(&place, "");
    let sleeps = || place.env.processes().iter().any(|(_, line)| line.contains("sleep 1000"));
    let mut editor = Editor::open(&place);
    editor.command("/bg the long task");
    wait_until("the command runs", sleeps);
    let session = json!({"sessionId": editor.session.clone()});
    editor.call("session/close", session);
    assert!(!sleeps(), "nothing is left of it when the answer comes");
    let records = place.transcript();
    let last = records.iter().rfind(|record| record["event"] == "background").unwrap();
    assert_eq!(last["status"], "killed");
    let made = editor.call("session/new", json!({"cwd": place.repo, "mcpServers": []}));
    editor.session = made["sessionId"].as_str().unwrap().to_owned();
    assert_eq!(editor.command("/bg list"), "There are no background agents.");
    editor.command("/bg the long task");
    wait_until("the command runs", sleeps);
    editor.quit();
    wait_until("nothing is left", || !sleeps());
}

#[test]
fn b11_after_a_crash_people_and_the_model_are_told_that_it_does_not_run_any_more() {
    let place = Place::new(script![
        tool("Bash", json!({"command": "sleep 1000"})).on_first("the long task"),
        text("a pity").on_first("are you there?"),
    ]);
    settings(&place, "");
    let sleeps = || place.env.processes().iter().any(|(_, line)| line.contains("sleep 1000"));
    let mut editor = Editor::open(&place);
    editor.command("/bg the long task");
    wait_until("the command runs", sleeps);
    let session = editor.session.clone();
    editor.program.kill();
    wait_until("the reaper has ended the command", || !sleeps());
    let mut editor = Editor::open(&place);
    editor.call("session/load", json!({"sessionId": session, "cwd": place.repo, "mcpServers": []}));
    editor.session = session;
    let (status, title, _) = editor.notices().pop().unwrap();
    let told = "background agent 0 was stopped when the session ended";
    assert_eq!((status.as_str(), title.as_str()), ("killed", told));
    let prompt = editor.prompt("are you there?");
    assert_eq!(editor.answer(prompt)["stopReason"], "end_turn");
    let request = of(&place, "are you there?").remove(0);
    assert!(request.body["messages"].to_string().contains(&format!("[{told}]")), "{request:?}");
    editor.quit();
}

#[test]
fn b06_b09_after_a_resume_numbers_go_on_and_what_was_spent_counts() {
    let place =
        Place::new(script![text("a").costs(30_000, 0).on_first("task a"), text("never").on_first("task b"),]);
    settings(&place, "[background_agents]\nglobal_budget = 31000\n");
    let mut editor = Editor::open(&place);
    editor.command("/bg task a");
    editor.until_status(0, "completed");
    let session = editor.session.clone();
    editor.quit();
    let mut editor = Editor::open(&place);
    editor.call("session/load", json!({"sessionId": session, "cwd": place.repo, "mcpServers": []}));
    editor.session = session;
    assert_eq!(editor.command("/bg list"), "There are no background agents.");
    editor.command("/bg task b");
    editor.until_status(1, "budget_exceeded");
    assert_eq!(of(&place, "task b").len(), 0);
    editor.quit();
}

#[test]
fn b09_every_place_that_shows_what_a_session_has_spent_shows_one_sum() {
    let cached = StepUsage { input: 1_000, output: 500, cache_read: 20_000, cache_write: 300 };
    let place = Place::new(script![
        text("side").costs_cached(cached).on_first("the side task"),
        text("main").costs_cached(cached).on_first("the main task").forever(),
    ]);
    settings(&place, "");
    let mut editor = Editor::open(&place);
    let main = editor.prompt("the main task");
    editor.answer(main);
    editor.command("/bg the side task");
    editor.until_status(0, "completed");
    // The footer, `/cost` and an editor have it from here.
    let footer = |editor: &Editor| {
        let messages = editor.messages();
        let updates = messages.iter().map(|message| &message["params"]["update"]);
        updates.filter_map(|update| update["_meta"]["caliban"]["tokens"].as_u64()).next_back()
    };
    wait_until("the footer has the sum", || footer(&editor) == Some(43_600));
    let said_by_status = |editor: &mut Editor| {
        let status = editor.command("/status");
        status.lines().find_map(|line| line.strip_prefix("spent: ")).unwrap().to_owned()
    };
    assert_eq!(said_by_status(&mut editor), "2000 tokens in, 1000 out, 40000 from cache, 600 to cache");
    let again = editor.prompt("the main task");
    editor.answer(again);
    wait_until("the footer has the sum", || footer(&editor) == Some(65_400));
    let said = said_by_status(&mut editor);
    assert_eq!(said, "3000 tokens in, 1500 out, 60000 from cache, 900 to cache");
    editor.quit();
    let id = place.session_id();
    let line = format!("spent    2 turns, {said}, ");
    for verb in ["show", "audit"] {
        let shown = place.verb(["sessions", verb, &id]).ok().stdout;
        assert!(shown.lines().any(|shown| shown.starts_with(&line)), "{verb}: {shown}");
    }
    let sum = json!({"input": 3_000, "output": 1_500, "cache_read": 60_000, "cache_write": 900});
    let shown: Value = place.verb(["sessions", "show", &id, "--json"]).ok().json();
    let file: Value = serde_json::from_str(&place.env.read(place.session().join("session.json"))).unwrap();
    assert_eq!((&shown["usage"], &file["usage"]), (&sum, &sum));
    // What a later process carries over.
    let mut editor = Editor::open(&place);
    editor.call("session/load", json!({"sessionId": id, "cwd": place.repo, "mcpServers": []}));
    editor.in_session(&id);
    assert_eq!(said_by_status(&mut editor), said);
    editor.quit();
}

#[test]
fn b09_what_background_agents_spent_counts_at_their_own_price_also_when_a_command_goes_on_with_the_session() {
    let script = script![
        text("side").costs(1_000, 100).on_first("the side task"),
        text("main").costs(1_000, 100).on_first("the main task").forever(),
    ];
    let server = ModelServer::builder(script).known_models(["claude-opus-5", "claude-haiku-4-5"]).start();
    let place = Place::with(server, Protocol::Anthropic);
    let mut editor = Editor::open(&place);
    let main = editor.prompt("the main task");
    editor.answer(main);
    editor.command("/bg --model claude-haiku-4-5 the side task");
    editor.until_status(0, "completed");
    editor.quit();
    place.ask("more", ["--continue"]).ok();
    let session: Value = serde_json::from_str(&place.env.read(place.session().join("session.json"))).unwrap();
    // 1000 × $5 and 100 × $25 for a million, twice; and once $1 and $5.
    assert_eq!(session["micro_usd"], json!(2 * 7_500 + 1_500), "{session:#}");
    assert_eq!(session["usage"], json!({"input": 3_000, "output": 300, "cache_read": 0, "cache_write": 0}));
}
