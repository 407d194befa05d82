//! Places and order.

use caliban_contract::records;
use caliban_core::ids::AgentId;
use caliban_core::lifecycle::{Ending, State};
use caliban_fleet::protocol::{RespawnRequest, ResumeRequest, RmRequest};

use crate::fleet::{Fleet, quick, refused, write};

#[tokio::test]
async fn more_than_max_running_wait_in_order_and_start_as_places_get_free() {
    let fleet = Fleet::with(|options| options.max_running = 2);
    let mut client = fleet.client().await;
    let gate = |n: usize| fleet.temp.path().join(format!("gate{n}"));
    let mut ids: Vec<AgentId> = Vec::new();
    for n in 0..5 {
        ids.push(fleet.spawn(&mut client, &format!("gate:{}", gate(n).display())).await);
    }
    for id in &ids[..2] {
        fleet.until_row(&mut client, *id, |row| row.turns > 0).await;
    }
    let queue = |rows: Vec<caliban_fleet::protocol::AgentRow>| -> Vec<_> {
        rows.into_iter().map(|row| (row.state, row.queued_behind)).collect()
    };
    let (running, spawning) = ((State::Running, None), |n| (State::Spawning, Some(n)));
    assert_eq!(
        queue(client.list().await.unwrap()),
        [running, running, spawning(0), spawning(1), spawning(2)]
    );
    let mut done = (State::Done, None);
    done.1 = None;
    write(&gate(1), "");
    fleet.until_row(&mut client, ids[2], |row| row.turns > 0).await;
    assert_eq!(queue(client.list().await.unwrap()), [running, done, running, spawning(0), spawning(1)]);
    // The queue outlives the daemon.
    fleet.kill_daemon();
    let mut client = fleet.client().await;
    assert_eq!(queue(client.list().await.unwrap()), [running, done, running, spawning(0), spawning(1)]);
    for n in [0, 2, 3, 4] {
        write(&gate(n), "");
    }
    for id in &ids {
        fleet.until_state(&mut client, *id, State::Done).await;
        assert_eq!(fleet.runs(*id), 1);
    }
}

#[tokio::test]
async fn idle_agents_take_no_place() {
    let fleet = Fleet::with(|options| options.max_running = 1);
    let mut client = fleet.client().await;
    let idle = fleet.spawn_up(&mut client, "serve").await;
    let other = fleet.spawn_up(&mut client, "hang").await;
    let states: Vec<_> = client.list().await.unwrap().into_iter().map(|row| (row.id, row.state)).collect();
    assert_eq!(states, [(idle, State::Idle), (other, State::Running)]);
}

#[tokio::test]
async fn one_that_asks_a_person_takes_no_place_and_goes_on_when_answered() {
    let fleet = Fleet::with(|options| options.max_running = 1);
    let mut client = fleet.client().await;
    let asks = fleet.spawn_up(&mut client, "serve").await;
    fleet.tell(asks, "ask");
    fleet.until_row(&mut client, asks, |row| row.waiting_for.is_some()).await;
    let other = fleet.spawn_up(&mut client, "hang").await;
    // Answered, it goes on over the limit; the next one waits for both.
    fleet.tell(asks, "work");
    fleet.until_row(&mut client, asks, |row| row.state == State::Running && row.waiting_for.is_none()).await;
    let third = fleet.spawn(&mut client, "done").await;
    let rows = client.list().await.unwrap();
    let states: Vec<_> = rows.into_iter().map(|row| (row.id, row.state, row.queued_behind)).collect();
    assert_eq!(
        states,
        [(asks, State::Running, None), (other, State::Running, None), (third, State::Spawning, Some(0))]
    );
    client.kill(&other.to_string(), &quick()).await.unwrap();
    fleet.tell(asks, "rest");
    fleet.until_state(&mut client, third, State::Done).await;
}

