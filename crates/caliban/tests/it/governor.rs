//! Rate limits are waited out by all agents that use the same key, together.

use testkit::{StepExt, script, text, wait_until};

use crate::fleet::Fleet;

#[test]
fn r24_an_agent_that_is_told_to_wait_keeps_the_others_from_asking_and_nobody_fails() {
    let fleet = Fleet::new(script![
        text("one is done").status(429).retry_after("4").on_first("task one"),
        text("two is done").on_first("task two"),
    ]);
    let one = fleet.bg("task one", []);
    let is_limited = |id: &str| fleet.row(id)["waiting_for"].to_string().contains("rate_limit");
    wait_until("the first one waits", || is_limited(&one));
    assert_eq!(fleet.place.server.requests().len(), 1);
    let two = fleet.bg("task two", []);
    wait_until("the second one waits", || is_limited(&two));
    assert_eq!(fleet.place.server.requests().len(), 1, "the second one has not asked");
    for id in [&one, &two] {
        fleet.run(["agents", "wait", id]).ok();
    }
    assert_eq!(
        (&fleet.row(&one)["last_text"], &fleet.row(&two)["last_text"]),
        (&"one is done".into(), &"two is done".into())
    );
}

#[test]
fn r24_a_storm_of_refusals_without_a_time_fails_nobody() {
    let fleet = Fleet::new(script![
        text("one is done").status(529).times(2).on_first("task one"),
        text("two is done").status(529).times(2).on_first("task two"),
    ]);
    let ids = ["task one", "task two"].map(|task| fleet.bg(task, []));
    for id in &ids {
        fleet.run(["agents", "wait", id]).ok();
    }
    assert_eq!(fleet.place.server.requests().len(), 6);
}

#[test]
fn r24_those_who_waited_come_back_in_the_order_of_their_priority() {
    let fleet = Fleet::new(script![
        text("is done").status(429).retry_after("8").on_first("task normal"),
        text("is done").on_first("task low"),
        text("is done").on_first("task high"),
    ]);
    let is_limited = |id: &str| fleet.row(id)["waiting_for"].to_string().contains("rate_limit");
    let ids = ["normal", "low", "high"].map(|priority| {
        let id = fleet.bg(&format!("task {priority}"), ["--priority", priority]);
        wait_until("it waits", || is_limited(&id));
        id
    });
    assert_eq!(fleet.place.server.requests().len(), 1, "all of them wait before the first one comes back");
    for id in &ids {
        fleet.run(["agents", "wait", id]).ok();
    }
    let requests = fleet.place.server.requests();
    let tasks: Vec<&str> = requests
        .iter()
        .map(|request| {
            let body = request.body.to_string();
            ["task normal", "task low", "task high"].into_iter().find(|task| body.contains(task)).unwrap()
        })
        .collect();
    assert_eq!(tasks, ["task normal", "task high", "task normal", "task low"]);
}

#[test]
fn r25_r05_a_stopped_agent_that_is_first_in_the_queue_keeps_nobody_waiting() {
    let fleet = Fleet::new(script![
        text("one is done").status(429).retry_after("3").on_first("task one"),
        text("two is done").on_first("task two"),
    ]);
    let is_limited = |id: &str| fleet.row(id)["waiting_for"].to_string().contains("rate_limit");
    let one = fleet.bg("task one", []);
    wait_until("the first one waits", || is_limited(&one));
    let two = fleet.bg("task two", []);
    wait_until("the second one waits", || is_limited(&two));
    let pid = i32::try_from(fleet.row(&one)["pid"].as_i64().unwrap()).unwrap();
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
    fleet.run(["agents", "wait", &two]).ok();
    assert_eq!(fleet.row(&two)["last_text"], "two is done");
    rustix::process::kill_process(pid, rustix::process::Signal::CONT).unwrap();
    fleet.run(["agents", "wait", &one]).ok();
    assert_eq!(fleet.row(&one)["last_text"], "one is done");
}
