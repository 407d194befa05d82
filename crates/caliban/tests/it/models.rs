//! Every wire protocol through the program: answers, usage, and each way to fail, in words.

use serde_json::{Value, json};
use testkit::{
    ClosedPort, ModelServer, Output, Protocol, StepExt, script, script::StepUsage, status, text, tool,
};

use crate::{bg::Editor, place::Place};

/// stderr without colours; each failure is one or two lines that say what to do.
fn lines(output: &Output) -> Vec<&str> {
    output.stderr.lines().collect()
}

/// All of them at once: these tests wait, they do not work.
fn on_each_protocol(check: impl Fn(Protocol) + Sync) {
    std::thread::scope(|scope| {
        for protocol in Protocol::ALL {
            let check = &check;
            scope.spawn(move || check(protocol));
        }
    });
}

#[test]
fn an_answer_with_its_usage_on_each_protocol() {
    for protocol in Protocol::ALL {
        let usage = StepUsage { input: 10, output: 20, cache_read: 30, cache_write: 0 };
        let server = ModelServer::start(script![text("Hello there.").in_chunks(3).costs_cached(usage)]);
        let place = Place::with(server, protocol);
        let output = place.ask("hello", ["--output-format", "json"]).ok();
        let mut result: Value = output.json();
        let fields = result.as_object_mut().unwrap();
        assert!(fields.remove("session_id").unwrap().as_str().unwrap().len() == 8);
        assert!(fields.remove("duration_ms").unwrap().is_u64());
        fields.remove("total_cost_usd");
        assert_eq!(
            result,
            json!({
                "type": "result", "subtype": "success", "is_error": false, "result": "Hello there.",
                "error": null, "hint": null, "model": "test-model", "num_turns": 1, "refused": [],
                "usage": {"input_tokens": 10, "output_tokens": 20, "cache_read_input_tokens": 30,
                          "cache_creation_input_tokens": 0},
            }),
            "{protocol:?}"
        );
        place.server.assert_drained();
    }
}

#[test]
fn the_answer_streams_before_it_is_whole() {
    on_each_protocol(|protocol| {
        // The stream stops after its first piece: what is seen then was not waited for.
        let server = ModelServer::start(script![text("first second third").in_chunks(3).stall(1)]);
        let place = Place::with(server, protocol);
        let mut running = place.caliban().args(["-p", "hello", "--output-format", "stream-json"]).spawn();
        running.wait_for_stdout("text_delta");
        running.kill();
    });
}

#[test]
fn a_wrong_key_is_final_and_says_what_to_do() {
    for protocol in [Protocol::Anthropic, Protocol::Responses, Protocol::Chat, Protocol::Gemini] {
        let server = ModelServer::builder(script![text("never")]).require_key("the good one").start();
        let mut place = Place::with(server, protocol);
        let variable = place.server.envs(protocol)[1].0;
        place.env.set(variable, "a wrong one");
        let output = place.ask("hello", []).expect_code(1);
        let lines = lines(&output);
        assert_eq!(lines.len(), 2, "{protocol:?}: {lines:?}");
        assert!(
            lines[0].starts_with(&format!("error: {} refused the key:", protocol.provider())),
            "{lines:?}"
        );
        assert!(lines[1].starts_with("hint: ") && lines[1].contains("_API_KEY"), "{lines:?}");
        assert_eq!(place.server.model_requests().len(), 1, "{protocol:?}: it was tried again");
        assert_eq!(output.stdout, "");
    }
}

#[test]
fn an_unknown_model_is_final_and_names_others() {
    for protocol in [Protocol::Anthropic, Protocol::Responses, Protocol::Chat, Protocol::Gemini] {
        let server = ModelServer::builder(script![text("never")]).known_models(["test-modal"]).start();
        let place = Place::with(server, protocol);
        let args = ["--provider", protocol.provider(), "--model", "test-model", "-p", "hello"];
        let output = place.verb(args).expect_code(1);
        let lines = lines(&output);
        assert!(lines.len() <= 2, "{protocol:?}: {lines:?}");
        assert_eq!(lines[0], format!("error: {} has no model test-model", protocol.provider()));
        assert!(lines[1].starts_with("hint: "), "{lines:?}");
        assert_eq!(place.server.model_requests().len(), 1, "{protocol:?}: it was tried again");
    }
}

#[test]
fn an_unknown_provider_is_named_with_a_close_match() {
    let place = Place::new(script![]);
    let output = place.env.run_in(&place.repo, ["--provider", "antropic", "-p", "hello"]).expect_code(2);
    assert!(output.stderr.contains("antropic"), "{}", output.stderr);
    assert!(output.stderr.contains("anthropic"), "{}", output.stderr);
}

