//! What the records of a run mean for its agent: pure functions, so that every case is tested without a process.
//!
//! The daemon decides by them, and so does a list of agents whose daemon is not running.

use caliban_core::lifecycle::{LifecycleEvent, Outcome, State, Status};
use caliban_store::fleet::WantedState;

use caliban_contract::records::{Again, ExitRecord, HIBERNATED, WorkerState, WorkerStatus};

/// The events that bring a living agent to the state that its worker reports.
#[must_use]
pub fn follow(status: &Status, report: &WorkerStatus) -> Vec<LifecycleEvent> {
    let mut events = match (status.state(), report.state) {
        // An end counts when the processes are gone; an ended agent has no worker.
        (_, WorkerState::Done | WorkerState::Failed)
        | (State::Killed | State::Done | State::Failed | State::Crashed, _) => return Vec::new(),
        (State::Running, WorkerState::Idle) => vec![LifecycleEvent::TurnEnded],
        (State::Idle, WorkerState::Running) => vec![LifecycleEvent::TurnStarted],
        (State::Running, WorkerState::Running) | (State::Idle, WorkerState::Idle) => Vec::new(),
        // A worker that reports has begun, whether or not its shim came to say so.
        (State::Spawning, WorkerState::Running) => vec![LifecycleEvent::Started],
        (State::Spawning, WorkerState::Idle) => vec![LifecycleEvent::Started, LifecycleEvent::TurnEnded],
    };
    let waits = report.waits_for();
    let still = if events.is_empty() { status.waiting_for() } else { None };
    if waits.as_ref() != still {
        events.push(waits.map_or(LifecycleEvent::GoesOn, LifecycleEvent::Waits));
    }
    events
}

/// What is known when a run is over and its process tree is gone.
#[derive(Debug, Clone, Copy)]
pub struct RunFacts<'a> {
    /// The agent's state so far.
    pub state: State,
    /// Whether somebody wanted it to end.
    pub wanted: WantedState,
    /// The time that it had, when it ends because that is up.
    pub timed_out_ms: Option<u64>,
    /// The last report of this run's worker.
    pub report: Option<&'a WorkerStatus>,
    /// The last record of this run's shim.
    pub exit: Option<&'a ExitRecord>,
    /// Whether the worker's program has been missing for so long that it is not being replaced.
    pub is_program_lost: bool,
}

/// What the end of a run means for its agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunEnd {
    /// There was no worker, for a reason that may pass: the agent gets another run.
    NotBegun(String),
    /// The worker left memory; a message wakes the agent.
    Hibernates {
        /// What brings the agent to `idle`.
        events: Vec<LifecycleEvent>,
        /// What else there is to say.
        note: Option<String>,
    },
    /// The agent has ended.
    Over {
        /// What brings it there.
        events: Vec<LifecycleEvent>,
        /// What else there is to say.
        note: Option<String>,
    },
}

/// Decides what the end of a run means.
#[must_use]
pub fn end_of_run(facts: &RunFacts<'_>) -> RunEnd {
    if let Some(text) = not_begun(facts) {
        return RunEnd::NotBegun(text);
    }
    let signal = facts.exit.and_then(|exit| exit.signal);
    let outcome = facts.report.and_then(WorkerStatus::outcome);
    let exceeded = facts.exit.and_then(|exit| exit.exceeded);
    let last = match (facts.wanted, outcome) {
        (WantedState::Run, Some(outcome)) => LifecycleEvent::Ended(outcome),
        // It finished in the moment of the kill: its work is done, and its own report counts.
        (WantedState::Kill, Some(Outcome::Finished)) => LifecycleEvent::Ended(Outcome::Finished),
        (WantedState::Kill, _) => match facts.timed_out_ms {
            Some(after_ms) => LifecycleEvent::TimedOut { after_ms },
            None => LifecycleEvent::Killed { signal },
        },
        (WantedState::Run, None) if hibernates(facts) => {
            return RunEnd::Hibernates { events: to_idle(facts.state), note: facts.exit.and_then(note) };
        }
        (WantedState::Run, None) if let Some(excess) = exceeded => {
            LifecycleEvent::Ended(Outcome::Error { text: excess.to_string() })
        }
        (WantedState::Run, None) => match facts.exit.map(|exit| (&exit.not_started, exit.code)) {
            Some((Some(text), _)) if facts.state == State::Spawning => {
                LifecycleEvent::SpawnFailed { text: text.clone() }
            }
            Some((Some(text), _)) => LifecycleEvent::Ended(Outcome::Error { text: text.clone() }),
            Some((None, Some(0) | None)) | None => LifecycleEvent::Lost { signal },
            Some((None, Some(code))) => {
                let text =
                    format!("the worker ended with code {code} and gave no reason; see its worker.log");
                LifecycleEvent::Ended(Outcome::Error { text })
            }
        },
    };
    let begins = facts.state == State::Spawning && matches!(last, LifecycleEvent::Ended(_));
    let events = begins.then_some(LifecycleEvent::Started).into_iter().chain([last]).collect();
    RunEnd::Over { events, note: facts.exit.and_then(note) }
}

