//! Turns, as one client sees them.

use std::sync::Arc;

use caliban_acp::{
    ClientError,
    v1::{SessionUpdate, StopReason, ToolCallContent, ToolCallStatus, ToolKind},
};
use caliban_acp_host::Sessions;
use caliban_agent::feed::FeedEntry;
use caliban_core::budget;
use serde_json::json;

use crate::world::{Item, Watcher, World, calls, fold};

async fn client_of(world: World) -> (Watcher, String, Arc<World>) {
    let world = Arc::new(world);
    let sessions = Arc::new(Sessions::made_by(world.clone()));
    let mut watcher = Watcher::connect(&sessions).await;
    let session = watcher.new_session(&world, Vec::new()).await;
    (watcher, session, world)
}

#[tokio::test]
async fn a_turn_streams_thoughts_text_and_tool_calls_and_ends_with_its_cost() {
    let world = World::new(json!({"steps": [
        {"thinking": "let me see", "text": "I read it.", "chunks": 3,
         "tool_calls": [{"name": "Read", "input": {"file_path": "a.txt"}}],
         "usage": {"input": 100, "output": 10}},
        {"text": "It says hello.", "usage": {"input": 50, "output": 5, "cache_read": 60}},
    ]}));
    std::fs::write(world.root().join("a.txt"), "hello\n").unwrap();
    let (mut watcher, session, world) = client_of(world).await;
    let answer = watcher.prompt(&session, "what is in a.txt?").await;
    assert_eq!(answer.stop_reason, StopReason::EndTurn);
    let usage = serde_json::to_value(answer.usage).unwrap();
    assert_eq!(
        usage,
        json!({"totalTokens": 225, "inputTokens": 150, "outputTokens": 15, "cachedReadTokens": 60, "cachedWriteTokens": 0})
    );
    let view = watcher.view();
    let Some(Item::Tool(call)) = view.get(3) else { panic!("{view:?}") };
    assert_eq!(
        (call.title.as_str(), call.kind, call.status, call.locations[0].path.clone()),
        ("Read: a.txt", ToolKind::Read, ToolCallStatus::Completed, world.root().join("a.txt"))
    );
    assert_eq!(call.raw_input, Some(json!({"file_path": "a.txt"})));
    assert!(format!("{:?}", call.content).contains("hello"), "{:?}", call.content);
    let others: Vec<&Item> = view.iter().filter(|item| !matches!(item, Item::Tool(_))).collect();
    assert_eq!(
        others,
        [
            &Item::Title("what is in a.txt?".into()),
            &Item::Thought("let me see".into()),
            &Item::Agent("I read it.".into()),
            &Item::Agent("It says hello.".into()),
        ]
    );
    let used: Vec<u64> = watcher
        .updates
        .iter()
        .filter_map(|update| match update {
            SessionUpdate::UsageUpdate(usage) => Some(usage.used),
            _ => None,
        })
        .collect();
    assert_eq!(used, [110, 115, 115]);
    let commands = watcher.updates.iter().find_map(|update| match update {
        SessionUpdate::AvailableCommandsUpdate(update) => Some(update.available_commands.clone()),
        _ => None,
    });
    let names: Vec<String> = commands.unwrap().into_iter().map(|command| command.name).collect();
    assert_eq!(names, ["compact", "help", "status"]);
}

/// 28.5: the tokens beside the session's dollars are the session's, and never run backwards.
#[tokio::test]
async fn tokens_are_the_sessions_and_not_those_of_the_last_turn() {
    let (mut watcher, session, _world) = client_of(World::new(json!({"steps": [
        {"text": "one", "usage": {"input": 100, "output": 10}},
        {"text": "two", "usage": {"input": 50, "output": 5, "cache_read": 60}},
    ]})))
    .await;
    watcher.prompt(&session, "go").await;
    watcher.prompt(&session, "go on").await;
    let tokens = |update: &SessionUpdate| match update {
        SessionUpdate::UsageUpdate(usage) => {
            caliban_acp::extension::field(usage.meta.as_ref(), "tokens")?.as_u64()
        }
        _ => None,
    };
    let told: Vec<u64> = watcher.updates.iter().filter_map(tokens).collect();
    assert!(told.is_sorted() && told.last() == Some(&225), "{told:?}");
}

