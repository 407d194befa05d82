//! The loop's own limits and what it does with replies that are not as they should be.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
};

use caliban_agent::{
    Agent, AgentLimits,
    event::{Answer, CallVerdict, Event, Outcome},
    hooks::{ClosureHook, HookAnswer, HookEvent, HookPermission},
    transcript,
};
use caliban_core::{
    budget,
    message::{Block, Message, Role, StopReason},
    usage::Usage,
};
use caliban_permissions::{Effect, Mode};
use caliban_providers::{
    Billed, BoxFuture, ModelReply, ModelRequest, Provider, ProviderError, ProviderKind, Watch,
};
use caliban_store::{StoreUrl, ledger::Ledger};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::world::{World, answer, asked, prompt};

fn staged(name: &str) -> Value {
    json!({"name": "Staged", "input": {"name": name}})
}

/// The texts of all prompts that the model was given.
fn prompts(world: &World) -> Vec<String> {
    let records = transcript::read(&world.session()).unwrap();
    records.iter().filter_map(|record| record.event.typed()).collect()
}

#[tokio::test]
async fn the_turn_limit_is_the_number_of_requests() {
    let world = World::new(json!({"steps": [{"repeat": true, "tool_calls": [staged("a")]}]}));
    let mut kit = world.kit();
    Arc::make_mut(&mut kit.shared).limits = AgentLimits { max_turns: 3 };
    let mut agent = Agent::new(kit).await.unwrap();
    let report = prompt(&mut agent, "go").await;
    assert_eq!((report.outcome, report.turns), (Outcome::TurnLimit { limit: 3 }, 3));
}

#[tokio::test]
async fn an_answer_that_is_cut_off_is_continued_three_times_and_is_then_no_answer() {
    let world = World::new(json!({"steps": [{"repeat": true, "text": "more", "stop": "max_tokens"}]}));
    let mut agent = Agent::new(world.kit()).await.unwrap();
    let report = prompt(&mut agent, "go").await;
    assert_eq!((report.turns, report.text.as_str()), (4, "moremoremoremore"));
    assert!(
        matches!(&report.outcome, Outcome::Failed { error, .. } if error.contains("is not whole")),
        "{:?}",
        report.outcome
    );
}

#[tokio::test]
async fn an_answer_whose_continuation_fails_or_stays_empty_is_told_once() {
    let half = ModelReply { stop: StopReason::MaxTokens, ..says("half") };
    let empty = || Ok(says(""));
    let failed = || -> Result<ModelReply, ProviderError> {
        Err(ProviderError::NoKey { provider: ProviderKind::Anthropic })
    };
    for answers in [vec![Ok(half.clone()), failed()], vec![Ok(half.clone()), empty(), empty(), empty()]] {
        let world = World::new(json!({"steps": []}));
        let mut kit = world.kit();
        kit.provider = Told::new(answers);
        let mut agent = Agent::new(kit).await.unwrap();
        let report = prompt(&mut agent, "go").await;
        assert_eq!(report.text, "half", "{:?}", report.outcome);
        assert!(matches!(report.outcome, Outcome::Failed { .. }), "{:?}", report.outcome);
    }
}

#[tokio::test]
async fn a_stop_hook_sends_the_agent_back_five_times_at_most() {
    let mut world = World::new(json!({"steps": [{"repeat": true, "text": "done"}]}));
    let hook: ClosureHook = Arc::new(|event, _: &Value| HookAnswer {
        block: (event == HookEvent::Stop).then(|| "not yet".to_owned()),
        ..HookAnswer::default()
    });
    world.hooks = vec![hook];
    let mut agent = Agent::new(world.kit()).await.unwrap();
    let report = prompt(&mut agent, "go").await;
    assert_eq!((report.outcome, report.turns), (Outcome::Done, 6));
    assert_eq!(prompts(&world).iter().filter(|text| *text == "not yet").count(), 5);
}

/// A model that does what it is told here, one thing for each request.
pub(crate) struct Told {
    answers: Mutex<VecDeque<Result<ModelReply, ProviderError>>>,
    pub(crate) asked: Mutex<Vec<Vec<Message>>>,
}

impl Told {
    pub(crate) fn new(answers: Vec<Result<ModelReply, ProviderError>>) -> Arc<Self> {
        Arc::new(Self { answers: Mutex::new(answers.into()), asked: Mutex::default() })
    }
}

impl Provider for Told {
    fn name(&self) -> &str {
        "told"
    }

