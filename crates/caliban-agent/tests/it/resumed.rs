//! What a resumed agent still knows beside the conversation: where it stood, and its todo list.

use caliban_agent::{
    Agent,
    event::{Event, Outcome},
    transcript,
};
use caliban_core::redact::Redactor;
use caliban_permissions::Mode;
use caliban_tools::{Todo, TodoStatus};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::world::{World, asked, prompt};

/// An agent that said something in `sub`, and its kit's workspace after a resume.
async fn resumed(world: &World) -> Agent {
    Agent::resume(world.kit()).await.unwrap()
}

async fn worked_in(world: &World, directory: &str) {
    let sub = world.root().join(directory);
    std::fs::create_dir_all(&sub).unwrap();
    let kit = world.kit();
    let workspace = kit.workspace.clone();
    let mut agent = Agent::new(kit).await.unwrap();
    workspace.set_cwd(sub);
    prompt(&mut agent, "hi").await;
    agent.close().await;
}

fn moves(world: &World) -> Vec<(u64, std::path::PathBuf)> {
    let records = transcript::read(&world.session()).unwrap();
    records.into_iter().filter_map(|record| Some((record.seq, record.stands_in?))).collect()
}

#[tokio::test]
async fn a_resumed_agent_stands_where_it_stood_however_often() {
    let world = World::new(json!({"steps": [{"repeat": true, "text": "ok"}]}));
    worked_in(&world, "sub").await;
    let sub = world.root().join("sub");
    // Said once, not with every record.
    assert_eq!(moves(&world), [(1, sub.clone())]);
    for _ in 0..2 {
        let agent = resumed(&world).await;
        assert_eq!(agent.kit().workspace.cwd(), sub);
        agent.close().await;
    }
    // Back in the root, and that is remembered as well.
    let mut agent = resumed(&world).await;
    agent.kit().workspace.set_cwd(world.root());
    prompt(&mut agent, "back").await;
    agent.close().await;
    assert_eq!(resumed(&world).await.kit().workspace.cwd(), world.root());
}

#[tokio::test]
async fn when_the_directory_is_gone_the_model_is_told() {
    let world = World::new(json!({"steps": [{"repeat": true, "text": "ok"}]}));
    worked_in(&world, "sub").await;
    std::fs::remove_dir(world.root().join("sub")).unwrap();
    let mut agent = resumed(&world).await;
    assert_eq!(agent.kit().workspace.cwd(), world.root());
    prompt(&mut agent, "go on").await;
    let told = format!("[the working directory {0}/sub is gone; it is now {0}]", world.root().display());
    let messages = agent.conversation().messages();
    assert_eq!(messages[2].text(), format!("go on\n\n{told}"));
    agent.close().await;
    // Once.
    let mut agent = resumed(&world).await;
    prompt(&mut agent, "more").await;
    assert_eq!(agent.conversation().messages()[4].text(), "more");
}

#[tokio::test]
async fn in_another_project_it_stands_in_that_ones_root() {
    let world = World::new(json!({"steps": [{"repeat": true, "text": "ok"}]}));
    worked_in(&world, "sub").await;
    let file = world.session().join(transcript::FILE_NAME);
    let elsewhere = std::fs::read_to_string(&file).unwrap().replacen("/work\"", "/other\"", 1);
    std::fs::write(&file, elsewhere).unwrap();
    assert_eq!(resumed(&world).await.kit().workspace.cwd(), world.root());
}

#[tokio::test]
async fn the_todo_list_is_there_again() {
    let todos = json!([{"content": "find it", "status": "in_progress"}]);
    let world = World::new(json!({"steps": [
        {"tool_calls": [{"name": "TodoWrite", "input": {"todos": todos}}]}, {"repeat": true, "text": "ok"},
    ]}));
    let mut agent = Agent::new(world.kit()).await.unwrap();
    prompt(&mut agent, "plan").await;
    agent.close().await;
    let agent = resumed(&world).await;
    let expected = Todo { content: "find it".into(), status: TodoStatus::InProgress, active_form: None };
    assert_eq!(agent.kit().workspace.todos(), [expected]);
    let started = transcript::read(&world.session()).unwrap();
    assert!(
        started
            .iter()
            .any(|record| matches!(&record.event, Event::CallStarted { name, .. } if name == "TodoWrite"))
    );
}