#[tokio::test]
async fn after_waits_for_done_and_fails_with_what_failed() {
    let fleet = Fleet::new();
    let mut client = fleet.client().await;
    let gate = fleet.temp.path().join("gate");
    let first = fleet.spawn(&mut client, &format!("gate:{}", gate.display())).await;
    let hangs = fleet.spawn_up(&mut client, "hang").await;
    let mut after_first = fleet.request("done");
    after_first.spec.after = vec![first];
    let after_first = client.spawn(after_first).await.unwrap().id;
    let mut after_both = fleet.request("done");
    after_both.spec.after = vec![first, hangs];
    let after_both = client.spawn(after_both).await.unwrap().id;
    fleet.until_row(&mut client, first, |row| row.turns > 0).await;
    assert_eq!(client.show(&after_first.to_string()).await.unwrap().state, State::Spawning);
    write(&gate, "");
    fleet.until_state(&mut client, after_first, State::Done).await;
    let row = client.show(&after_both.to_string()).await.unwrap();
    assert_eq!((row.state, row.after), (State::Spawning, vec![hangs]));
    client.kill(&hangs.to_string(), &quick()).await.unwrap();
    let row = fleet.until_state(&mut client, after_both, State::Failed).await;
    let text = format!("it was to start after {hangs}, which ended killed");
    assert_eq!(row.ending, Some(Ending::Error { text }));
    assert_eq!(fleet.runs(after_both), 0);
    // Now it is known beforehand.
    let mut late = fleet.request("done");
    late.spec.after = vec![hangs];
    let (code, message, _) = refused(client.spawn(late.clone()).await);
    assert_eq!(
        (code.as_str(), message),
        ("conflict", format!("it is to start after {hangs}, which has ended killed"))
    );
    late.spec.after = vec!["00000000".parse().unwrap()];
    assert_eq!(refused(client.spawn(late).await).0, "not_found");
}

#[tokio::test]
async fn who_waits_for_a_respawned_agent_waits_for_its_successor() {
    let fleet = Fleet::new();
    let mut client = fleet.client().await;
    let gate = fleet.temp.path().join("gate");
    let first = fleet.spawn(&mut client, &format!("gate:{}", gate.display())).await;
    fleet.until_row(&mut client, first, |row| row.turns > 0).await;
    let mut waiting = fleet.request("done");
    waiting.spec.after = vec![first];
    let waiting = client.spawn(waiting).await.unwrap().id;
    // The end of the old one by its own respawn is no failure to those who wait.
    let new = client.respawn(&first.to_string(), &RespawnRequest::default()).await.unwrap().id;
    let row = client.show(&waiting.to_string()).await.unwrap();
    assert_eq!((row.state, row.after), (State::Spawning, vec![new]));
    write(&gate, "");
    fleet.until_state(&mut client, waiting, State::Done).await;
}

#[tokio::test]
async fn a_respawned_agent_still_waits_for_those_whom_it_was_to_start_after() {
    let fleet = Fleet::new();
    let mut client = fleet.client().await;
    let gate = fleet.temp.path().join("gate");
    let first = fleet.spawn(&mut client, &format!("gate:{}", gate.display())).await;
    let failed = fleet.spawn_up(&mut client, "hang").await;
    let mut waiting = fleet.request("done");
    waiting.spec.after = vec![first, failed];
    let waiting = client.spawn(waiting).await.unwrap().id;
    client.kill(&failed.to_string(), &quick()).await.unwrap();
    fleet.until_state(&mut client, waiting, State::Failed).await;
    // That one of them failed is known to whoever asks for it anew.
    let new = client.respawn(&waiting.to_string(), &RespawnRequest::default()).await.unwrap().id;
    let row = client.show(&new.to_string()).await.unwrap();
    assert_eq!((row.state, row.after), (State::Spawning, vec![first]));
    write(&gate, "");
    fleet.until_state(&mut client, new, State::Done).await;
}

#[tokio::test]
async fn who_was_released_by_one_that_is_removed_later_stays_released() {
    let fleet = Fleet::new();
    let mut client = fleet.client().await;
    let gate = fleet.temp.path().join("gate");
    let first = fleet.spawn(&mut client, &format!("gate:{}", gate.display())).await;
    let hangs = fleet.spawn_up(&mut client, "hang").await;
    let mut waiting = fleet.request("done");
    waiting.spec.after = vec![first, hangs];
    let waiting = client.spawn(waiting).await.unwrap().id;
    write(&gate, "");
    fleet.until_state(&mut client, first, State::Done).await;
    client.rm(&first.to_string(), RmRequest::default()).await.unwrap();
    fleet.kill_daemon();
    let mut client = fleet.client().await;
    let row = client.show(&waiting.to_string()).await.unwrap();
    assert_eq!((row.state, row.after, row.ending), (State::Spawning, vec![hangs], None));
}

