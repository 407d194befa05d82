//! The states and the one way between them.

use caliban_core::lifecycle::{
    Ending, EventRefused, LifecycleEvent, Outcome, State, Status, WaitingFor, apply,
};
use proptest::prelude::*;

fn events() -> Vec<LifecycleEvent> {
    vec![
        LifecycleEvent::Started,
        LifecycleEvent::SpawnFailed { text: "no".into() },
        LifecycleEvent::TurnStarted,
        LifecycleEvent::TurnEnded,
        LifecycleEvent::Waits(WaitingFor::Approval { call: "Bash(rm x)".into() }),
        LifecycleEvent::Waits(WaitingFor::Input),
        LifecycleEvent::Waits(WaitingFor::RateLimit { until_ms: 7 }),
        LifecycleEvent::Waits(WaitingFor::Model { until_ms: 7 }),
        LifecycleEvent::GoesOn,
        LifecycleEvent::Ended(Outcome::Finished),
        LifecycleEvent::Ended(Outcome::TurnLimit { limit: 20 }),
        LifecycleEvent::Ended(Outcome::BudgetExceeded { reason: "tokens".into() }),
        LifecycleEvent::Ended(Outcome::Error { text: "401".into() }),
        LifecycleEvent::Killed { signal: Some(9) },
        LifecycleEvent::Lost { signal: None },
        LifecycleEvent::Resumed,
    ]
}

#[test]
fn f07_states_are_these_words() {
    let words: Vec<String> = State::ALL.iter().map(ToString::to_string).collect();
    assert_eq!(words, ["spawning", "running", "idle", "killed", "done", "failed", "crashed"]);
    for state in State::ALL {
        assert_eq!(state.word().parse(), Ok(state));
        assert_eq!(serde_json::to_value(state).unwrap(), state.word());
    }
    assert!("Running".parse::<State>().is_err());
}

#[test]
fn every_pair_of_state_and_event() {
    let table: Vec<String> = State::ALL
        .into_iter()
        .map(|state| {
            let next: Vec<&str> =
                events().iter().map(|event| apply(state, event).map_or("-", State::word)).collect();
            format!("{state}: {}", next.join(" "))
        })
        .collect();
    assert_eq!(
        table,
        [
            "spawning: running failed - - - - - - - - - - - killed crashed -",
            "running: - - - idle running running running running running done failed failed failed killed crashed -",
            "idle: - - running - - idle - - idle done failed failed failed killed crashed -",
            "killed: - - - - - - - - - - - - - - - spawning",
            "done: - - - - - - - - - - - - - - - spawning",
            "failed: - - - - - - - - - - - - - - - spawning",
            "crashed: - - - - - - - - - - - - - - - spawning",
        ]
    );
}

#[test]
fn a_refusal_names_state_and_event() {
    let refused = apply(State::Done, &LifecycleEvent::Killed { signal: None }).unwrap_err();
    assert_eq!(refused, EventRefused { state: State::Done, event: "killed" });
    assert_eq!(refused.to_string(), "an agent that is done cannot be killed");
    let mut names: Vec<&str> = events().iter().map(LifecycleEvent::name).collect();
    names.dedup();
    let all =
        "started, refused a start, woken, put to idle, made to wait, let go on, ended, killed, lost, resumed";
    assert_eq!(names.join(", "), all);
}

#[test]
fn what_is_said_beside_the_state_follows_it() {
    let approval = WaitingFor::Approval { call: "Bash(make)".into() };
    let running = Status::default().apply(LifecycleEvent::Started).unwrap();
    let waiting = running.apply(LifecycleEvent::Waits(approval.clone())).unwrap();
    assert_eq!((waiting.waiting_for(), running.waiting_for()), (Some(&approval), None));
    assert_eq!(waiting, Status::from_parts(State::Running, Some(approval), None).unwrap());
    assert_eq!(waiting.apply(LifecycleEvent::GoesOn).unwrap(), running);
    let failed =
        waiting.apply(LifecycleEvent::Ended(Outcome::BudgetExceeded { reason: "5 of 5".into() })).unwrap();
    let ending = Ending::BudgetExceeded { reason: "5 of 5".into() };
    assert_eq!(failed, Status::from_parts(State::Failed, None, Some(ending)).unwrap());
    assert_eq!(failed.apply(LifecycleEvent::Resumed).unwrap(), Status::default());
    let lost = running.apply(LifecycleEvent::Lost { signal: Some(11) }).unwrap();
    assert_eq!(lost.ending(), Some(&Ending::Signal { number: 11 }));
    let killed = Status::default().apply(LifecycleEvent::Killed { signal: None }).unwrap();
    assert_eq!(killed, Status::from_parts(State::Killed, None, Some(Ending::Stopped)).unwrap());
}

#[test]
fn endings_are_words() {
    let shown = [
        (Ending::Finished, "finished"),
        (Ending::TurnLimit { limit: 20 }, "turn limit (20) reached"),
        (Ending::BudgetExceeded { reason: "5 of 5".into() }, "budget exceeded: 5 of 5"),
        (Ending::Error { text: "no\x1b[2J".into() }, "error: no␛[2J"),
        (Ending::Signal { number: 9 }, "ended by signal 9"),
        (Ending::Stopped, "stopped on request"),
        (Ending::Unknown, "gone, reason unknown"),
    ];
    for (ending, words) in shown {
        assert_eq!(ending.to_string(), words);
    }
}

#[test]
fn a_stored_status_that_cannot_be_is_refused() {
    for text in [
        r#"{"state":"done"}"#,
        r#"{"state":"running","ending":{"how":"finished"}}"#,
        r#"{"state":"done","ending":{"how":"finished"},"waiting_for":{"for":"input"}}"#,
        r#"{"state":"spawning","waiting_for":{"for":"input"}}"#,
    ] {
        assert!(serde_json::from_str::<Status>(text).is_err(), "{text}");
    }
    let idle = serde_json::from_str::<Status>(r#"{"state":"idle","waiting_for":{"for":"input"}}"#).unwrap();
    assert_eq!((idle.state(), idle.waiting_for()), (State::Idle, Some(&WaitingFor::Input)));
}

proptest! {
    #[test]
    fn nothing_leaves_an_ending_except_by_an_explicit_resume(steps in proptest::collection::vec(0..events().len(), 0..60)) {
        let mut status = Status::default();
        for step in steps {
            let event = events().swap_remove(step);
            let before = status.clone();
            match status.apply(event.clone()) {
                Ok(after) => {
                    prop_assert!(!before.state().is_ending() || event == LifecycleEvent::Resumed);
                    prop_assert_eq!(after.state(), apply(before.state(), &event).unwrap());
                    // Whatever comes out can be stored and read again.
                    let stored = serde_json::to_string(&after).unwrap();
                    prop_assert_eq!(&serde_json::from_str::<Status>(&stored).unwrap(), &after);
                    status = after;
                }
                Err(refused) => prop_assert_eq!(refused.state, before.state()),
            }
        }
    }
}
