//! What the model is told: the system prompt, the place, the project's own instructions, files that are mentioned.

use serde_json::{Value, json};
use testkit::{ModelServer, Protocol, StepExt as _, script, text, tool, wait_until};

use crate::{
    fleet::{bash, write},
    place::Place,
    screen::{leave, open},
};

fn messages(place: &Place, request: usize) -> String {
    place.server.model_requests()[request].body["messages"].to_string()
}

fn system(place: &Place) -> String {
    place.server.model_requests()[0].body["system"].to_string()
}

fn tool_names(place: &Place, request: usize) -> Vec<String> {
    let body = &place.server.model_requests()[request].body;
    body["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn the_system_prompt_says_how_to_finish_the_job() {
    let place = Place::new(script![text("hi")]);
    place.ask("hello", []).ok();
    let system = system(&place);
    for words in [
        "Nobody answers questions in this run",
        "say which you chose",
        "First list what is required",
        "as a stranger would",
        "Remove what you made only to try something",
        "Fix causes, not symptoms",
        "after two failures test what you assume",
        "Commands have no terminal",
        "-y, -m and heredocs; tmux or expect",
        "time limit",
        "not again after",
        "older parts of it are summarised",
        "Background commands end with this session",
    ] {
        assert!(system.contains(words), "{words:?} is not in {system}");
    }
}

#[test]
fn the_place_is_described_in_the_first_request() {
    let place = Place::new(script![text("hi")]);
    place.ask("hello", ["--permission-mode", "accept-edits"]).ok();
    let facts = messages(&place, 0);
    for words in [
        "git: branch main at ",
        "platform: linux",
        "shell: bash",
        "model: test-model",
        "permission mode: accept-edits",
    ] {
        assert!(facts.contains(words), "{words:?} is not in {facts}");
    }
}

/// Before the first calls run, once in a conversation, and not where the model calls nothing.
#[test]
fn what_has_changed_and_the_last_commits_are_told_with_the_results_of_the_first_calls() {
    let steps = script![write("second.txt", "x"), bash("true"), text("done"), bash("true"), text("hi")];
    let place = Place::new(steps);
    place.env.write(place.repo.join("new file.txt"), "x");
    let told =
        "The repository before your first call:\\ngit status:\\n?? \\\"new file.txt\\\"\\nlast commits:\\n";
    place.ask("write", ["--permission-mode", "accept-edits"]).ok();
    assert!(!messages(&place, 0).contains("git status"), "{}", messages(&place, 0));
    assert!(messages(&place, 1).contains(told), "{}", messages(&place, 1));
    assert_eq!(messages(&place, 2).matches("git status").count(), 1);
    place.ask("go on", ["--continue", "--permission-mode", "accept-edits"]).ok();
    assert_eq!(messages(&place, 4).matches("git status").count(), 1);
}

#[test]
fn plan_mode_is_told_and_offers_nothing_that_writes() {
    let place = Place::new(script![text("the plan"), text("done")]);
    place.ask("plan it", ["--permission-mode", "plan"]).ok();
    assert!(messages(&place, 0).contains("Permission mode plan: look, and change nothing"));
    let names = tool_names(&place, 0);
    assert!(!names.iter().any(|name| name == "Edit" || name == "Write"), "{names:?}");
    assert!(names.iter().any(|name| name == "Read") && names.iter().any(|name| name == "Bash"), "{names:?}");
    // The same session in another mode has them again.
    place.ask("now do it", ["--continue", "--permission-mode", "accept-edits"]).ok();
    let names = tool_names(&place, 1);
    assert!(names.iter().any(|name| name == "Edit"), "{names:?}");
}

#[test]
fn patches_are_offered_to_the_gpt_family_only() {
    for (model, offered) in [
        ("gpt-5.2", true),
        ("openai/gpt-5", true),
        ("codex-mini-latest", true),
        ("claude-opus-5-5", false),
        ("not-gpt-5", false),
    ] {
        let server = ModelServer::builder(script![text("hi")]).known_models([model]).start();
        let place = Place::with(server, Protocol::Responses);
        place.ask("hello", []).ok();
        let names = tool_names(&place, 0);
        assert_eq!(names.iter().any(|name| name == "apply_patch"), offered, "{model}: {names:?}");
        assert!(names.iter().any(|name| name == "Edit"), "{model}: {names:?}");
    }
}

#[test]
fn a_web_search_is_offered_where_a_service_is_set_and_nowhere_else() {
    let offered = |settings: &str| {
        let place = Place::new(script![text("hi")]);
        place.env.write(place.env.config().join("caliban/settings.toml"), settings);
        place.ask("hello", []).ok();
        tool_names(&place, 0).iter().any(|name| name == "WebSearch")
    };
    assert!(!offered(""));
    assert!(!offered("[web]\nsearch_headers = { Authorization = \"Bearer x\" }\n"));
    assert!(offered("[web]\nsearch_url = \"http://127.0.0.1:9/?q={query}\"\n"));
}

#[test]
fn instructions_of_a_directory_come_with_the_first_file_of_it() {
    let place = Place::new(script![
        tool("Read", json!({"file_path": "web/src/a.js"})),
        tool("Read", json!({"file_path": "web/src/b.js"})),
        text("read"),
    ]);
    place.env.write(place.env.home().join(".claude/CLAUDE.md"), "my own habits");
    place.env.write(place.env.home().join(".codex/AGENTS.md"), "habits for codex");
    place.env.write(place.repo.join("CLAUDE.md"), "top, see @docs/style.md and @../../outside.md");
    place.env.write(place.repo.join("docs/style.md"), "two spaces");
    place.env.write(place.repo.join("CLAUDE.local.md"), "only mine");
    place.env.write(place.repo.join("web/AGENTS.md"), "the web part");
    place.env.write(place.repo.join("web/src/a.js"), "a");
    place.env.write(place.repo.join("web/src/b.js"), "b");
    place.ask("read them", []).ok();
    let first = messages(&place, 0);
    for words in ["my own habits", "habits for codex", "two spaces", "only mine"] {
        assert!(first.contains(words), "{words} is not in {first}");
    }
    assert!(!first.contains("the web part"), "{first}");
    let counts: Vec<usize> =
        (0..3).map(|request| messages(&place, request).matches("the web part").count()).collect();
    assert_eq!(counts, [0, 1, 1], "once");
}

#[test]
fn a_mentioned_file_goes_along_and_one_that_may_not_be_read_does_not() {
    let place = Place::new(script![text("seen")]);
    place.env.write(place.repo.join("notes.txt"), "the word is plugh");
    place.env.write(place.env.home().join("private.txt"), "not for models");
    place.env.write(place.repo.join("denied.txt"), "nor this");
    image::DynamicImage::new_rgb8(4, 4).save(place.repo.join("shot.png")).unwrap();
    let prompt =
        format!("read @notes.txt, @shot.png @denied.txt and @{}/private.txt", place.env.home().display());
    let piped = "@notes2.txt";
    place.env.write(place.repo.join("notes2.txt"), "from a pipe");
    let run = place.caliban().args(["-p", &prompt, "--deny", "Read(denied.txt)"]).stdin(piped.to_owned());
    run.output().ok();
    let sent = messages(&place, 0);
    assert!(sent.contains("the word is plugh") && sent.contains("image/png"), "{sent}");
    for words in ["not for models", "nor this", "from a pipe"] {
        assert!(!sent.contains(words), "{words} is in {sent}");
    }
}

#[test]
fn a_mentioned_file_goes_along_on_the_screen_and_in_the_background() {
    let place = Place::new(script![text("seen"), text("seen").forever()]);
    place.env.write(place.repo.join("notes.txt"), "the word is plugh");
    let tmux = open(&place, "'read @notes.txt'");
    tmux.wait_for_text("seen");
    assert!(messages(&place, 0).contains("the word is plugh"), "{}", messages(&place, 0));
    leave(&tmux);
    place.env.write(place.repo.join("notes2.txt"), "from a pipe");
    let args = ["--bg", "read @notes.txt", "--isolation", "none"];
    place.caliban().args(args).stdin("@notes2.txt".to_owned()).output().ok();
    wait_until("the background agent asks", || place.server.model_requests().len() > 1);
    let sent = messages(&place, 1);
    assert!(sent.contains("the word is plugh") && !sent.contains("from a pipe"), "{sent}");
    place.verb(["daemon", "stop"]).ok();
}

#[test]
fn commands_of_an_unattended_agent_have_everything_but_secrets_and_bare_repositories_work() {
    let command = "echo \"$HF_HOME|$GITHUB_TOKEN\"; git init -q --bare ../server.git && git -C ../server.git rev-parse --is-bare-repository";
    for (mode, trusted, expected) in [
        ("unattended", false, "/models|\\ntrue"),
        ("default", false, "|\\n"),
        ("default", true, "/models|\\ntrue"),
    ] {
        let mut place = Place::new(script![bash(command), text("ran")]);
        if trusted {
            // Also a repo that has no settings of its own.
            place.verb(["trust"]).ok();
        }
        place.env.set("HF_HOME", "/models");
        place.env.set("GITHUB_TOKEN", "ghp_0123456789abcdefghij0123456789abcdef");
        place.ask("run it", ["--permission-mode", mode, "--allow", "Bash(*) outside"]).ok();
        let requests = place.server.model_requests();
        let result: &Value = &requests[1].body["messages"][2]["content"][0]["content"];
        assert!(result.to_string().contains(expected), "{mode}: {result}");
        let facts = messages(&place, 0);
        assert!(facts.contains("not passed on to commands: ") && facts.contains("GITHUB_TOKEN"), "{facts}");
        assert_eq!(facts.contains("HF_HOME"), mode == "default" && !trusted, "{facts}");
    }
}
