//! A background agent that is handed to a fleet which would take it, and then does not.

use std::sync::atomic::Ordering;

use caliban_agent::{
    Agent,
    background::{Background, BackgroundOrder, Spawner},
};
use caliban_core::background::{BackgroundLimits, BackgroundRow, BackgroundStatus};
use serde_json::json;

use crate::world::World;

async fn until(background: &Background, is_so: impl Fn(&BackgroundRow) -> bool) -> BackgroundRow {
    let mut changes = background.changes();
    loop {
        if let Some(row) = background.rows().into_iter().find(&is_so) {
            return row;
        }
        changes.changed().await.unwrap();
    }
}

#[tokio::test]
async fn an_agent_that_the_fleet_does_not_take_after_all_goes_on_here() {
    let mut world = World::new(json!({"steps": [
        {"tool_calls": [{"name": "Staged", "input": {"name": "a"}}]},
        {"text": "done after all"},
    ]}));
    world.background = Some(BackgroundLimits { max_agents: 1, ..BackgroundLimits::default() });
    world.stage.hold("a");
    let kit = world.kit();
    let agent = Agent::new(kit.clone()).await.unwrap();
    let background = kit.background.clone().unwrap();
    let order = BackgroundOrder { task: "the side task".to_owned(), ..BackgroundOrder::default() };
    let id = background.start(order, Spawner::Person).await.unwrap();
    world.stage.reached("a begins").await;
    world.spawner.1.store(true, Ordering::Relaxed);
    // Its call ends when it is being stopped for the fleet.
    let (refused, ()) = tokio::join!(background.keep_all(), async { world.stage.release("a") });
    let refused = refused.unwrap_err().to_string();
    assert_eq!(refused, "background agent 0 was not handed to the fleet: the disk is full; it goes on here");
    assert!(background.at_work() == [id] || background.rows()[0].status == BackgroundStatus::Completed);
    let row = until(&background, |row| row.ended_ms.is_some()).await;
    assert_eq!((row.id, row.status), (id, BackgroundStatus::Completed));
    let transcript = world.session().join("bg").join("0").join("transcript.jsonl");
    let text = std::fs::read_to_string(transcript).unwrap();
    assert_eq!(text.matches("the side task").count(), 1, "the conversation goes on: {text}");
    assert!(text.contains("You were stopped for a moment") && text.contains("done after all"), "{text}");
    agent.close().await;
}
