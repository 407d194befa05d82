//! What is taken away under a running daemon and comes back: its own program, the worker's, the directory of secrets.

use std::fs;

use caliban_core::lifecycle::State;
use caliban_fleet::protocol::ResumeRequest;

use crate::doubt::Shim;
use crate::fleet::{Fleet, caliband, fake_worker, quick, wait_until};

#[tokio::test]
async fn agents_start_while_the_daemons_own_program_is_being_replaced() {
    let mut fleet = Fleet::new();
    let shim = Shim::of(&mut fleet);
    let mut client = fleet.client().await;
    fs::remove_file(shim.path()).unwrap();
    let id = fleet.spawn_up(&mut client, "hang").await;
    // What is half written is no program yet either.
    fs::write(shim.path(), "").unwrap();
    let other = fleet.spawn_up(&mut client, "hang").await;
    fs::remove_file(shim.path()).unwrap();
    fs::copy(caliband(), shim.path()).unwrap();
    let third = fleet.spawn_up(&mut client, "hang").await;
    for id in [id, other, third] {
        assert_eq!(client.kill(&id.to_string(), &quick()).await.unwrap().state, State::Killed);
    }
}

#[tokio::test]
async fn agents_wait_while_the_workers_program_is_being_replaced() {
    let fleet = Fleet::with(|options| options.max_running = 1);
    let mut client = fleet.client().await;
    let program = fleet.temp.path().join("worker");
    fs::copy(fake_worker(), &program).unwrap();
    let first = fleet.spawn_up(&mut client, "hang").await;
    let mut request = fleet.request("hang");
    request.program = Some(program.clone());
    let id = client.spawn(request).await.unwrap().id;
    fs::remove_file(&program).unwrap();
    client.kill(&first.to_string(), &quick()).await.unwrap();
    let text = format!("its program {} is not there; is it being replaced?", program.display());
    let row = fleet.until_row(&mut client, id, |row| row.note.is_some()).await;
    assert_eq!((row.state, row.note, fleet.runs(id)), (State::Spawning, Some(text), 0));
    let new = program.with_extension("new");
    fs::copy(fake_worker(), &new).unwrap();
    fs::rename(new, &program).unwrap();
    let row = fleet.until_row(&mut client, id, |row| row.turns > 0).await;
    assert_eq!((row.state, row.note), (State::Running, None));
}

#[tokio::test]
async fn secrets_are_handed_over_although_their_directory_was_taken_away() {
    let fleet = Fleet::new();
    let mut client = fleet.client().await;
    let seen = fleet.temp.path().join("seen");
    let with_key = || {
        let shown = seen.display();
        let plan = format!("sh:printf %s \"$T_KEY\" > {shown}.new; mv {shown}.new {shown}");
        let mut request = fleet.request(&plan);
        request.secrets = [("T_KEY".to_owned(), "key".to_owned())].into();
        request
    };
    let seen = || {
        wait_until("it has looked", || seen.exists());
        let text = fs::read_to_string(&seen).unwrap();
        fs::remove_file(&seen).unwrap();
        text
    };
    fs::remove_dir_all(fleet.places.sockets_dir()).unwrap();
    let id = client.spawn(with_key()).await.unwrap().id;
    assert_eq!(seen(), "key");
    client.kill(&id.to_string(), &quick()).await.unwrap();
    fs::remove_dir_all(fleet.places.sockets_dir()).unwrap();
    let resume = ResumeRequest { secrets: with_key().secrets, ..ResumeRequest::default() };
    client.resume(&id.to_string(), &resume).await.unwrap();
    assert_eq!(seen(), "key");
}