#[test]
fn a_refused_connection_names_the_address() {
    for protocol in Protocol::ALL {
        let closed = ClosedPort::new();
        let mut place = Place::with(ModelServer::start(script![]), protocol);
        let variable = place.server.envs(protocol)[0].0;
        place.env.set(variable, closed.url());
        let output = place.ask("hello", []).expect_code(1);
        let said = lines(&output);
        let problem = said.iter().find(|line| line.starts_with("error: ")).unwrap();
        assert!(
            problem.contains("cannot reach") && problem.contains(&closed.url()),
            "{protocol:?}: {said:?}"
        );
        assert!(said.iter().any(|line| line.starts_with("hint: ")), "{protocol:?}: {said:?}");
    }
}

#[test]
fn a_400_shows_the_providers_reason() {
    for protocol in Protocol::ALL {
        let body = protocol.error_body(400, "the moon is in the wrong house");
        let place = Place::with(ModelServer::start(script![status(400).body(body)]), protocol);
        let output = place.ask("hello", []).expect_code(1);
        let said = lines(&output);
        assert!(said.len() <= 2, "{protocol:?}: {said:?}");
        assert!(
            said[0].starts_with("error: ") && said[0].contains("the moon is in the wrong house"),
            "{said:?}"
        );
        assert_eq!(place.server.model_requests().len(), 1, "{protocol:?}: it was tried again");
    }
}

#[test]
fn a_cut_stream_is_made_again_and_never_a_short_answer() {
    for protocol in Protocol::ALL {
        let place = Place::with(ModelServer::start(script![text("all of it").in_chunks(3).cut(2)]), protocol);
        let output = place.ask("hello", []).ok();
        assert_eq!(output.stdout, "all of it\n", "{protocol:?}");
        assert_eq!(place.server.model_requests().len(), 2, "{protocol:?}");

        let place = Place::with(
            ModelServer::start(script![text("all of it").in_chunks(3).cut(2).times(9)]),
            protocol,
        );
        let output = place.ask("hello", []).expect_code(1);
        assert_eq!(output.stdout, "", "{protocol:?}");
        assert!(output.stderr.contains("broke off (2 attempts)"), "{protocol:?}: {}", output.stderr);
    }
}

#[test]
fn a_stalled_stream_is_cut_and_made_again() {
    let settings = "[retry]\nattempts = 2\nstall_seconds = 1\n";
    on_each_protocol(|protocol| {
        let place = Place::with(ModelServer::start(script![text("at last").in_chunks(2).stall(1)]), protocol);
        place.env.write(place.env.config().join("caliban/settings.toml"), settings);
        let output = place.ask("hello", []).ok();
        assert_eq!(output.stdout, "at last\n", "{protocol:?}");
        place.server.wait_for_hangups(1);

        let place =
            Place::with(ModelServer::start(script![text("never").in_chunks(2).stall(1).times(9)]), protocol);
        place.env.write(place.env.config().join("caliban/settings.toml"), settings);
        let output = place.ask("hello", []).expect_code(1);
        assert!(
            output.stderr.contains("sent nothing for 1 s (2 attempts)"),
            "{protocol:?}: {}",
            output.stderr
        );
    });
}

#[test]
fn r24_a_rate_limit_is_waited_out_as_told() {
    for protocol in Protocol::ALL {
        let step = text("now").status(429).retry_after("0").times(4);
        let place = Place::with(ModelServer::start(script![step]), protocol);
        let output = place.ask("hello", []).ok();
        assert_eq!(output.stdout, "now\n", "{protocol:?}");
        // More often than `attempts`: a rate limit has its own patience (r24).
        assert_eq!(place.server.model_requests().len(), 5, "{protocol:?}");
        assert!(output.stderr.contains("rate limit"), "{protocol:?}: {}", output.stderr);
    }
}

#[test]
fn nothing_set_up_says_in_three_lines_how_to_get_going() {
    let mut place = Place::new(script![]);
    for (name, _) in place.server.envs(place.protocol) {
        place.env.unset(name);
    }
    let closed = ClosedPort::new();
    place.env.set("OLLAMA_HOST", closed.url());
    let output = place.env.run_in(&place.repo, ["-p", "hello"]).expect_code(1);
    let said = lines(&output);
    assert_eq!(said.len(), 4, "{said:?}");
    assert_eq!(said[0], "error: no model provider is set up");
    assert!(said[3].contains("--provider scripted -p hello"), "{said:?}");
}

#[test]
fn a_running_ollama_is_found_by_itself() {
    let mut place = Place::with(ModelServer::start(script![text("from a llama")]), Protocol::Ollama);
    let url = place.server.url();
    for (name, _) in place.server.envs(place.protocol) {
        place.env.unset(name);
    }
    place.env.set("OLLAMA_HOST", url);
    let output = place.env.run_in(&place.repo, ["-p", "hello"]).ok();
    assert_eq!(output.stdout, "from a llama\n");
}

