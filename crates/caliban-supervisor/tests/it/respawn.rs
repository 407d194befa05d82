//! Respawn and resume: what is replaced is replaced whole, nobody's label, keys or turn is lost on the way.

use std::fs;

use caliban_core::ids::AgentId;
use caliban_core::lifecycle::State;
use caliban_core::names::Slug;
use caliban_fleet::Client;
use caliban_fleet::protocol::{HandedSecrets, RespawnRequest, ResumeRequest};
use caliban_store::fleet::Registry;
use caliban_store::{HostId, StoreUrl};

use crate::faults::Small;
use crate::fleet::{Fleet, is_alive, quick, refused, until, wait_until, write};

/// One who waits for another.
async fn after(fleet: &Fleet, client: &mut Client, first: AgentId) -> AgentId {
    let mut request = fleet.request("done");
    request.spec.after = vec![first];
    client.spawn(request).await.unwrap().id
}

#[tokio::test]
async fn r01_at_no_moment_does_the_registry_have_somebody_who_waits_for_a_respawned_agent_that_is_gone() {
    let fleet = Fleet::new();
    let mut client = fleet.client().await;
    let mut first = fleet.spawn(&mut client, "hang").await;
    let waiting = after(&fleet, &mut client, first).await;
    let mut registry =
        Registry::open(&StoreUrl::sqlite(fleet.places.database()), &HostId::of("")).await.unwrap();
    for _ in 0..10 {
        let (name, request) = (first.to_string(), RespawnRequest::default());
        let respawn = client.respawn(&name, &request);
        tokio::pin!(respawn);
        // What a daemon that dies now would leave to the next.
        first = loop {
            let mut rows = registry.page(0).await.unwrap();
            // One who came while the page was read is on the next.
            let last = rows.last().unwrap().0.seq;
            rows.extend(registry.page(last).await.unwrap());
            let ids: Vec<AgentId> = rows.iter().map(|(record, _)| record.id).collect();
            let (record, _) = rows.iter().find(|(record, _)| record.id == waiting).unwrap();
            assert!(record.after.iter().all(|id| ids.contains(id)), "{:?} of {ids:?}", record.after);
            tokio::select! {
                biased;
                respawned = &mut respawn => break respawned.unwrap().id,
                () = tokio::task::yield_now() => {}
            }
        };
    }
    registry.close().await;
    fleet.kill_daemon();
    let mut client = fleet.client().await;
    let row = client.show(&waiting.to_string()).await.unwrap();
    assert_eq!((row.state, row.after), (State::Spawning, vec![first]));
}

#[tokio::test]
async fn who_was_killed_while_it_waited_for_another_waits_again_when_it_is_resumed() {
    let fleet = Fleet::new();
    let mut client = fleet.client().await;
    let gate = fleet.temp.path().join("gate");
    let first = fleet.spawn(&mut client, &format!("gate:{}", gate.display())).await;
    let waiting = after(&fleet, &mut client, first).await;
    let name = waiting.to_string();
    client.kill(&name, &quick()).await.unwrap();
    // The successor of the one that it waited for counts as that one.
    let second = client.respawn(&first.to_string(), &RespawnRequest::default()).await.unwrap().id;
    let row = client.resume(&name, &ResumeRequest::default()).await.unwrap();
    assert_eq!((row.state, row.after, row.pid), (State::Spawning, vec![second], None));
    fleet.kill_daemon();
    let mut client = fleet.client().await;
    let row = client.show(&name).await.unwrap();
    assert_eq!((row.state, row.after, fleet.runs(waiting)), (State::Spawning, vec![second], 0));
    write(&gate, "");
    fleet.until_state(&mut client, waiting, State::Done).await;
}

#[tokio::test]
async fn a_label_is_that_of_one_living_agent_also_after_resume_and_respawn() {
    let fleet = Fleet::new();
    let mut client = fleet.client().await;
    let labelled = || {
        let mut request = fleet.request("hang");
        request.spec.label = Some(Slug::parse("docs").unwrap());
        request
    };
    let first = client.spawn(labelled()).await.unwrap().id;
    client.kill(&first.to_string(), &quick()).await.unwrap();
    let second = client.spawn(labelled()).await.unwrap().id;
    let text = format!("the label docs is in use: agent {second} has it and has not ended");
    let (code, message, hint) = refused(client.resume(&first.to_string(), &ResumeRequest::default()).await);
    assert_eq!((code.as_str(), &message), ("conflict", &text));
    assert_eq!(hint, format!("`caliban kill {second}` first"));
    let respawned = refused(client.respawn(&first.to_string(), &RespawnRequest::default()).await);
    assert_eq!((respawned.0.as_str(), respawned.1), ("conflict", text));
    let rows = client.list().await.unwrap();
    assert_eq!(rows.iter().map(|row| row.id).collect::<Vec<_>>(), [first, second]);
    // Its own label is no hindrance.
    let third = client.respawn(&second.to_string(), &RespawnRequest::default()).await.unwrap().id;
    client.kill(&third.to_string(), &quick()).await.unwrap();
    let row = client.resume(&first.to_string(), &ResumeRequest::default()).await.unwrap();
    assert_eq!(row.label.as_deref(), Some("docs"));
}