#[tokio::test]
async fn who_waits_for_one_that_is_removed_while_it_is_respawned_fails() {
    let fleet = Fleet::new();
    let mut client = fleet.client().await;
    let up = fleet.temp.path().join("up");
    let script = format!("sh:trap '' TERM; : > {}; while :; do sleep 0.1; done", up.display());
    let first = fleet.spawn_up(&mut client, &script).await;
    crate::fleet::wait_until("the shell ignores TERM", || up.exists());
    let mut waiting = fleet.request("done");
    waiting.spec.after = vec![first];
    let waiting = client.spawn(waiting).await.unwrap().id;
    let (name, mut other) = (first.to_string(), fleet.client().await);
    let respawn = async {
        let order = fleet.places.agent_dir(first).join(records::STOP);
        crate::fleet::until("its end is under way", || async { order.exists() }).await;
        other.respawn(&name, &RespawnRequest::default()).await
    };
    let force = RmRequest { force: true, ..RmRequest::default() };
    let (removed, respawned) = tokio::join!(client.rm(&name, force), respawn);
    assert_eq!(removed.unwrap().id, first);
    assert_eq!(refused(respawned).0, "conflict");
    let row = fleet.until_state(&mut client, waiting, State::Failed).await;
    let text = format!("it was to start after {first}, which was removed");
    assert_eq!(row.ending, Some(Ending::Error { text }));
}

#[tokio::test]
async fn agents_that_wait_for_others_do_not_count_as_queued_ahead() {
    let fleet = Fleet::with(|options| options.max_running = 1);
    let mut client = fleet.client().await;
    let first = fleet.spawn_up(&mut client, "hang").await;
    let mut after_first = fleet.request("done");
    after_first.spec.after = vec![first];
    client.spawn(after_first).await.unwrap();
    let last = fleet.spawn(&mut client, "done").await;
    let listed: Vec<_> = client.list().await.unwrap().into_iter().map(|row| row.queued_behind).collect();
    assert_eq!(listed, [None, Some(0), Some(0)]);
    assert_eq!(client.show(&last.to_string()).await.unwrap().queued_behind, Some(0));
}

#[tokio::test]
async fn a_resumed_agent_waits_for_a_place_like_any_other() {
    let fleet = Fleet::with(|options| options.max_running = 1);
    let mut client = fleet.client().await;
    let done = fleet.spawn(&mut client, "done").await;
    fleet.until_state(&mut client, done, State::Done).await;
    let hangs = fleet.spawn_up(&mut client, "hang").await;
    let row = client.resume(&done.to_string(), &ResumeRequest::default()).await.unwrap();
    assert_eq!((row.state, row.queued_behind, row.pid), (State::Spawning, Some(0), None));
    client.kill(&hangs.to_string(), &quick()).await.unwrap();
    fleet.until_row(&mut client, done, |row| (row.state, row.runs) == (State::Done, 2)).await;
}

#[tokio::test]
async fn an_interactive_agent_that_waits_for_a_message_has_done_its_task_for_those_who_wait() {
    let fleet = Fleet::new();
    let mut client = fleet.client().await;
    let first = fleet.spawn_up(&mut client, "serve").await;
    fleet.tell(first, "work");
    fleet.until_state(&mut client, first, State::Running).await;
    let after = || {
        let mut request = fleet.request("done");
        request.spec.after = vec![first];
        request
    };
    let waiting = client.spawn(after()).await.unwrap().id;
    let row = client.show(&waiting.to_string()).await.unwrap();
    assert_eq!((row.state, row.after), (State::Spawning, vec![first]));
    fleet.tell(first, "rest");
    fleet.until_state(&mut client, waiting, State::Done).await;
    // One that is idle already is not waited for.
    let late = client.spawn(after()).await.unwrap().id;
    fleet.until_state(&mut client, late, State::Done).await;
    assert_eq!(client.show(&first.to_string()).await.unwrap().state, State::Idle);
}

#[tokio::test]
async fn who_waits_for_an_interactive_agent_that_came_to_rest_while_no_daemon_looked_starts() {
    let fleet = Fleet::new();
    let mut client = fleet.client().await;
    let first = fleet.spawn_up(&mut client, "serve").await;
    fleet.tell(first, "work");
    fleet.until_state(&mut client, first, State::Running).await;
    let mut request = fleet.request("done");
    request.spec.after = vec![first];
    let waiting = client.spawn(request).await.unwrap().id;
    fleet.kill_daemon();
    fleet.tell(first, "rest");
    let mut client = fleet.client().await;
    fleet.until_state(&mut client, waiting, State::Done).await;
}