    fn respond<'a>(
        &'a self,
        request: ModelRequest<'a>,
        watch: &'a mut dyn Watch,
        _: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<ModelReply, ProviderError>> {
        Box::pin(async move {
            watch.before_attempt().await.map_err(|_| ProviderError::Stopped)?;
            self.asked.lock().unwrap().push(request.messages.to_vec());
            let answer = self.answers.lock().unwrap().pop_front();
            match answer {
                Some(answer) => answer,
                // It never answers.
                None => std::future::pending().await,
            }
        })
    }
}

pub(crate) fn reply(blocks: Vec<Block>) -> ModelReply {
    let called = blocks.iter().any(|block| matches!(block, Block::ToolUse { .. }));
    ModelReply {
        message: Message { role: Role::Assistant, blocks },
        usage: Usage { input: 10, output: 1, ..Usage::default() },
        stop: if called { StopReason::ToolUse } else { StopReason::EndTurn },
        model: "told".into(),
    }
}

pub(crate) fn says(text: &str) -> ModelReply {
    reply(vec![Block::Text { text: text.into() }])
}

pub(crate) fn call(id: &str, name: &str) -> Block {
    Block::ToolUse { id: id.into(), name: "Staged".into(), input: json!({"name": name}), extra: None }
}

#[tokio::test]
async fn a_request_that_was_cut_off_may_be_on_the_bill_and_counts() {
    let world = World::new(json!({"steps": []}));
    let mut kit = world.kit();
    let model = Told::new(Vec::new());
    kit.provider = model.clone();
    let purse = kit.purse.clone();
    let mut agent = Agent::new(kit).await.unwrap();
    let cancel = CancellationToken::new();
    let message = Message::user("go");
    let turn = agent.prompt(message, caliban_agent::event::Author::User, &cancel);
    let stop = async {
        while model.asked.lock().unwrap().is_empty() {
            tokio::task::yield_now().await;
        }
        cancel.cancel();
    };
    let (report, ()) = tokio::join!(turn, stop);
    assert_eq!(report.outcome, Outcome::Cancelled);
    assert!(purse.spent().usage.total() > 0, "its estimate counts");
}

#[tokio::test]
async fn a_request_that_is_too_long_is_made_again_when_there_is_room() {
    let world = World::new(json!({"steps": []}));
    let mut kit = world.kit();
    let too_long = || ProviderError::ContextTooLong { model: "told".into(), reason: "too long".into() };
    let usage = Usage { input: 10, output: 10_000, ..Usage::default() };
    let long = ModelReply { usage, ..says(&"x".repeat(40_000)) };
    let model = Told::new(vec![Ok(long), Err(too_long()), Ok(says("the summary")), Ok(says("done"))]);
    kit.provider = model.clone();
    let purse = kit.purse.clone();
    let mut agent = Agent::new(kit).await.unwrap();
    prompt(&mut agent, "the task").await;
    let report = prompt(&mut agent, &"y".repeat(4_000)).await;
    assert_eq!((report.outcome, report.text.as_str()), (Outcome::Done, "done"));
    // The long answer and two of 11 tokens, the summary among them; what was refused is not on the bill.
    assert_eq!(purse.spent().usage.total(), 10_010 + 22);
    let asked = model.asked.lock().unwrap();
    let last: String = asked[3].iter().map(Message::text).collect();
    assert!(last.contains("the summary") && !last.contains("xxxx"), "{} characters", last.len());
    assert!(last.contains(&"y".repeat(4_000)), "the prompt that is to be answered is there");
}

#[tokio::test]
async fn a14_arguments_that_are_nested_too_deep_become_text_and_the_transcript_can_be_read() {
    let deep = (0..100).fold(json!(1), |inner, _| json!([inner]));
    let block =
        Block::ToolUse { id: "1".into(), name: "Staged".into(), input: json!({"name": deep}), extra: None };
    let world = World::new(json!({"steps": []}));
    let mut kit = world.kit();
    kit.provider = Told::new(vec![Ok(reply(vec![block])), Ok(says("done"))]);
    let mut agent = Agent::new(kit).await.unwrap();
    assert_eq!(prompt(&mut agent, "go").await.outcome, Outcome::Done);
    let records = transcript::read(&world.session()).unwrap();
    let refused = records.iter().find_map(|record| match &record.event {
        Event::CallRefused { decision, .. } => Some(decision.verdict),
        _ => None,
    });
    assert_eq!(refused, Some(CallVerdict::Invalid));
}