#[tokio::test]
async fn a12_keys_that_the_new_shell_does_not_have_stay_as_they_were() {
    let fleet = Fleet::new();
    let mut client = fleet.client().await;
    let seen = fleet.temp.path().join("seen");
    let shown = seen.display();
    let plan = format!("sh:env | grep ^T_ | sort > {shown}.new; mv {shown}.new {shown}");
    let secrets = |pairs: &[(&str, &str)]| HandedSecrets {
        secrets: pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
        ..HandedSecrets::default()
    };
    let seen = || {
        wait_until("it has looked", || seen.exists());
        let text = fs::read_to_string(&seen).unwrap();
        fs::remove_file(&seen).unwrap();
        text.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let mut request = fleet.request(&plan);
    request.secrets = secrets(&[("T_KEY", "old"), ("T_OTHER", "other")]);
    let id = client.spawn(request).await.unwrap().id;
    assert_eq!(seen(), ["T_KEY=old", "T_OTHER=other"]);
    client.kill(&id.to_string(), &quick()).await.unwrap();
    let resume = ResumeRequest { secrets: secrets(&[("T_TOKEN", "token")]), ..ResumeRequest::default() };
    client.resume(&id.to_string(), &resume).await.unwrap();
    assert_eq!(seen(), ["T_KEY=old", "T_OTHER=other", "T_TOKEN=token"]);
    let again = RespawnRequest { secrets: secrets(&[("T_KEY", "new")]), ..RespawnRequest::default() };
    let id = client.respawn(&id.to_string(), &again).await.unwrap().id;
    assert_eq!(seen(), ["T_KEY=new", "T_OTHER=other", "T_TOKEN=token"]);
    client.respawn(&id.to_string(), &RespawnRequest::default()).await.unwrap();
    assert_eq!(seen(), ["T_KEY=new", "T_OTHER=other", "T_TOKEN=token"]);
}

#[tokio::test]
async fn r11_respawn_on_a_full_disk_ends_nobody() {
    let Some((fleet, small)) = Small::fleet() else { return };
    let mut client = fleet.client().await;
    let id = fleet.spawn_up(&mut client, "hang").await;
    let pid = client.show(&id.to_string()).await.unwrap().pid.unwrap();
    small.fill();
    let (code, message, hint) = refused(client.respawn(&id.to_string(), &RespawnRequest::default()).await);
    assert_eq!(
        (code.as_str(), message),
        ("disk_full", format!("the disk is full; agent {id} is left as it is"))
    );
    assert_eq!(hint, "make room and try again");
    let row = client.show(&id.to_string()).await.unwrap();
    assert_eq!((row.state, row.pid, is_alive(pid)), (State::Running, Some(pid), true));
    small.make_room();
    let new = client.respawn(&id.to_string(), &RespawnRequest::default()).await.unwrap();
    assert_eq!(new.old, id);
}

#[tokio::test]
async fn r11_an_agent_whose_disk_fills_up_while_it_is_respawned_is_said_to_be_killed_and_stays_so() {
    let Some((mut fleet, small)) = Small::fleet() else { return };
    fleet.start.options.grace_ms = 60_000;
    let mut client = fleet.client().await;
    let (up, filler) = (fleet.temp.path().join("up"), small.filler());
    let plan = format!(
        "sh:trap 'dd if=/dev/zero of={} bs=4k 2>/dev/null; exit' TERM; : > {}; while :; do sleep 0.01; done",
        filler.display(),
        up.display()
    );
    let id = fleet.spawn(&mut client, &plan).await;
    until("it is up", || async { up.exists() }).await;
    let (code, message, hint) = refused(client.respawn(&id.to_string(), &RespawnRequest::default()).await);
    let text = format!("agent {id} has ended killed and stays; it was not started anew: the disk is full");
    assert_eq!((code.as_str(), message), ("disk_full", text));
    assert_eq!(hint, format!("make room, then `caliban respawn {id}` or `caliban resume {id}`"));
    assert_eq!(client.show(&id.to_string()).await.unwrap().state, State::Killed);
    fleet.kill_daemon();
    let mut client = fleet.client().await;
    assert_eq!(client.show(&id.to_string()).await.unwrap().state, State::Killed);
    small.make_room();
    fleet.kill_daemon();
    let mut client = fleet.client().await;
    assert_eq!(client.show(&id.to_string()).await.unwrap().state, State::Killed);
}

#[tokio::test]
async fn a_kill_of_one_that_has_ended_changes_nothing_of_it() {
    let fleet = Fleet::new();
    let mut client = fleet.client().await;
    let id = fleet.spawn(&mut client, "done").await;
    let before = fleet.until_state(&mut client, id, State::Done).await;
    let killed = client.kill(&id.to_string(), &quick()).await.unwrap();
    assert_eq!((killed.state, killed.updated_at), (State::Done, before.updated_at));
    until("the registry knows", || async { crate::full_disk::recorded(&fleet).await == [(id, State::Done)] })
        .await;
    fleet.kill_daemon();
    let mut client = fleet.client().await;
    assert_eq!(client.show(&id.to_string()).await.unwrap().updated_at, before.updated_at);
}
