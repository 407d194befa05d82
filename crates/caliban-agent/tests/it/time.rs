//! The time budget: working counts, waiting for a person does not, for the agent and all above it. The clock is the
//! test's own.

use std::time::Duration;

use caliban_agent::{
    Agent,
    event::{Answer, Outcome},
};
use caliban_core::budget::Limits;
use serde_json::{Value, json};
use tokio::time::advance;

use crate::world::{World, answer, asked, prompt};

const HOUR: Duration = Duration::from_secs(3_600);

fn staged(name: &str) -> Value {
    json!({"name": "Staged", "input": {"name": name}})
}

/// A call that nobody may make without being asked.
fn asking() -> Value {
    json!({"name": "Write", "input": {"file_path": "new.txt", "content": "x"}})
}

fn helper() -> Value {
    json!({"name": "AgentTool", "input": {"prompt": "the helper's task"}})
}

/// The parent's replies and the helper's, each with these calls; then both say that they are done.
fn world(mine: &[&[Value]], helpers: &[&[Value]]) -> World {
    let step =
        |calls: &[Value], task: &str| json!({"when": {"first_prompt_contains": task}, "tool_calls": calls});
    let done = |task: &str| json!({"when": {"first_prompt_contains": task}, "text": "done"});
    let mut steps: Vec<Value> = mine.iter().map(|calls| step(calls, "the task")).collect();
    steps.extend(helpers.iter().map(|calls| step(calls, "the helper's task")));
    steps.extend([done("the task"), done("the helper's task")]);
    let mut world = World::new(json!({"steps": steps}));
    world.budget = Limits { wall_ms: Some(60_000), ..Limits::NONE };
    world
}

fn is_out_of_time(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Budget { limit } if limit.contains("time budget"))
}

#[tokio::test(start_paused = true)]
async fn an_hour_for_an_answer_takes_nothing_of_a_minute() {
    let world = world(&[&[asking()]], &[]);
    let kit = world.kit();
    let mut agent = Agent::new(kit.clone()).await.unwrap();
    let person = async {
        asked(&kit).await;
        advance(HOUR).await;
        answer(&kit, Answer::Once).await;
    };
    let (report, ()) = tokio::join!(prompt(&mut agent, "the task"), person);
    assert_eq!((report.outcome, kit.purse.worked_ms()), (Outcome::Done, 0));
    assert!(world.root().join("new.txt").exists());
}

#[tokio::test(start_paused = true)]
async fn a_call_that_works_for_an_hour_uses_the_minute_up() {
    let world = world(&[&[staged("a")]], &[]);
    world.stage.hold("a");
    let mut agent = Agent::new(world.kit()).await.unwrap();
    let clock = async {
        world.stage.reached("a begins").await;
        advance(HOUR).await;
        world.stage.release("a");
    };
    let (report, ()) = tokio::join!(prompt(&mut agent, "the task"), clock);
    assert!(is_out_of_time(&report.outcome), "{:?}", report.outcome);
}

#[tokio::test(start_paused = true)]
async fn a_parent_whose_only_helper_waits_for_a_person_waits_too() {
    let world = world(&[&[helper()]], &[&[asking()]]);
    let kit = world.kit();
    let mut agent = Agent::new(kit.clone()).await.unwrap();
    let person = async {
        asked(&kit).await;
        advance(HOUR).await;
        answer(&kit, Answer::Once).await;
    };
    let (report, ()) = tokio::join!(prompt(&mut agent, "the task"), person);
    assert_eq!((report.outcome, kit.purse.worked_ms()), (Outcome::Done, 0));
}

#[tokio::test(start_paused = true)]
async fn a_parent_that_works_while_its_helper_waits_for_a_person_uses_its_time() {
    let world = world(&[&[helper(), staged("a")]], &[&[asking()]]);
    world.stage.hold("a");
    let kit = world.kit();
    let mut agent = Agent::new(kit.clone()).await.unwrap();
    let person = async {
        world.stage.reached("a begins").await;
        asked(&kit).await;
        advance(HOUR).await;
        answer(&kit, Answer::Once).await;
        world.stage.release("a");
    };
    let (report, ()) = tokio::join!(prompt(&mut agent, "the task"), person);
    assert!(is_out_of_time(&report.outcome), "{:?}", report.outcome);
    assert_eq!(kit.purse.worked_ms(), 3_600_000);
}

#[tokio::test(start_paused = true)]
async fn two_who_work_side_by_side_take_the_time_once() {
    let world = world(&[&[helper(), staged("a")]], &[&[staged("b")]]);
    world.stage.hold("a");
    world.stage.hold("b");
    let kit = world.kit();
    let mut agent = Agent::new(kit.clone()).await.unwrap();
    let clock = async {
        world.stage.reached("a begins").await;
        world.stage.reached("b begins").await;
        advance(Duration::from_secs(40)).await;
        world.stage.release("a");
        world.stage.release("b");
    };
    let (report, ()) = tokio::join!(prompt(&mut agent, "the task"), clock);
    assert_eq!((report.outcome, kit.purse.worked_ms()), (Outcome::Done, 40_000));
}

/// Works for 40 s; then somebody is asked, and the process is gone an hour later.
async fn interrupted(world: &World) {
    world.stage.hold("a");
    let kit = world.kit();
    let mut agent = Agent::new(kit.clone()).await.unwrap();
    let clock = async {
        world.stage.reached("a begins").await;
        advance(Duration::from_secs(40)).await;
        world.stage.release("a");
        asked(&kit).await;
        advance(HOUR).await;
    };
    tokio::select! {
        report = prompt(&mut agent, "the task") => panic!("{report:?}"),
        () = clock => {}
    }
    agent.close().await;
}

#[tokio::test(start_paused = true)]
async fn a_resumed_agent_has_worked_as_long_as_it_had_and_waiting_still_does_not_count() {
    let world = world(&[&[staged("a")], &[asking()]], &[]);
    interrupted(&world).await;
    let kit = world.kit();
    let mut agent = Agent::resume(kit.clone()).await.unwrap();
    assert_eq!(kit.purse.worked_ms(), 40_000);
    let person = async {
        asked(&kit).await;
        advance(HOUR).await;
        answer(&kit, Answer::Once).await;
    };
    let cancel = tokio_util::sync::CancellationToken::new();
    let (report, ()) = tokio::join!(agent.go_on(&cancel), person);
    assert_eq!((report.outcome, kit.purse.worked_ms()), (Outcome::Done, 40_000));
}

#[tokio::test(start_paused = true)]
async fn a_helper_that_was_cut_off_has_used_its_parents_time_up_to_its_last_record() {
    let world = world(&[&[helper()]], &[&[staged("a")], &[asking()]]);
    interrupted(&world).await;
    let kit = world.kit();
    Agent::resume(kit.clone()).await.unwrap();
    assert_eq!(kit.purse.worked_ms(), 40_000);
}