#[tokio::test]
async fn a12_a_parked_call_with_a_gap_in_its_record_is_not_carried_out_after_a_resume() {
    const CANARY: &str = "canary-4f1d9c7e2b";
    let staged = |name: &str| json!({"name": "Staged", "input": {"name": name, "write": "x"}});
    let mut world = World::new(json!({"steps": [
        {"tool_calls": [staged(CANARY), staged("whole")]},
        {"text": "done"},
    ]}));
    world.redactor = Redactor::new([("DB_PASSWORD", CANARY)]);
    let kit = world.kit();
    let mut agent = Agent::new(kit.clone()).await.unwrap();
    tokio::select! {
        report = prompt(&mut agent, "go") => panic!("{report:?}"),
        _ = asked(&kit) => {}
    }
    agent.close().await;
    let kit = world.kit();
    kit.policy.write().unwrap().mode = Mode::Unattended;
    let mut agent = Agent::resume(kit).await.unwrap();
    let report = agent.go_on(&CancellationToken::new()).await;
    assert_eq!(report.outcome, Outcome::Done);
    assert_eq!(world.stage.log(), ["whole begins", "whole ends"]);
    let records = transcript::read(&world.session()).unwrap();
    let refused: Vec<&str> = records
        .iter()
        .filter_map(|record| match &record.event {
            Event::CallRefused { message, .. } => Some(message.as_str()),
            _ => None,
        })
        .collect();
    let told = "Not carried out: its arguments were not recorded whole, because they held a secret; make the call again.";
    assert_eq!(refused, [told]);
}

/// Somebody takes lines off the end: the call has run, and nothing of it is left but that the model asked for it.
#[tokio::test]
async fn r02_what_a_cut_record_does_not_tell_is_not_run_again() {
    let staged = json!({"name": "Staged", "input": {"name": "effect", "write": "x"}});
    let world =
        World::new(json!({"steps": [{"tool_calls": [staged]}, {"text": "done"}, {"text": "looked"}]}));
    let unattended = || {
        let kit = world.kit();
        kit.policy.write().unwrap().mode = Mode::Unattended;
        kit
    };
    let mut agent = Agent::new(unattended()).await.unwrap();
    prompt(&mut agent, "go").await;
    agent.close().await;
    assert_eq!(world.stage.log(), ["effect begins", "effect ends"]);
    let file = world.session().join("transcript.jsonl");
    let text = std::fs::read_to_string(&file).unwrap();
    let kept: Vec<&str> = text.lines().take_while(|line| !line.contains("\"call_started\"")).collect();
    std::fs::write(&file, kept.join("\n") + "\n").unwrap();
    let later = std::time::SystemTime::now() + std::time::Duration::from_secs(60);
    std::fs::File::options().write(true).open(&file).unwrap().set_modified(later).unwrap();
    let mut agent = Agent::resume(unattended()).await.unwrap();
    agent.go_on(&CancellationToken::new()).await;
    agent.close().await;
    assert_eq!(world.stage.log(), ["effect begins", "effect ends"], "it is not run again");
    let told = std::fs::read_to_string(&file).unwrap();
    assert!(told.contains("its end is missing"), "{told}");
}

/// However the record is cut or thinned out: a step with effects that has run does not run again.
#[tokio::test]
async fn r02_no_step_runs_twice_wherever_the_record_was_cut() {
    let staged = |name: &str| json!({"name": "Staged", "input": {"name": name, "write": name}});
    let mut world = World::new(json!({"steps": [
        {"text": "first", "tool_calls": [staged("one"), staged("two")]},
        {"tool_calls": [staged("three")]},
        {"repeat": true, "text": "done"},
    ]}));
    let unattended = |world: &World| {
        let kit = world.kit();
        kit.policy.write().unwrap().mode = Mode::Unattended;
        kit
    };
    let mut agent = Agent::new(unattended(&world)).await.unwrap();
    prompt(&mut agent, "go").await;
    agent.close().await;
    // A model that has been told does not ask for it again.
    world.follow(json!({"steps": [{"repeat": true, "text": "looked"}]}));
    let before = world.stage.log();
    assert_eq!(before.len(), 6, "{before:?}");
    let file = world.session().join(transcript::FILE_NAME);
    let whole = std::fs::read(&file).unwrap();
    let mut ends: Vec<usize> = (0..whole.len()).filter(|at| whole[*at] == b'\n').map(|at| at + 1).collect();
    ends.insert(0, 0);
    let without = ends.windows(2).map(|line| [&whole[..line[0]], &whole[line[1]..]].concat());
    // Between two lines, and within each: before its time can be read, behind it, in the middle, without its end.
    let within =
        |line: &[usize]| [0, 3, 60, (line[1] - line[0]) / 2, line[1] - line[0] - 1].map(|at| line[0] + at);
    let cuts = ends[1..].windows(2).flat_map(within).map(|at| whole[..at].to_vec());
    for damaged in without.chain(cuts) {
        std::fs::write(&file, &damaged).unwrap();
        let later = std::time::SystemTime::now() + std::time::Duration::from_secs(60);
        std::fs::File::options().write(true).open(&file).unwrap().set_modified(later).unwrap();
        // One from whose middle a line was taken is refused whole.
        let Ok(mut agent) = Agent::resume(unattended(&world)).await else { continue };
        agent.go_on(&CancellationToken::new()).await;
        agent.close().await;
        assert_eq!(world.stage.log(), before, "{}", String::from_utf8_lossy(&damaged));
    }
}