#[tokio::test]
async fn calls_without_an_id_of_their_own_get_one() {
    let world = World::new(json!({"steps": []}));
    let mut kit = world.kit();
    let model = Told::new(vec![
        Ok(reply(vec![call("", "a"), call("", "b"), call("x", "c"), call("x", "d")])),
        Ok(reply(vec![call("x", "e")])),
        Ok(says("done")),
    ]);
    kit.provider = model.clone();
    let mut agent = Agent::new(kit).await.unwrap();
    assert_eq!(prompt(&mut agent, "go").await.outcome, Outcome::Done);
    let asked = model.asked.lock().unwrap();
    let ids = |role: Role| -> Vec<String> {
        let blocks =
            asked[2].iter().filter(|message| message.role == role).flat_map(|message| &message.blocks);
        blocks
            .filter_map(|block| match block {
                Block::ToolUse { id, .. } | Block::ToolResult { id, .. } => Some(id.clone()),
                _ => None,
            })
            .collect()
    };
    assert_eq!(ids(Role::Assistant), ["call_2", "call_3", "x", "x_2", "x_3"]);
    assert_eq!(ids(Role::User), ids(Role::Assistant));
    assert_eq!(world.stage.log().iter().filter(|line| line.ends_with("ends")).count(), 5);
}

#[tokio::test]
async fn r17_a_call_that_had_begun_is_not_begun_again() {
    let world = World::new(json!({"steps": [{"tool_calls": [staged("a"), staged("b")]}, {"text": "done"}]}));
    world.stage.hold("a");
    let mut agent = Agent::new(world.kit()).await.unwrap();
    tokio::select! {
        report = prompt(&mut agent, "go") => panic!("{report:?}"),
        () = world.stage.reached("b ends") => {}
    }
    agent.close().await;
    world.stage.release("a");
    let mut agent = Agent::resume(world.kit()).await.unwrap();
    let report = agent.go_on(&CancellationToken::new()).await;
    assert_eq!(report.outcome, Outcome::Done);
    let begun = world.stage.log().iter().filter(|line| *line == "a begins").count();
    assert_eq!(begun, 1, "{:?}", world.stage.log());
}

#[tokio::test]
async fn r20_what_an_earlier_process_and_its_helpers_spent_counts_after_a_resume() {
    let step = |task: &str, text: &str, input: u64| json!({"when": {"first_prompt_contains": task}, "text": text, "usage": {"input": input, "output": 0}});
    let helper = json!({"when": {"first_prompt_contains": "the task"}, "usage": {"input": 100, "output": 0},
        "tool_calls": [{"name": "AgentTool", "input": {"prompt": "the helper's job"}}]});
    let mut world = World::new(json!({"steps": [
        helper, step("the helper's job", "helped", 2_000), step("the task", "done", 30_000), step("the task", "more", 1),
    ]}));
    let mut agent = Agent::new(world.kit()).await.unwrap();
    assert_eq!(prompt(&mut agent, "the task").await.outcome, Outcome::Done);
    agent.close().await;
    world.budget = budget::Limits { tokens: Some(32_150), ..budget::Limits::NONE };
    let kit = world.kit();
    let mut agent = Agent::resume(kit.clone()).await.unwrap();
    assert_eq!(kit.purse.spent().usage.total(), 32_100);
    let report = prompt(&mut agent, "more").await;
    assert!(matches!(report.outcome, Outcome::Budget { .. }), "{:?}", report.outcome);
}

#[tokio::test]
async fn a_hook_that_allows_does_not_beat_a_rule_that_denies() {
    let mut world = World::new(json!({"steps": [
        {"tool_calls": [{"name": "Staged", "input": {"name": "a", "write": "x"}}]}, {"text": "done"},
    ]}));
    let hook: ClosureHook = Arc::new(|event, _: &Value| HookAnswer {
        permission: (event == HookEvent::PreToolUse).then_some(HookPermission::Allow),
        ..HookAnswer::default()
    });
    world.hooks = vec![hook];
    let kit = world.kit();
    kit.policy.write().unwrap().add(Effect::Deny, "Edit(x)".parse().unwrap(), "test");
    let mut agent = Agent::new(kit).await.unwrap();
    let report = prompt(&mut agent, "go").await;
    assert_eq!((report.refused.len(), world.stage.log().len()), (1, 0));
}