/// Why a run had no worker, when another run may have one.
fn not_begun(facts: &RunFacts<'_>) -> Option<String> {
    let exit = facts.exit.filter(|_| facts.wanted == WantedState::Run)?;
    let may_pass = match exit.again {
        Again::Never => false,
        Again::Soon => true,
        Again::IfReplaced => !facts.is_program_lost,
    };
    let is_waiting = matches!(facts.state, State::Spawning | State::Idle);
    exit.not_started.clone().filter(|_| may_pass && is_waiting)
}

fn to_idle(state: State) -> Vec<LifecycleEvent> {
    match state {
        State::Running => vec![LifecycleEvent::TurnEnded],
        State::Spawning => vec![LifecycleEvent::Started, LifecycleEvent::TurnEnded],
        State::Idle | State::Done | State::Failed | State::Killed | State::Crashed => Vec::new(),
    }
}

fn note(exit: &ExitRecord) -> Option<String> {
    let mut notes = Vec::new();
    if exit.out_of_memory && exit.exceeded.is_none() {
        // The kernel says that it killed a process of the run, or of the machine, but not which one: it may have been a
        // command earlier, and this KILL somebody else's.
        notes.push("the kernel probably ended it for want of memory".to_owned());
    }
    if !exit.left.is_empty() {
        let pids: Vec<String> = exit.left.iter().map(i32::to_string).collect();
        notes.push(format!("processes of it that could not be ended: {}", pids.join(", ")));
    }
    (!notes.is_empty()).then(|| notes.join("; "))
}

fn hibernates(facts: &RunFacts<'_>) -> bool {
    facts.report.is_some_and(|report| report.hibernated)
        && facts.exit.is_some_and(|exit| exit.code == Some(HIBERNATED))
}

#[cfg(test)]
mod tests {
    use super::*;
    use caliban_contract::records::{AskRecord, EndingKind, ToldBy, Waiting, WorkerEnding};
    use caliban_contract::tree_limits::Excess;
    use caliban_core::lifecycle::WaitingFor;

    fn status(events: &[LifecycleEvent]) -> Status {
        events.iter().fold(Status::default(), |status, event| status.apply(event.clone()).unwrap())
    }

    fn report(state: WorkerState) -> WorkerStatus {
        WorkerStatus { state, ..WorkerStatus::default() }
    }

    #[test]
    fn a_living_agent_follows_its_worker() {
        let running = status(&[LifecycleEvent::Started]);
        let idle = status(&[LifecycleEvent::Started, LifecycleEvent::TurnEnded]);
        let ask = AskRecord { what: "Bash rm".into(), ..AskRecord::default() };
        let asks = WorkerStatus {
            waiting_for: Some(Waiting::Approval),
            asks: vec![ask],
            ..report(WorkerState::Running)
        };
        let approval = LifecycleEvent::Waits(WaitingFor::Approval { call: "Bash rm".into() });
        let input = WorkerStatus { waiting_for: Some(Waiting::Input), ..report(WorkerState::Idle) };
        assert_eq!(follow(&running, &report(WorkerState::Running)), []);
        assert_eq!(follow(&running, &asks), std::slice::from_ref(&approval));
        let waiting = running.apply(approval.clone()).unwrap();
        assert_eq!(follow(&waiting, &asks), []);
        assert_eq!(follow(&waiting, &report(WorkerState::Running)), [LifecycleEvent::GoesOn]);
        assert_eq!(
            follow(&waiting, &input),
            [LifecycleEvent::TurnEnded, LifecycleEvent::Waits(WaitingFor::Input)]
        );
        assert_eq!(follow(&idle, &asks), [LifecycleEvent::TurnStarted, approval.clone()]);
        assert_eq!(follow(&running, &report(WorkerState::Done)), []);
        assert_eq!(follow(&idle, &report(WorkerState::Idle)), []);
        let killed = status(&[LifecycleEvent::Started, LifecycleEvent::Killed { signal: None }]);
        assert_eq!(follow(&killed, &asks), []);
        // A worker that speaks has begun.
        let spawning = Status::default();
        assert_eq!(follow(&spawning, &report(WorkerState::Running)), [LifecycleEvent::Started]);
        assert_eq!(follow(&spawning, &asks), [LifecycleEvent::Started, approval]);
        let rests =
            [LifecycleEvent::Started, LifecycleEvent::TurnEnded, LifecycleEvent::Waits(WaitingFor::Input)];
        assert_eq!(follow(&spawning, &input), rests);
        assert_eq!(follow(&spawning, &report(WorkerState::Done)), []);
        status(&rests);
        for events in [follow(&waiting, &input), follow(&idle, &asks)] {
            let start = if events.first() == Some(&LifecycleEvent::TurnEnded) { &waiting } else { &idle };
            events.into_iter().try_fold(start.clone(), |status, event| status.apply(event)).unwrap();
        }
    }

