//! Leaving a session: what becomes of its background agents, and of a session that is not there.

use caliban_acp::v1::{ContentBlock, ContentChunk, Meta, SessionUpdate};
use caliban_tui::{
    Look, OnLeave,
    asks::AskedQuestion,
    events::{AgentEvent, FailureEvent, ScreenEffect},
};
use crossterm::event::KeyCode;
use serde_json::json;

use crate::world::World;

const SIZE: (u16, u16) = (100, 30);

/// A session with one background agent at work, and one that has ended.
fn at_work() -> World {
    let mut world = World::new(SIZE);
    world.background(&[(0, true), (1, false)]);
    world
}

#[test]
fn b01_whoever_leaves_agents_at_work_is_asked_once_what_becomes_of_them() {
    for leave in ["/new", "/clear", "/quit"] {
        let mut world = at_work();
        assert_eq!(world.says(leave), [], "{leave}");
        let screen = world.screen();
        assert!(screen.contains("a background agent is at work") && screen.contains("keep them"), "{screen}");
        // Staying changes nothing.
        assert_eq!(world.key(KeyCode::Char('s')), []);
        assert!(!world.screen().contains("keep them"));
        world.says(leave);
        let ended = world.key(KeyCode::Char('e'));
        let expected = if leave == "/quit" { ScreenEffect::Quit } else { ScreenEffect::New };
        assert_eq!(ended, [expected], "{leave}");
    }
    // By keys as well; and a further Ctrl+C wants no more questions.
    let mut world = at_work();
    assert_eq!(world.control('d'), []);
    assert_eq!(world.key(KeyCode::Esc), []);
    world.control('c');
    assert_eq!(world.control('c'), []);
    assert!(world.screen().contains("keep them"));
    assert_eq!(world.control('c'), [ScreenEffect::Quit]);
    // Nobody is asked where nothing would end.
    let mut world = World::new(SIZE);
    world.background(&[(1, false)]);
    assert_eq!(world.says("/new"), [ScreenEffect::New]);
}

#[test]
fn b06_agents_that_are_kept_go_to_the_fleet_before_their_session_is_left() {
    let mut world = at_work();
    world.says("/quit");
    let kept = world.key(KeyCode::Char('k'));
    assert_eq!(kept, [ScreenEffect::KeepAgents]);
    // Another prompt has ended meanwhile: nothing is known of the agents yet.
    world.turn_ends();
    assert!(!world.screen().contains("keep them"), "{}", world.screen());
    // Not taken: it stays, and the question comes again.
    let refused = FailureEvent { message: "the fleet did not take it".into(), hint: None };
    assert_eq!(world.agent(AgentEvent::AgentsKept(Err(refused))), []);
    assert!(world.screen().contains("keep them"), "{}", world.screen());
    world.key(KeyCode::Char('k'));
    assert_eq!(world.background(&[(1, false)]), [ScreenEffect::Quit]);
    // A person may have settled it.
    for (on_leave, expected) in [(OnLeave::Keep, None), (OnLeave::End, Some(ScreenEffect::New))] {
        let mut world = at_work();
        world.state.set_look(Look { on_leave, ..Look::default() });
        let effects = world.says("/new");
        match expected {
            Some(expected) => assert_eq!(effects, [expected]),
            None => assert_eq!(effects, [ScreenEffect::KeepAgents]),
        }
    }
}