#[tokio::test]
async fn what_is_cancelled_before_it_begins_does_not_begin() {
    let world = World::new(json!({"steps": [{"tool_calls": [
        {"name": "Staged", "input": {"name": "a", "write": "x"}},
        {"name": "Staged", "input": {"name": "b", "write": "x"}},
    ]}]}));
    world.stage.hold("a");
    let kit = world.kit();
    kit.policy.write().unwrap().mode = Mode::Unattended;
    let mut agent = Agent::new(kit).await.unwrap();
    let cancel = CancellationToken::new();
    let turn = agent.prompt(Message::user("go"), caliban_agent::event::Author::User, &cancel);
    let stop = async {
        world.stage.reached("a begins").await;
        cancel.cancel();
        world.stage.release("a");
    };
    let (report, ()) = tokio::join!(turn, stop);
    assert_eq!(
        (report.outcome, world.stage.log()),
        (Outcome::Cancelled, vec!["a begins".into(), "a ends".into()])
    );
}

#[tokio::test]
async fn an_always_holds_for_the_rest_of_the_session_and_a_no_for_one_call() {
    let write = json!({"name": "Write", "input": {"file_path": "src/a.txt", "content": "x"}});
    let world = World::new(json!({"steps": [
        {"tool_calls": [write]}, {"tool_calls": [write]}, {"tool_calls": [write]}, {"text": "done"},
    ]}));
    let kit = world.kit();
    let mut agent = Agent::new(kit.clone()).await.unwrap();
    let person = async {
        let first = asked(&kit).await;
        assert!(kit.asks.answer(&first, Answer::No(None)));
        while kit.asks.open().is_empty() || asked(&kit).await == first {
            tokio::task::yield_now().await;
        }
        answer(&kit, Answer::Always).await;
    };
    let (report, ()) = tokio::join!(prompt(&mut agent, "go"), person);
    assert_eq!((report.outcome, report.refused.len()), (Outcome::Done, 1));
}

#[tokio::test]
async fn what_does_not_fit_the_window_however_it_is_shortened_is_not_sent() {
    let world = World::new(json!({"steps": []}));
    let mut kit = world.kit();
    kit.window = Some(1_000);
    let model = Told::new(vec![Ok(says("never"))]);
    kit.provider = model.clone();
    let mut agent = Agent::new(kit).await.unwrap();
    let report = prompt(&mut agent, &"x".repeat(10_000)).await;
    assert!(
        matches!(&report.outcome, Outcome::Failed { error, .. } if error.contains("too many")),
        "{report:?}"
    );
    assert!(model.asked.lock().unwrap().is_empty());
}

/// A model that waits for its turn, is refused, waits again, and answers. What the ledger holds at each of these moments.
struct Refusing {
    ledger: std::path::PathBuf,
    held: Mutex<Vec<u64>>,
}

impl Refusing {
    async fn note(&self) {
        let mut ledger = Ledger::open(&StoreUrl::sqlite(&self.ledger)).await.unwrap();
        let held = ledger.in_flight().await.unwrap();
        ledger.close().await;
        self.held.lock().unwrap().push(held);
    }
}

impl Provider for Refusing {
    fn name(&self) -> &str {
        "refusing"
    }

    fn respond<'a>(
        &'a self,
        _: ModelRequest<'a>,
        watch: &'a mut dyn Watch,
        _: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<ModelReply, ProviderError>> {
        Box::pin(async move {
            self.note().await;
            watch.before_attempt().await.unwrap();
            self.note().await;
            watch.attempt_failed(Billed::No).await.unwrap();
            self.note().await;
            watch.before_attempt().await.unwrap();
            self.note().await;
            Ok(says("done"))
        })
    }
}

#[tokio::test]
async fn r20_a_request_that_waits_for_its_turn_or_for_a_server_holds_nothing() {
    let mut world = World::new(json!({"steps": []}));
    world.budget = budget::Limits { tokens: Some(100_000), ..budget::Limits::NONE };
    let ledger = world.directory.path().join("ledger.db");
    let model = Arc::new(Refusing { ledger: ledger.clone(), held: Mutex::default() });
    let mut kit = world.kit();
    kit.provider = model.clone();
    let purse = kit.purse.clone();
    let mut agent = Agent::new(kit).await.unwrap();
    assert_eq!(prompt(&mut agent, "go").await.outcome, Outcome::Done);
    model.note().await;
    assert_eq!(*model.held.lock().unwrap(), [0, 1, 0, 1, 0]);
    assert_eq!(purse.spent().usage.total(), 11, "the refused attempt costs nothing");
}