    #[track_caller]
    fn check(
        state: State,
        wanted: WantedState,
        report: Option<WorkerStatus>,
        exit: Option<ExitRecord>,
        expected: &[LifecycleEvent],
    ) {
        let (report, exit) = (report.as_ref(), exit.as_ref());
        let events = match end_of_run(&RunFacts {
            state,
            wanted,
            timed_out_ms: None,
            report,
            exit,
            is_program_lost: false,
        }) {
            RunEnd::Over { events, .. } => events,
            RunEnd::Hibernates { events, .. } => {
                assert_eq!(exit.unwrap().code, Some(HIBERNATED));
                events
            }
            other @ RunEnd::NotBegun(_) => panic!("{other:?}"),
        };
        assert_eq!(events, expected);
        let after =
            events.into_iter().try_fold(state, |state, event| caliban_core::lifecycle::apply(state, &event));
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
            exceeded: None,
            left: Vec::new(),
            at: 0,
        })
    }

    #[test]
    fn a_run_that_had_no_worker_for_a_passing_reason_is_tried_again_unless_it_was_to_end() {
        let of = |exit: &ExitRecord, state, wanted, is_program_lost| {
            let facts = RunFacts {
                state,
                wanted,
                timed_out_ms: None,
                report: None,
                exit: Some(exit),
                is_program_lost,
            };
            matches!(end_of_run(&facts), RunEnd::NotBegun(text) if text == "no room")
        };
        let exit = |again, not_started: Option<&str>| ExitRecord {
            again,
            not_started: not_started.map(str::to_owned),
            ..exit(None, None).unwrap()
        };
        let (soon, missing) = (exit(Again::Soon, Some("no room")), exit(Again::IfReplaced, Some("no room")));
        assert!(of(&soon, State::Spawning, WantedState::Run, true));
        assert!(of(&soon, State::Idle, WantedState::Run, true));
        assert!(!of(&soon, State::Running, WantedState::Run, true));
        assert!(!of(&soon, State::Spawning, WantedState::Kill, true));
        assert!(of(&missing, State::Spawning, WantedState::Run, false));
        assert!(!of(&missing, State::Spawning, WantedState::Run, true));
        assert!(!of(&exit(Again::Soon, None), State::Spawning, WantedState::Run, false));
        assert!(!of(&exit(Again::Never, Some("no room")), State::Spawning, WantedState::Run, false));
    }

    #[test]
    fn who_could_not_be_ended_and_want_of_memory_are_noted() {
        let plain = exit(None, Some(9)).unwrap();
        assert_eq!(note(&plain), None);
        let both = ExitRecord { out_of_memory: true, left: vec![7, 12], ..plain };
        let words =
            "the kernel probably ended it for want of memory; processes of it that could not be ended: 7, 12";
        assert_eq!(note(&both).as_deref(), Some(words));
        let (state, wanted) = (State::Running, WantedState::Run);
        let facts = RunFacts {
            state,
            wanted,
            timed_out_ms: None,
            report: None,
            exit: Some(&both),
            is_program_lost: false,
        };
        assert!(matches!(end_of_run(&facts), RunEnd::Over { note: Some(note), .. } if note == words));
    }

    #[test]
    fn a20_an_agent_that_took_too_much_failed_for_that_unless_it_was_killed_or_had_finished() {
        let exceeded = Some(Excess::Memory(4 << 30));
        let excess = || exit(None, Some(9)).map(|exit| ExitRecord { exceeded, out_of_memory: true, ..exit });
        assert_eq!(note(&excess().unwrap()), None);
        let why = "killed: used more than 4 GB of memory (fleet.memory_max)".to_owned();
        let ended = LifecycleEvent::Ended(Outcome::Error { text: why });
        check(State::Running, WantedState::Run, None, excess(), std::slice::from_ref(&ended));
        check(State::Spawning, WantedState::Run, None, excess(), &[LifecycleEvent::Started, ended]);
        let killed = [LifecycleEvent::Killed { signal: Some(9) }];
        check(State::Running, WantedState::Kill, None, excess(), &killed);
        let done = Some(report(WorkerState::Done));
        check(State::Running, WantedState::Run, done, excess(), &[LifecycleEvent::Ended(Outcome::Finished)]);
    }

    #[test]
    fn an_agent_whose_time_is_up_has_timed_out_unless_it_finished_in_that_moment() {
        let report = |state| WorkerStatus { state, ..WorkerStatus::default() };
        let (running, done) = (report(WorkerState::Running), report(WorkerState::Done));
        let ends = |report: &WorkerStatus, state| {
            let exit = exit(None, Some(15));
            let facts = RunFacts {
                state,
                wanted: WantedState::Kill,
                timed_out_ms: Some(60_000),
                report: Some(report),
                exit: exit.as_ref(),
                is_program_lost: false,
            };
            match end_of_run(&facts) {
                RunEnd::Over { events, .. } => events,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(ends(&running, State::Running), [LifecycleEvent::TimedOut { after_ms: 60_000 }]);
        assert_eq!(ends(&running, State::Spawning), [LifecycleEvent::TimedOut { after_ms: 60_000 }]);
        assert_eq!(ends(&done, State::Running), [LifecycleEvent::Ended(Outcome::Finished)]);
    }

    #[test]
    fn f20_the_end_of_a_run_is_what_worker_and_shim_said() {
        use State::{Idle, Running, Spawning};
        use WantedState::{Kill, Run};
        let done = || Some(report(WorkerState::Done));
        let finished = || LifecycleEvent::Ended(Outcome::Finished);
        check(Running, Run, done(), exit(Some(0), None), &[finished()]);
        check(Spawning, Run, done(), exit(Some(0), None), &[LifecycleEvent::Started, finished()]);
        // The shim was killed after the worker had finished.
        check(Running, Run, done(), None, &[finished()]);
        check(Running, Kill, done(), exit(Some(0), None), &[finished()]);
        check(Running, Kill, None, exit(None, Some(15)), &[LifecycleEvent::Killed { signal: Some(15) }]);
        let failed = Some(report(WorkerState::Failed));
        check(Running, Kill, failed, exit(Some(0), None), &[LifecycleEvent::Killed { signal: None }]);
        check(Running, Run, None, exit(None, Some(9)), &[LifecycleEvent::Lost { signal: Some(9) }]);
        check(
            Running,
            Run,
            Some(report(WorkerState::Running)),
            None,
            &[LifecycleEvent::Lost { signal: None }],
        );
        check(
            Running,
            Run,
            Some(report(WorkerState::Running)),
            exit(Some(0), None),
            &[LifecycleEvent::Lost { signal: None }],
        );
        check(Spawning, Run, None, None, &[LifecycleEvent::Lost { signal: None }]);
        let budget = WorkerStatus {
            ending: Some(WorkerEnding { kind: EndingKind::Budget, text: Some("1 USD".into()) }),
            ..report(WorkerState::Failed)
        };
        let exceeded = LifecycleEvent::Ended(Outcome::BudgetExceeded { reason: "1 USD".into() });
        check(Running, Run, Some(budget.clone()), exit(Some(1), None), &[exceeded]);
        check(Running, Kill, Some(budget), exit(Some(1), None), &[LifecycleEvent::Killed { signal: None }]);
        // The shim could not start a worker, or the worker said nothing.
        let refused = || Some(ExitRecord { not_started: Some("no".into()), ..exit(None, None).unwrap() });
        let error = |text: &str| LifecycleEvent::Ended(Outcome::Error { text: text.to_owned() });
        check(Spawning, Run, None, refused(), &[LifecycleEvent::SpawnFailed { text: "no".into() }]);
        check(Running, Run, None, refused(), &[error("no")]);
        let silent = error("the worker ended with code 3 and gave no reason; see its worker.log");
        check(Running, Run, None, exit(Some(3), None), std::slice::from_ref(&silent));
        check(Spawning, Run, None, exit(Some(3), None), &[LifecycleEvent::Started, silent]);
        let asleep = || Some(WorkerStatus { hibernated: true, ..report(WorkerState::Idle) });
        check(Idle, Run, asleep(), exit(Some(HIBERNATED), None), &[]);
        check(Running, Run, asleep(), exit(Some(HIBERNATED), None), &[LifecycleEvent::TurnEnded]);
        check(
            Spawning,
            Run,
            asleep(),
            exit(Some(HIBERNATED), None),
            &[LifecycleEvent::Started, LifecycleEvent::TurnEnded],
        );
        // It said so, and then was killed before it had left.
        check(Idle, Run, asleep(), exit(None, Some(9)), &[LifecycleEvent::Lost { signal: Some(9) }]);
        check(Idle, Kill, asleep(), exit(Some(HIBERNATED), None), &[LifecycleEvent::Killed { signal: None }]);
    }
}
