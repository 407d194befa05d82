//! What follows from what: pure functions, so that every case can be tested without a process.

use caliban_core::lifecycle::{Event, Outcome, State, Status};
use caliban_store::fleet::Wanted;

use crate::records::{Again, ExitRecord, HIBERNATED, WorkerState, WorkerStatus};

/// The events by which a living agent comes to stand as its worker says.
pub(super) fn follow(status: &Status, report: &WorkerStatus) -> Vec<Event> {
    let waits = report.waits_for();
    let mut events = Vec::new();
    match (status.state(), report.state) {
        (State::Running, WorkerState::Idle) => events.push(Event::TurnEnded),
        (State::Idle, WorkerState::Running) => events.push(Event::TurnStarted),
        // The end counts when the processes are gone.
        (_, WorkerState::Done | WorkerState::Failed) => return events,
        (State::Running, WorkerState::Running) | (State::Idle, WorkerState::Idle) => {}
        // It speaks, so it has begun, whether or not its shim came to say so.
        (State::Spawning, WorkerState::Running) => events.push(Event::Started),
        (State::Spawning, WorkerState::Idle) => events.extend([Event::Started, Event::TurnEnded]),
        (State::Killed | State::Done | State::Failed | State::Crashed, _) => return events,
    }
    let still = if events.is_empty() { status.waiting_for() } else { None };
    if waits.as_ref() != still {
        events.push(waits.map_or(Event::GoesOn, Event::Waits));
    }
    events
}

/// What is known when a run is over and its tree is gone.
#[derive(Debug, Clone, Copy)]
pub(super) struct Facts<'a> {
    pub(super) state: State,
    pub(super) wanted: Wanted,
    /// What the worker of this run said last.
    pub(super) report: Option<&'a WorkerStatus>,
    /// What the shim of this run said last.
    pub(super) exit: Option<&'a ExitRecord>,
}

/// What it means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Meaning {
    pub(super) events: Vec<Event>,
    pub(super) note: Option<String>,
}

/// What the end of a run means for the agent. No event: it hibernates and stays as it is.
pub(super) fn end_of_run(facts: &Facts<'_>) -> Meaning {
    let signal = facts.exit.and_then(|exit| exit.signal);
    let end = |event: Event| {
        let mut events = Vec::new();
        if facts.state == State::Spawning && matches!(event, Event::Ended(_)) {
            events.push(Event::Started);
        }
        events.push(event);
        events
    };
    let note = facts.exit.and_then(note);
    let outcome = facts.report.and_then(WorkerStatus::outcome);
    let events = if let (Wanted::Run, Some(outcome)) = (facts.wanted, outcome.clone()) {
        end(Event::Ended(outcome))
    } else if facts.wanted == Wanted::Kill {
        // It may have finished in the very moment; its own word counts more than ours.
        match outcome {
            Some(Outcome::Finished) => end(Event::Ended(Outcome::Finished)),
            _ => end(Event::Killed { signal }),
        }
    } else if let Some(text) = facts.exit.and_then(|exit| exit.not_started.clone()) {
        match facts.state {
            State::Spawning => end(Event::SpawnFailed { text }),
            _ => end(Event::Ended(Outcome::Error { text })),
        }
    } else if hibernates(facts) {
        match facts.state {
            State::Running => vec![Event::TurnEnded],
            State::Spawning => vec![Event::Started, Event::TurnEnded],
            _ => Vec::new(),
        }
    } else {
        match facts.exit.and_then(|exit| exit.code) {
            Some(0) | None => end(Event::Lost { signal }),
            Some(code) => {
                let text =
                    format!("the worker ended with code {code} and gave no reason; see its worker.log");
                end(Event::Ended(Outcome::Error { text }))
            }
        }
    };
    Meaning { events, note }
}

/// Why a run that is over had no worker, when another try may have one.
pub(super) fn not_begun(exit: Option<&ExitRecord>, wanted: Wanted) -> Option<(String, Again)> {
    let exit = exit.filter(|exit| wanted == Wanted::Run && exit.again != Again::Never)?;
    Some((exit.not_started.clone()?, exit.again))
}

