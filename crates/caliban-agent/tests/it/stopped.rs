//! A command that its fence has stopped runs again only when a person says so.

use std::{path::PathBuf, sync::Arc};

use caliban_agent::{
    Agent, Attendance, Kit,
    event::{Answer, CallVerdict, Event},
    fence::Fences,
};
use caliban_core::fence::Profile;
use caliban_permissions::Effect;
use serde_json::json;

use crate::world::{World, answer, asked, prompt};

/// A model that makes the same call so many times.
fn world(times: usize) -> World {
    let call = json!({"name": "Staged", "input": {"name": "a", "command": "fetch it"}});
    let mut steps = vec![json!({"tool_calls": [call]}); times];
    steps.push(json!({"text": "done"}));
    World::new(json!({"steps": steps}))
}

/// Its commands are fenced, and a rule allows them.
fn kit(world: &World, attendance: Attendance) -> Kit {
    let mut kit = world.kit();
    let fences = Fences {
        sandbox: caliban_core::fence::Sandbox::Required,
        ..Fences::off(PathBuf::from("/bin/false"))
    };
    let shared = Arc::make_mut(&mut kit.shared);
    (shared.fences, shared.attendance) = (Arc::new(fences), attendance);
    kit.policy.write().unwrap().add(Effect::Allow, "Bash(fetch *)".parse().unwrap(), "test");
    kit
}

/// The fences of the runs of the call, in the transcript.
fn runs(world: &World) -> Vec<(CallVerdict, Profile)> {
    let text = std::fs::read_to_string(world.session().join("transcript.jsonl")).unwrap();
    let events = text.lines().map(|line| {
        let record: caliban_agent::event::Record = serde_json::from_str(line).unwrap();
        record.event
    });
    let started = events.filter_map(|event| match event {
        Event::CallStarted { decision, .. } => Some((decision.verdict, decision.fence)),
        _ => None,
    });
    started.collect()
}

#[tokio::test]
async fn r17_a_command_that_its_fence_stopped_runs_again_only_by_a_persons_word() {
    let world = world(1);
    let kit = kit(&world, Attendance::Somebody);
    let mut agent = Agent::new(kit.clone()).await.unwrap();
    let person = async {
        asked(&kit).await;
        let [ask] = &kit.asks.open()[..] else { panic!("one question") };
        assert!(ask.why.contains("it failed in its fence"), "{}", ask.why);
        assert_eq!(ask.input["output"], "no network here");
        assert_eq!(
            (&ask.suggestions[..], &ask.outside[..]),
            (&[][..], &["Bash(fetch it) outside".to_owned()][..])
        );
        assert_eq!(world.stage.log(), ["a begins", "a ends"]);
        answer(&kit, Answer::Once).await;
    };
    let (report, ()) = tokio::join!(prompt(&mut agent, "go"), person);
    assert_eq!(world.stage.log(), ["a begins", "a ends", "a begins", "a ends"]);
    assert_eq!(runs(&world), [(CallVerdict::Allowed, Profile::Edit), (CallVerdict::Approved, Profile::None)]);
    assert_eq!((report.text.as_str(), report.notes.len()), ("done", 0));
}

#[tokio::test]
async fn r17_a_no_is_remembered_for_the_same_command() {
    let world = world(2);
    let kit = kit(&world, Attendance::Somebody);
    let mut agent = Agent::new(kit.clone()).await.unwrap();
    let (report, ()) =
        tokio::join!(prompt(&mut agent, "go"), answer(&kit, Answer::No(Some("use the cache".into()))));
    assert_eq!(report.text, "done");
    assert_eq!(runs(&world), [(CallVerdict::Allowed, Profile::Edit); 2]);
    let text = std::fs::read_to_string(world.session().join("transcript.jsonl")).unwrap();
    assert!(
        text.contains(
            "it was not run again outside of the fence: the user rejected this call: use the cache"
        )
    );
}

#[tokio::test]
async fn r17_always_outside_holds_for_the_next_call_as_well() {
    let world = world(2);
    let kit = kit(&world, Attendance::Somebody);
    let mut agent = Agent::new(kit.clone()).await.unwrap();
    let (report, ()) = tokio::join!(prompt(&mut agent, "go"), answer(&kit, Answer::AlwaysOutside));
    assert_eq!(report.text, "done");
    let outside = |verdict| (verdict, Profile::None);
    assert_eq!(
        runs(&world),
        [
            (CallVerdict::Allowed, Profile::Edit),
            outside(CallVerdict::Approved),
            outside(CallVerdict::Allowed)
        ]
    );
}

/// An "always" is a rule: the fence holds for the very call that was asked about.
#[tokio::test]
async fn an_always_keeps_the_fence() {
    let world = world(1);
    let kit = kit(&world, Attendance::Somebody);
    kit.policy.write().unwrap().rules.clear();
    let mut agent = Agent::new(kit.clone()).await.unwrap();
    let person = async {
        answer(&kit, Answer::Always).await;
        world.stage.reached("a ends").await;
        answer(&kit, Answer::No(None)).await;
    };
    let (_, ()) = tokio::join!(prompt(&mut agent, "go"), person);
    assert_eq!(runs(&world), [(CallVerdict::Approved, Profile::Edit)]);
}

#[tokio::test]
async fn r17_with_nobody_to_ask_the_end_names_what_would_have_helped() {
    let world = world(2);
    let kit = kit(&world, Attendance::Nobody);
    let mut agent = Agent::new(kit).await.unwrap();
    let report = prompt(&mut agent, "go").await;
    assert_eq!(runs(&world), [(CallVerdict::Allowed, Profile::Edit); 2]);
    assert_eq!(report.refused, []);
    assert_eq!(
        report.notes,
        [
            "`fetch it` failed because of its fence: --allow 'Bash(fetch it) outside' runs it outside, or the setting \
          fence.network = \"on\" gives it what it missed"
        ]
    );
}

/// Somebody is there, and the mode says that nobody wants to be asked.
#[tokio::test]
async fn a17_never_ask_does_what_stays_in_the_fence_and_refuses_the_rest() {
    let call = |command: &str| json!({"name": "Staged", "input": {"name": "a", "command": command}});
    let world = World::new(json!({"steps": [
        {"tool_calls": [call("fetch it")]},
        {"tool_calls": [call("cat ~/notes")]},
        {"text": "done"},
    ]}));
    let kit = kit(&world, Attendance::Somebody);
    kit.policy.write().unwrap().rules.clear();
    kit.policy.write().unwrap().mode = caliban_permissions::Mode::NeverAsk;
    let mut agent = Agent::new(kit).await.unwrap();
    let report = prompt(&mut agent, "go").await;
    assert_eq!(runs(&world), [(CallVerdict::Allowed, Profile::Edit)]);
    assert_eq!(report.notes.len(), 1);
    assert_eq!(report.refused.len(), 1);
    let why = &report.refused[0].why;
    assert!(why.contains("the mode never-ask refuses what would be asked"), "{why}");
}