#[tokio::test]
async fn a_todo_list_is_a_plan() {
    let (mut watcher, session, _world) = client_of(World::new(json!({"steps": [
        {"tool_calls": [{"name": "TodoWrite", "input": {"todos": [
            {"content": "look", "status": "completed"}, {"content": "mend", "status": "in_progress"},
        ]}}]},
        {"text": "ok"},
    ]})))
    .await;
    watcher.prompt(&session, "go").await;
    let plan = Item::Plan(vec![("look".into(), "Completed".into()), ("mend".into(), "InProgress".into())]);
    assert!(watcher.view().contains(&plan), "{:?}", watcher.view());
}

#[tokio::test]
async fn an_edit_is_shown_as_a_change() {
    let world = World::new(json!({"steps": [
        {"tool_calls": [{"name": "Edit", "input": {"file_path": "a.txt", "old_string": "one", "new_string": "two"}}]},
        {"text": "done"},
    ]}));
    std::fs::write(world.root().join("a.txt"), "one\n").unwrap();
    let (mut watcher, session, world) = client_of(world).await;
    let client = watcher.client.clone();
    watcher.run(client.set_mode(&session, "accept-edits")).await.unwrap();
    watcher.prompt(&session, "go").await;
    let view = watcher.view();
    let Some(Item::Tool(call)) = view.iter().find(|item| matches!(item, Item::Tool(_))) else {
        panic!("{view:?}")
    };
    assert_eq!(call.status, ToolCallStatus::Completed);
    let [ToolCallContent::Diff(diff)] = call.content.as_slice() else { panic!("{:?}", call.content) };
    assert_eq!(
        (diff.path.clone(), diff.old_text.as_deref(), diff.new_text.as_str()),
        (world.root().join("a.txt"), Some("one"), "two")
    );
    assert_eq!(std::fs::read_to_string(world.root().join("a.txt")).unwrap(), "two\n");
}

#[tokio::test]
async fn cancel_ends_the_turn_and_the_session_goes_on() {
    let (world, gate) = World::gated(json!({"steps": [{"text": "second"}]}));
    let (mut watcher, session, _world) = client_of(world).await;
    let prompt = tokio::spawn(watcher.begin(&session, "first"));
    watcher
        .until(|watcher| watcher.updates.iter().any(|it| matches!(it, SessionUpdate::SessionInfoUpdate(_))))
        .await;
    watcher.client.cancel(&session).await.unwrap();
    let answer = watcher.run(prompt).await.unwrap().unwrap();
    assert_eq!(answer.stop_reason, StopReason::Cancelled);
    gate.add_permits(1);
    let answer = watcher.prompt(&session, "again").await;
    assert_eq!((answer.stop_reason, watcher.text()), (StopReason::EndTurn, "second".into()));
}

#[tokio::test]
async fn cancelling_the_request_cancels_the_turn() {
    let (world, _gate) = World::gated(json!({"steps": [{"text": "never"}]}));
    let (mut watcher, session, _world) = client_of(world).await;
    let client = watcher.client.clone();
    let request = json!({"sessionId": session, "prompt": [{"type": "text", "text": "go"}]});
    let mut pending = watcher.run(client.peer().request("session/prompt", &request)).await.unwrap();
    watcher
        .until(|watcher| watcher.updates.iter().any(|it| matches!(it, SessionUpdate::SessionInfoUpdate(_))))
        .await;
    client.peer().notify("$/cancel_request", &json!({"requestId": 3})).await.unwrap();
    let answer = watcher.run(&mut pending).await.unwrap();
    let answer: serde_json::Value = serde_json::from_str(answer.get()).unwrap();
    assert_eq!(answer["stopReason"], "cancelled");
}

#[tokio::test]
async fn a_failure_is_an_error_with_a_hint() {
    let (mut watcher, session, _world) = client_of(World::new(json!({"steps": [
        {"text": "x", "fault": {"kind": "status", "status": 401, "times": 9}},
    ]})))
    .await;
    let client = watcher.client.clone();
    let error = watcher.run(client.prompt(&session, vec!["go".into()])).await.unwrap_err();
    let ClientError::Call(caliban_acp::connection::CallError::Refused(refused)) = &error else {
        panic!("{error:?}")
    };
    assert_eq!(i32::from(refused.code), -32603);
    assert_eq!(refused.data.as_ref().unwrap()["outcome"]["kind"], "failed");
    assert!(error.hint().is_some(), "{error:?}");
}