/// What else there is to say.
fn note(exit: &ExitRecord) -> Option<String> {
    let mut notes = Vec::new();
    if exit.out_of_memory {
        // The kernel says that it ended something of the run, or of the machine, not what: a command may have gone
        // earlier, and somebody else have sent this KILL.
        notes.push("the kernel probably ended it for want of memory".to_owned());
    }
    if !exit.left.is_empty() {
        let pids: Vec<String> = exit.left.iter().map(i32::to_string).collect();
        notes.push(format!("processes of it that could not be ended: {}", pids.join(", ")));
    }
    (!notes.is_empty()).then(|| notes.join("; "))
}

fn hibernates(facts: &Facts<'_>) -> bool {
    facts.report.is_some_and(|report| report.hibernated)
        && facts.exit.is_some_and(|exit| exit.code == Some(HIBERNATED))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::{Ask, EndingKind, ToldBy, Waiting, WorkerEnding};
    use caliban_core::lifecycle::WaitingFor;

    fn status(events: &[Event]) -> Status {
        events.iter().fold(Status::default(), |status, event| status.apply(event.clone()).unwrap())
    }

    fn report(state: WorkerState) -> WorkerStatus {
        WorkerStatus { state, ..WorkerStatus::default() }
    }

    #[test]
    fn a_living_agent_follows_its_worker() {
        let running = status(&[Event::Started]);
        let idle = status(&[Event::Started, Event::TurnEnded]);
        let ask = Ask { what: "Bash rm".into(), ..Ask::default() };
        let asks = WorkerStatus {
            waiting_for: Some(Waiting::Approval),
            asks: vec![ask],
            ..report(WorkerState::Running)
        };
        let approval = Event::Waits(WaitingFor::Approval { call: "Bash rm".into() });
        let input = WorkerStatus { waiting_for: Some(Waiting::Input), ..report(WorkerState::Idle) };
        assert_eq!(follow(&running, &report(WorkerState::Running)), []);
        assert_eq!(follow(&running, &asks), std::slice::from_ref(&approval));
        let waiting = running.apply(approval.clone()).unwrap();
        assert_eq!(follow(&waiting, &asks), []);
        assert_eq!(follow(&waiting, &report(WorkerState::Running)), [Event::GoesOn]);
        assert_eq!(follow(&waiting, &input), [Event::TurnEnded, Event::Waits(WaitingFor::Input)]);
        assert_eq!(follow(&idle, &asks), [Event::TurnStarted, approval.clone()]);
        assert_eq!(follow(&running, &report(WorkerState::Done)), []);
        // A worker that speaks has begun.
        let spawning = Status::default();
        assert_eq!(follow(&spawning, &report(WorkerState::Running)), [Event::Started]);
        assert_eq!(follow(&spawning, &asks), [Event::Started, approval]);
        let rests = [Event::Started, Event::TurnEnded, Event::Waits(WaitingFor::Input)];
        assert_eq!(follow(&spawning, &input), rests);
        assert_eq!(follow(&spawning, &report(WorkerState::Done)), []);
        status(&rests);
        for events in [follow(&waiting, &input), follow(&idle, &asks)] {
            let start = if events.first() == Some(&Event::TurnEnded) { &waiting } else { &idle };
            events.into_iter().try_fold(start.clone(), |status, event| status.apply(event)).unwrap();
        }
    }

    #[track_caller]
    fn check(
        state: State,
        wanted: Wanted,
        report: Option<WorkerStatus>,
        exit: Option<ExitRecord>,
        expected: &[Event],
    ) {
        let facts = Facts { state, wanted, report: report.as_ref(), exit: exit.as_ref() };
        let meaning = end_of_run(&facts);
        assert_eq!(meaning.events, expected);
        let after = meaning
            .events
            .into_iter()
            .try_fold(state, |state, event| caliban_core::lifecycle::apply(state, &event));
        assert!(after.is_ok(), "{after:?}");
    }

    fn exit(code: Option<i32>, signal: Option<i32>) -> Option<ExitRecord> {
        Some(ExitRecord {
            nonce: "n".into(),
            code,
            signal,
            not_started: None,
            again: Again::Never,
            out_of_memory: false,
            told_by: ToldBy::Run,
            left: Vec::new(),
            at: 0,
        })
    }

    #[test]
    fn a_run_that_had_no_worker_for_a_passing_reason_is_tried_again_unless_it_was_to_end() {
        let text = || Some("no room".to_owned());
        let soon = |not_started| ExitRecord { again: Again::Soon, not_started, ..exit(None, None).unwrap() };
        let never = ExitRecord { not_started: text(), ..exit(None, None).unwrap() };
        assert_eq!(not_begun(Some(&soon(text())), Wanted::Run), Some(("no room".to_owned(), Again::Soon)));
        assert_eq!(not_begun(Some(&soon(text())), Wanted::Kill), None);
        assert_eq!(not_begun(Some(&soon(None)), Wanted::Run), None);
        assert_eq!(not_begun(Some(&never), Wanted::Run), None);
        assert_eq!(not_begun(None, Wanted::Run), None);
    }

    #[test]
    fn who_could_not_be_ended_and_want_of_memory_are_noted() {
        let plain = exit(None, Some(9)).unwrap();
        assert_eq!(note(&plain), None);
        let both = ExitRecord { out_of_memory: true, left: vec![7, 12], ..plain };
        let words =
            "the kernel probably ended it for want of memory; processes of it that could not be ended: 7, 12";
        assert_eq!(note(&both).as_deref(), Some(words));
    }

    #[test]
    fn f20_the_end_of_a_run_is_what_worker_and_shim_said() {
        use State::{Idle, Running, Spawning};
        use Wanted::{Kill, Run};
        let done = || Some(report(WorkerState::Done));
        let finished = || Event::Ended(Outcome::Finished);
        check(Running, Run, done(), exit(Some(0), None), &[finished()]);
        check(Spawning, Run, done(), exit(Some(0), None), &[Event::Started, finished()]);
        // The shim was killed after the worker had finished.
        check(Running, Run, done(), None, &[finished()]);
        check(Running, Kill, done(), exit(Some(0), None), &[finished()]);
        check(Running, Kill, None, exit(None, Some(15)), &[Event::Killed { signal: Some(15) }]);
        check(Running, Run, None, exit(None, Some(9)), &[Event::Lost { signal: Some(9) }]);
        check(Running, Run, Some(report(WorkerState::Running)), None, &[Event::Lost { signal: None }]);
        check(
            Running,
            Run,
            Some(report(WorkerState::Running)),
            exit(Some(0), None),
            &[Event::Lost { signal: None }],
        );
        check(Spawning, Run, None, None, &[Event::Lost { signal: None }]);
        let budget = WorkerStatus {
            ending: Some(WorkerEnding { kind: EndingKind::Budget, text: Some("1 USD".into()) }),
            ..report(WorkerState::Failed)
        };
        let exceeded = Event::Ended(Outcome::BudgetExceeded { reason: "1 USD".into() });
        check(Running, Run, Some(budget), exit(Some(1), None), &[exceeded]);
        let asleep = || Some(WorkerStatus { hibernated: true, ..report(WorkerState::Idle) });
        check(Idle, Run, asleep(), exit(Some(HIBERNATED), None), &[]);
        check(Running, Run, asleep(), exit(Some(HIBERNATED), None), &[Event::TurnEnded]);
        // It said so, and then was killed before it had left.
        check(Idle, Run, asleep(), exit(None, Some(9)), &[Event::Lost { signal: Some(9) }]);
        check(Idle, Kill, asleep(), exit(Some(HIBERNATED), None), &[Event::Killed { signal: None }]);
    }
}
