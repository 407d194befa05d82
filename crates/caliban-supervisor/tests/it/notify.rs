//! Ends that no worker can tell of are told by the daemon, with the environment that the agent was spawned with.

use caliban_core::ids::AgentId;
use caliban_core::lifecycle::State;
use caliban_fleet::protocol::RmRequest;
use rustix::process::Signal;

use crate::fleet::{Fleet, quick, signal, until};

/// What was told of an agent, when something was.
async fn told(fleet: &Fleet, id: AgentId) -> Vec<String> {
    until("it is told", || async { !fleet.lines(id, "told").is_empty() }).await;
    fleet.lines(id, "told")
}

#[tokio::test]
async fn it_is_told_that_an_agent_crashed_was_killed_or_will_never_start() {
    let fleet = Fleet::new();
    let mut client = fleet.client().await;
    // These tell it themselves, or there is nothing to tell.
    let mut silent = Vec::new();
    for (plan, state) in [("fail", State::Failed), ("done", State::Done)] {
        let id = fleet.spawn(&mut client, plan).await;
        fleet.until_state(&mut client, id, state).await;
        silent.push(id);
    }
    let crashed = fleet.spawn_up(&mut client, "hang").await;
    signal(fleet.shim(crashed).worker_pid.unwrap(), Signal::KILL);
    assert_eq!(told(&fleet, crashed).await, ["hang crashed: ended by signal 9"]);

    let first = fleet.spawn_up(&mut client, "hang").await;
    let mut request = fleet.request("done");
    request.spec.after = vec![first];
    let second = client.spawn(request).await.unwrap().id;
    client.kill(&first.to_string(), &quick()).await.unwrap();
    assert_eq!(told(&fleet, first).await, ["hang killed: ended by signal 15"]);
    let never = format!("done failed: error: it was to start after {first}, which ended killed");
    assert_eq!(told(&fleet, second).await, [never]);

    let gone = fleet.spawn(&mut client, "exit:3").await;
    let text = "exit:3 failed: error: the worker ended with code 3 and gave no reason; see its worker.log";
    assert_eq!(told(&fleet, gone).await, [text]);
    for id in silent {
        assert_eq!(fleet.lines(id, "told"), Vec::<String>::new());
    }
}

#[tokio::test]
async fn what_happened_while_no_daemon_looked_is_told_by_the_next_and_only_once() {
    let fleet = Fleet::new();
    let mut client = fleet.client().await;
    let id = fleet.spawn_up(&mut client, "hang").await;
    let removed = fleet.spawn_up(&mut client, "hang").await;
    fleet.kill_daemon();
    let shim = fleet.shim(id);
    signal(shim.worker_pid.unwrap(), Signal::KILL);
    crate::fleet::wait_until("its shim is gone", || !crate::fleet::is_alive(shim.pid));
    let mut client = fleet.client().await;
    assert_eq!(told(&fleet, id).await, ["hang crashed: ended by signal 9"]);
    // Whoever removes one knows that it ends.
    client.rm(&removed.to_string(), RmRequest { force: true, ..RmRequest::default() }).await.unwrap();
    client.shutdown().await.unwrap();
    let mut client = fleet.client().await;
    let other = fleet.spawn_up(&mut client, "hang").await;
    client.kill(&other.to_string(), &quick()).await.unwrap();
    told(&fleet, other).await;
    assert_eq!(fleet.lines(id, "told").len(), 1);
}