#[tokio::test]
async fn limits_are_said_in_text_and_in_meta() {
    let script = json!({"steps": [{"repeat": true, "text": "more", "tool_calls": [{"name": "Glob", "input": {"pattern": "*"}}]}]});
    let (mut watcher, session, _world) = client_of(World::new(script.clone()).with_max_turns(2)).await;
    let answer = watcher.prompt(&session, "go").await;
    assert_eq!(answer.stop_reason, StopReason::MaxTurnRequests);
    assert_eq!(answer.meta.unwrap()["caliban"]["outcome"], json!({"kind": "turn_limit", "limit": 2}));
    assert!(
        watcher.text().ends_with("[stopped: the limit of 2 model requests is reached]"),
        "{}",
        watcher.text()
    );

    let limits = budget::Limits { tokens: Some(10), ..budget::Limits::NONE };
    let (mut watcher, session, _world) = client_of(World::new(script).with_budget(limits)).await;
    let answer = watcher.prompt(&session, "go").await;
    assert_eq!(answer.stop_reason, StopReason::MaxTurnRequests);
    assert_eq!(answer.meta.unwrap()["caliban"]["outcome"]["kind"], "budget");
    assert!(watcher.text().contains("[stopped: "), "{}", watcher.text());
}

#[tokio::test]
async fn the_model_s_own_stops_are_told_apart() {
    for (stop, expected) in [("refusal", StopReason::Refusal), ("max_tokens", StopReason::MaxTokens)] {
        let script = json!({"steps": [{"repeat": true, "text": "well", "stop": stop}]});
        let (mut watcher, session, _world) = client_of(World::new(script)).await;
        assert_eq!(watcher.prompt(&session, "go").await.stop_reason, expected);
    }
}

#[tokio::test]
async fn a_cut_stream_is_said_and_begun_again() {
    let (mut watcher, session, _world) = client_of(World::new(json!({"steps": [
        {"text": "abcdef", "chunks": 3, "tool_calls": [{"name": "Glob", "input": {"pattern": "*"}}],
         "fault": {"kind": "cut", "after_chunks": 2}},
        {"text": "end"},
    ]})))
    .await;
    assert_eq!(watcher.prompt(&session, "go").await.stop_reason, StopReason::EndTurn);
    let text = watcher.text();
    assert!(text.starts_with("abcd\n\n[cut off ("), "{text}");
    assert!(text.ends_with("starting again]\n\nabcdefend"), "{text}");
    assert_eq!(calls(&watcher.view()), [("Glob: *".to_owned(), ToolCallStatus::Completed)]);
}

#[tokio::test]
async fn commands_are_carried_out_here_and_unknown_ones_go_to_the_model() {
    let script = json!({"steps": [{"when": {"contains": "/usr/bin"}, "text": "a path"}]});
    let (mut watcher, session, _world) = client_of(World::new(script)).await;
    assert_eq!(watcher.prompt(&session, "/status").await.stop_reason, StopReason::EndTurn);
    assert!(watcher.text().contains("permission mode: default"), "{}", watcher.text());
    watcher.updates.clear();
    watcher.prompt(&session, "/compact").await;
    assert_eq!(watcher.text(), "The conversation is compacted.");
    watcher.updates.clear();
    watcher.prompt(&session, "/usr/bin is what?").await;
    assert_eq!(watcher.text(), "a path");
}

#[tokio::test]
async fn a_loaded_session_shows_what_the_live_one_showed() {
    let world = World::new(json!({"steps": [
        {"thinking": "hm", "text": "first I look.", "chunks": 4, "tool_calls": [
            {"name": "Read", "input": {"file_path": "a.txt"}}, {"name": "Glob", "input": {"pattern": "*"}},
            {"name": "Read", "input": {"file_path": "missing.txt"}},
            {"name": "Edit", "input": {"file_path": "a.txt", "old_string": "hello", "new_string": "bye"}},
        ]},
        {"text": "that is all.", "chunks": 2},
        {"text": "and more.", "chunks": 2},
    ]}));
    std::fs::write(world.root().join("a.txt"), "hello\n").unwrap();
    let (mut watcher, session, world) = client_of(world).await;
    let client = watcher.client.clone();
    watcher.run(client.set_mode(&session, "accept-edits")).await.unwrap();
    watcher.prompt(&session, "look").await;
    watcher.prompt(&session, "more").await;
    let live = without_prompts(&watcher.view());

    // On the same connection, from memory.
    watcher.updates.clear();
    watcher.run(client.load_session(&session, &world.root())).await.unwrap();
    let from_memory = watcher.view();
    assert_eq!(without_prompts(&from_memory), live);
    let prompts: Vec<Item> =
        from_memory.iter().filter(|item| matches!(item, Item::User(_))).cloned().collect();
    assert_eq!(prompts, [Item::User("look".into()), Item::User("more".into())]);
    watcher.run(client.close_session(&session)).await.unwrap();
    watcher.until(|watcher| !watcher.closed.is_empty()).await;

    // In another process, from the disk.
    let sessions = Arc::new(Sessions::made_by(world.clone()));
    let mut later = Watcher::connect(&sessions).await;
    let client = later.client.clone();
    later.run(client.load_session(&session, &world.root())).await.unwrap();
    assert_eq!(later.view(), from_memory);
    assert_eq!(fold(&later.updates), later.view());
}