/// Takes cache marks out: where they stand moves on with the conversation, what they mark must not change.
fn without_marks(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.remove("cache_control");
            fields.values_mut().for_each(without_marks);
        }
        Value::Array(items) => items.iter_mut().for_each(without_marks),
        _ => {}
    }
}

#[test]
fn the_prefix_is_the_same_from_turn_to_turn() {
    for protocol in Protocol::ALL {
        let place = Place::with(
            ModelServer::start(script![
                tool("Glob", json!({"pattern": "*"})).thinking("hm"),
                tool("Glob", json!({"pattern": "*.md"})),
                text("done"),
            ]),
            protocol,
        );
        place.ask("look around", []).ok();
        let mut bodies: Vec<Value> =
            place.server.model_requests().into_iter().map(|request| request.body).collect();
        assert_eq!(bodies.len(), 3);
        bodies.iter_mut().for_each(without_marks);
        for pair in bodies.windows(2) {
            for (name, earlier) in pair[0].as_object().unwrap() {
                let later = &pair[1][name];
                match (earlier, later) {
                    (Value::Array(earlier), Value::Array(later)) => {
                        assert!(later.len() >= earlier.len(), "{protocol:?} {name}");
                        let bytes =
                            |values: &[Value]| values.iter().map(Value::to_string).collect::<Vec<_>>();
                        let (before, after) = (bytes(earlier), bytes(&later[..earlier.len()]));
                        assert_eq!(before, after, "{protocol:?}: {name} changed");
                    }
                    _ => assert_eq!(earlier.to_string(), later.to_string(), "{protocol:?} {name}"),
                }
            }
        }
    }
}

#[test]
fn the_first_request_is_small() {
    let place = Place::new(script![text("hi")]);
    place.ask("hello", []).ok();
    is_small(&place);
    // A model of the GPT family is offered one tool more.
    let server = ModelServer::builder(script![text("hi")]).known_models(["gpt-5.2"]).start();
    let place = Place::with(server, Protocol::Responses);
    place.ask("hello", []).ok();
    is_small(&place);
    // For an editor there are people who answer, and background agents.
    let place = Place::new(script![text("hi")]);
    let mut editor = Editor::open(&place);
    let id = editor.prompt("hello");
    editor.answer(id);
    is_small(&place);
}

/// Whether the first request stays within 12 KB.
#[track_caller]
fn is_small(place: &Place) {
    let size = place.server.model_requests()[0].raw.len();
    assert!(size <= 12 * 1024, "the first request has {size} bytes");
}

#[test]
fn models_lists_what_is_known_what_it_costs_and_which_keys_there_are() {
    let mut place = Place::new(script![]);
    let closed = ClosedPort::new();
    place.env.set("OLLAMA_HOST", closed.url());
    place.env.set("GEMINI_API_KEY", "a-secret-key");
    let output = place.env.run_in(&place.repo, ["models"]).ok();
    assert!(!output.stdout.contains("a-secret-key"), "{}", output.stdout);
    let line = |name: &str| output.stdout.lines().find(|line| line.contains(name)).unwrap().to_owned();
    assert!(line("anthropic ").starts_with("* anthropic    ready"), "{}", line("anthropic "));
    assert!(
        line("gemini ").contains("ready") && line("gemini ").contains("GEMINI_API_KEY"),
        "{}",
        line("gemini ")
    );
    assert!(line("openai ").starts_with("  openai       -"), "{}", line("openai "));
    assert!(line("ollama ").contains("nobody listens"), "{}", line("ollama "));
    let words: Vec<String> = line("claude-opus-5-5").split_whitespace().map(str::to_owned).collect();
    let expected = "claude-opus-5-5 1000000 $4.00 $20.00 $0.20 none low medium high xhigh max";
    assert_eq!(words.join(" "), expected);

    let report: Value = place.env.run_in(&place.repo, ["models", "haiku-5", "--json"]).ok().json();
    assert_eq!(
        report["models"],
        json!([{
            "name": "claude-haiku-5-5", "provider": "anthropic", "context_window": 1_000_000, "max_output": 128_000,
            "efforts": ["none", "low", "medium", "high", "xhigh", "max"],
            "usd_per_million": {"input": 0.1, "output": 0.5, "cache_read": 0.01, "cache_write": 0.125},
            "long_prompts": {"above": 100_000, "usd_per_million":
                {"input": 0.5, "output": 2.5, "cache_read": 0.05, "cache_write": 0.625}},
        }])
    );
    assert!(report["sources"].as_array().unwrap().len() > 2 && report["compared"].is_string());
    let output = place.env.run_in(&place.repo, ["models", "zzz"]).expect_code(1);
    assert!(output.stderr.contains("hint: a model that is not listed can be used"), "{}", output.stderr);
}
