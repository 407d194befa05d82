//! A background helper has the rights that its parent has when it is started: what a person allowed or forbade since
//! the parent began, and never more.

use caliban_agent::{Agent, event::Answer, subagent::inherit};
use caliban_core::{access::Access, spec::SpawnSpec};
use caliban_permissions::{Effect, Mode, Policy, Verdict};
use serde_json::json;

use crate::world::{World, answer, prompt};

fn world() -> World {
    World::new(json!({"steps": [
        {"tool_calls": [{"name": "Write", "input": {"file_path": "src/a.txt", "content": "x"}}]},
        {"tool_calls": [{"name": "AgentTool", "input": {"prompt": "the helper's task", "background": true}}]},
        {"text": "done"},
    ]}))
}

/// What the helper of an agent is started with, when its question was answered like this.
async fn handed_over(world: &World, said: Answer, mode: Mode) -> SpawnSpec {
    let kit = world.kit();
    let mut agent = Agent::new(kit.clone()).await.unwrap();
    let person = async {
        answer(&kit, said).await;
        kit.policy.write().unwrap().mode = mode;
    };
    tokio::join!(prompt(&mut agent, "go"), person);
    let mut handed = world.spawner.0.lock().unwrap();
    let work = handed.pop().unwrap();
    // It goes over the wire.
    SpawnSpec::from_json(&serde_json::to_string(&work).unwrap()).unwrap()
}

/// What the settings, with the flags of the spec, give the helper: here nothing else.
fn own(world: &World, spec: &SpawnSpec) -> Policy {
    let mut policy = Policy::new(world.root(), world.directory.path().join("home"));
    policy.mode = spec.setup.permission_mode.unwrap_or_default();
    for rule in &spec.setup.allow {
        policy.add(Effect::Allow, rule.parse().unwrap(), "--allow");
    }
    policy
}

fn write(policy: &Policy, path: &str) -> &'static str {
    match policy.decide("Write", &[Access::Write(policy.root.join(path))]) {
        Verdict::Allow { .. } => "allow",
        Verdict::Ask { .. } => "ask",
        Verdict::Deny { .. } => "deny",
    }
}

#[tokio::test]
async fn what_was_always_allowed_to_the_parent_is_allowed_to_its_helper() {
    let world = world();
    let spec = handed_over(&world, Answer::Always, Mode::Default).await;
    let policy = inherit(&spec.setup, own(&world, &spec)).unwrap();
    assert_eq!(["src/a.txt", "src/b.txt"].map(|path| write(&policy, path)), ["allow", "ask"]);
}

#[tokio::test]
async fn what_was_allowed_once_is_not() {
    let world = world();
    let spec = handed_over(&world, Answer::Once, Mode::Default).await;
    assert_eq!((spec.setup.allow.len(), spec.setup.permission_mode), (0, Some(Mode::Default)));
    assert_eq!(write(&inherit(&spec.setup, own(&world, &spec)).unwrap(), "src/a.txt"), "ask");
}

#[tokio::test]
async fn a_mode_that_was_changed_is_the_helpers_too() {
    for (mode, expected) in [(Mode::Plan, "deny"), (Mode::AcceptEdits, "allow")] {
        let world = world();
        let spec = handed_over(&world, Answer::Once, mode).await;
        assert_eq!(
            write(&inherit(&spec.setup, own(&world, &spec)).unwrap(), "src/b.txt"),
            expected,
            "{mode}"
        );
    }
}

#[tokio::test]
async fn settings_that_have_grown_since_give_the_helper_nothing() {
    let world = world();
    let spec = handed_over(&world, Answer::Once, Mode::Default).await;
    let mut wide = own(&world, &spec);
    wide.mode = Mode::Unattended;
    wide.add(Effect::Allow, "Edit(src/**)".parse().unwrap(), "settings");
    assert_eq!(write(&inherit(&spec.setup, wide).unwrap(), "src/a.txt"), "ask");
    let mut narrow = own(&world, &spec);
    narrow.add(Effect::Deny, "Edit(src/**)".parse().unwrap(), "settings");
    assert_eq!(write(&inherit(&spec.setup, narrow).unwrap(), "src/a.txt"), "deny");
}

#[tokio::test]
async fn rights_that_cannot_be_read_start_nobody() {
    let world = world();
    let mut spec = handed_over(&world, Answer::Once, Mode::Default).await;
    spec.setup.inherited_policy.as_mut().unwrap()["mode"] = json!("yolo");
    let error = inherit(&spec.setup, own(&world, &spec)).unwrap_err();
    assert!(error.contains("cannot be read"), "{error}");
}

#[tokio::test]
async fn a_mode_that_is_narrowed_while_a_helper_works_holds_for_it_at_once() {
    let step = |calls: serde_json::Value| json!({"when": {"first_prompt_contains": "the helper's task"}, "tool_calls": calls});
    let edit = json!({"name": "Write", "input": {"file_path": "a.txt", "content": "x"}});
    let world = World::new(json!({"steps": [
        step(json!([{"name": "Staged", "input": {"name": "a"}}])),
        step(json!([edit])),
        {"when": {"first_prompt_contains": "the helper's task"}, "text": "helper done"},
        {"tool_calls": [{"name": "AgentTool", "input": {"prompt": "the helper's task"}}]},
        {"text": "done"},
    ]}));
    world.stage.hold("a");
    let kit = world.kit();
    kit.policy.write().unwrap().mode = Mode::AcceptEdits;
    let mut agent = Agent::new(kit.clone()).await.unwrap();
    let person = async {
        world.stage.reached("a begins").await;
        kit.policy.write().unwrap().mode = Mode::Plan;
        world.stage.release("a");
    };
    let (report, ()) = tokio::join!(prompt(&mut agent, "go"), person);
    assert_eq!(report.outcome, caliban_agent::event::Outcome::Done);
    assert!(!world.root().join("a.txt").exists(), "plan mode changes nothing");
}