fn without_prompts(items: &[Item]) -> Vec<Item> {
    items.iter().filter(|item| !matches!(item, Item::User(_))).cloned().collect()
}

#[tokio::test]
async fn sessions_are_made_listed_and_closed_by_the_client() {
    let world = Arc::new(World::new(json!({"steps": [{"repeat": true, "text": "hi"}]})));
    let sessions = Arc::new(Sessions::made_by(world.clone()));
    let mut watcher = Watcher::connect(&sessions).await;
    assert!(watcher.client.agent.agent_capabilities.load_session);
    let server = json!({"name": "x", "command": "/bin/x", "args": ["a"], "env": []});
    let servers = vec![serde_json::from_value(server).unwrap()];
    let first = watcher.new_session(&world, servers.clone()).await;
    let second = watcher.new_session(&world, Vec::new()).await;
    assert_eq!((first.as_str(), second.as_str()), ("s1", "s2"));
    assert_eq!(world.wanted.lock().unwrap()[0].mcp_servers, servers);
    for session in [&first, &second] {
        watcher.prompt(session, "hello").await;
    }
    let client = watcher.client.clone();
    let listed = watcher.run(client.list_sessions()).await.unwrap();
    assert_eq!(listed.sessions.len(), 1);
    watcher.run(client.close_session(&first)).await.unwrap();
    let error = watcher.run(client.prompt(&first, vec!["x".into()])).await.unwrap_err();
    assert!(
        matches!(error, ClientError::Call(caliban_acp::connection::CallError::Refused(error)) if i32::from(error.code) == -32002)
    );
    watcher.prompt(&second, "still here").await;
    let error =
        watcher.run(client.new_session(std::path::Path::new("/nowhere"), Vec::new())).await.unwrap_err();
    assert_eq!((error.to_string(), error.hint()), ("no such directory".into(), Some("make it".into())));
    let error = watcher.run(client.load_session("none", &world.root())).await.unwrap_err();
    assert!(
        matches!(error, ClientError::Call(caliban_acp::connection::CallError::Refused(error)) if i32::from(error.code) == -32002)
    );
    sessions.close_all().await;
}

#[tokio::test]
async fn a_prompt_the_agent_cannot_take_is_refused_in_words() {
    let (mut watcher, session, _world) = client_of(World::new(json!({"steps": []}))).await;
    let client = watcher.client.clone();
    for (session, code) in [(session.as_str(), -32602), ("none", -32002)] {
        let error =
            watcher.run(client.prompt(session, if code == -32602 { vec![] } else { vec!["x".into()] })).await;
        let Err(ClientError::Call(caliban_acp::connection::CallError::Refused(error))) = error else {
            panic!("{error:?}")
        };
        assert_eq!(i32::from(error.code), code);
    }
    let error = watcher.run(client.set_mode(&session, "yolo")).await.unwrap_err();
    assert!(error.to_string().contains("Invalid params"), "{error}");
}

#[tokio::test]
async fn output_of_a_running_command_is_shown_while_it_runs() {
    let world = World::new(json!({"steps": []}));
    let host = world.host("s").await;
    let sessions = Arc::new(Sessions::only(host.clone()));
    let mut watcher = Watcher::attach(&sessions, &host).await;
    let feed = host.handle().feed().clone();
    feed.push(FeedEntry::ToolUse { id: "c".into(), name: "Bash".into() });
    feed.push(FeedEntry::ToolOutput { id: "c".into(), text: "compiling\n".repeat(3_000) });
    let shown = |update: &SessionUpdate| match update {
        SessionUpdate::ToolCallUpdate(update) => update.fields.content.clone(),
        _ => None,
    };
    watcher.until(|watcher| watcher.updates.iter().any(|update| shown(update).is_some())).await;
    let content = watcher.updates.iter().find_map(shown).unwrap();
    let [ToolCallContent::Content(content)] = content.as_slice() else { panic!("{content:?}") };
    let caliban_acp::v1::ContentBlock::Text(text) = &content.content else { panic!("{content:?}") };
    assert!(text.text.len() < 9_000 && text.text.ends_with("compiling\n```"), "{}", text.text.len());
    host.close().await;
}