#[test]
fn b01_a_session_that_was_made_of_this_one_ends_no_agents_without_a_question() {
    let other = || {
        let made = json!({"load": {"session": "s-2", "draft": "again"}});
        let meta = Meta::from_iter([("caliban".to_owned(), made)]);
        let text = ContentBlock::from("you are in a copy of the session");
        SessionUpdate::AgentMessageChunk(ContentChunk::new(text).meta(meta))
    };
    let mut world = at_work();
    assert_eq!(world.agent(AgentEvent::Update(other())), []);
    let screen = world.screen();
    assert!(screen.contains("keep them") && screen.contains("/resume s-2 goes there"), "{screen}");
    assert_eq!(world.key(KeyCode::Char('s')), []);
    world.agent(AgentEvent::Update(other()));
    assert_eq!(world.key(KeyCode::Char('k')), [ScreenEffect::KeepAgents]);
    assert_eq!(world.background(&[(1, false)]), [ScreenEffect::Load("s-2".into())]);
    assert!(world.screen().contains("> again"), "{}", world.screen());
    // Nobody is asked where nothing would end.
    let mut world = World::new(SIZE);
    assert_eq!(world.agent(AgentEvent::Update(other())), [ScreenEffect::Load("s-2".into())]);
}

#[test]
fn a_session_that_is_not_there_changes_nothing() {
    let mut world = World::new(SIZE);
    world.streams("m1", "an answer");
    assert_eq!(world.says("/resume zzz"), [ScreenEffect::FindSession("zzz".into())]);
    world.agent(AgentEvent::FoundSession(Err("there is no session zzz".into())));
    let screen = world.screen();
    assert!(screen.contains("an answer") && screen.contains("there is no session zzz"), "{screen}");
    let found = world.agent(AgentEvent::FoundSession(Ok("zz-1".into())));
    assert_eq!(found, [ScreenEffect::Load("zz-1".into())]);
}

#[test]
fn tokens_and_dollars_are_sums_of_the_session_and_never_go_down() {
    let mut world = World::new(SIZE);
    world.spends(52_000, 0.5);
    assert!(world.screen().contains("52.0k tokens · $0.50"), "{}", world.screen());
    world.spends(40_000, 0.25);
    assert!(world.screen().contains("52.0k tokens · $0.50"), "{}", world.screen());
    world.says("/cost");
    assert!(world.screen().contains("tokens, cache included: 52,000"), "{}", world.screen());
}

#[test]
fn a_background_agent_that_waits_for_an_answer_has_a_mark() {
    let mut world = at_work();
    assert!(!world.screen().contains("waits for your answer"));
    world.agent(AgentEvent::Asked(AskedQuestion {
        number: 1,
        tool: "Bash".into(),
        agent: Some("background agent 0".into()),
        input: json!({"command": "make"}),
        preview: None,
        why: String::new(),
        rules: Vec::new(),
        outside: Vec::new(),
    }));
    assert!(world.screen().contains("! 0 find the callers"), "{}", world.screen());
}

#[test]
fn copy_takes_what_the_model_said_and_plan_is_not_clear() {
    let mut world = World::new(SIZE);
    world.streams("m1", "the answer");
    let of_command = Meta::from_iter([("caliban".to_owned(), json!({"command": "status"}))]);
    let chunk = ContentChunk::new(ContentBlock::from("session: 1")).meta(of_command);
    world.update(SessionUpdate::AgentMessageChunk(chunk));
    assert_eq!(world.says("/copy"), [ScreenEffect::Copy("the answer".into())]);
    world.agent(AgentEvent::Update(SessionUpdate::AvailableCommandsUpdate(
        caliban_acp::v1::AvailableCommandsUpdate::new(vec![caliban_acp::v1::AvailableCommand::new(
            "status",
            "How things stand",
        )]),
    )));
    world.says("/plan");
    let screen = world.screen();
    assert!(screen.contains("did you mean /mode plan?") && !screen.contains("/clear"), "{screen}");
}

#[test]
fn help_uses_the_screen_and_scrolls_by_pages() {
    let mut world = World::new(SIZE);
    world.says("/help");
    let first = world.screen();
    assert!(first.lines().filter(|line| line.contains(": ")).count() > 15, "{first}");
    world.key(KeyCode::PageDown);
    let second = world.screen();
    assert!(first != second && second.contains("/quit"), "{second}");
    world.key(KeyCode::PageUp);
    assert_eq!(world.screen(), first);
}
