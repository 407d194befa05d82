//! Commands, the person's shell, going back, and the way to the agent view.

use caliban_acp::v1::{
    AvailableCommand, AvailableCommandsUpdate, ContentBlock, ContentChunk, CurrentModeUpdate, Meta,
    SessionInfoUpdate, SessionUpdate,
};
use caliban_tui::{
    Look, ScreenFacts,
    events::{AgentEvent, Clip, FailureEvent, ScreenEffect},
};
use crossterm::event::{KeyCode, KeyModifiers};
use serde_json::{Value, json};

use crate::world::{World, prompts};

fn meta(value: Value) -> Meta {
    Meta::from_iter([("caliban".to_owned(), value)])
}

/// A session whose agent has these commands.
pub(crate) fn with_commands(size: (u16, u16)) -> World {
    let mut world = World::new(size);
    world.says("fix the parser");
    world.turn_ends();
    let commands = ["rewind", "undo", "model"].map(|name| AvailableCommand::new(name, "does it"));
    world.update(SessionUpdate::AvailableCommandsUpdate(AvailableCommandsUpdate::new(commands.into())));
    world
}

fn gone() -> FailureEvent {
    FailureEvent { message: "the agent hung up".into(), hint: None }
}

#[test]
fn a_new_session_gets_nothing_that_was_queued_for_the_old_one() {
    let mut world = World::new((80, 24));
    world.says("begin");
    for text in ["one", "two"] {
        world.types(text);
        world.key(KeyCode::Tab);
    }
    assert_eq!(world.says("/new"), [ScreenEffect::New]);
    assert_eq!(prompts(&world.open(false)), [""; 0]);
    let screen = world.screen();
    assert!(screen.contains("> one\n  two"), "what was queued is in the composer: {screen}");
}

#[test]
fn a_command_that_is_entered_before_the_agent_names_its_own_is_carried_out_then() {
    let named = |world: &mut World| {
        let commands = ["bg", "undo"].map(|name| AvailableCommand::new(name, "does it"));
        let update = SessionUpdate::AvailableCommandsUpdate(AvailableCommandsUpdate::new(commands.into()));
        world.agent(AgentEvent::Update(update))
    };
    let mut world = World::closed((80, 24));
    assert_eq!(world.says("/bg the long task"), []);
    assert!(world.screen().contains("carried out as soon as the session is open"), "{}", world.screen());
    assert_eq!(prompts(&world.open(false)), [""; 0], "nobody knows yet whose it is");
    assert_eq!(prompts(&named(&mut world)), ["/bg the long task"]);
    assert_eq!(named(&mut world), [], "once");
    // In the other order, too.
    let mut world = World::closed((80, 24));
    world.says("/bg the long task");
    assert_eq!(named(&mut world), []);
    assert_eq!(prompts(&world.open(false)), ["/bg the long task"]);
    // What was changed meanwhile is a draft again, and what nobody has named is not sent.
    let mut world = World::closed((80, 24));
    world.says("/bg the long");
    world.types("er");
    world.open(false);
    assert_eq!(named(&mut world), []);
    assert!(world.screen().contains("> /bg the longer"), "{}", world.screen());
    let mut world = World::closed((80, 24));
    world.says("/nothing");
    world.open(false);
    assert_eq!(named(&mut world), []);
    assert!(world.screen().contains("there is no command /nothing"), "{}", world.screen());
}

#[test]
fn a_shell_command_is_the_persons_and_the_model_hears_of_it_with_the_next_message() {
    let mut world = with_commands((80, 24));
    let effects = world.says("!git status");
    assert_eq!(
        effects,
        [ScreenEffect::Remember("!git status".into()), ScreenEffect::Shell("git status".into())]
    );
    assert!(world.screen().contains("running !git status · Esc ends it"), "{}", world.screen());
    assert_eq!(world.says("!again"), [], "one at a time");
    world.control('c');
    assert_eq!(world.key(KeyCode::Esc), [ScreenEffect::StopShell]);
    let ended =
        AgentEvent::ShellEnded { output: "nothing to commit\n".into(), ending: "exit 0".into(), is_ok: true };
    assert_eq!(world.agent(ended), [], "nothing is sent by itself");
    let screen = world.screen();
    assert!(screen.contains("✓ ! git status  exit 0") && screen.contains("nothing to commit"), "{screen}");
    assert_eq!(prompts(&world.says("/undo")), ["/undo"], "a command of the agent's is not a message");
    world.turn_ends();
    let effects = world.says("what now?");
    let told = "[the user ran a command]\n$ git status\nnothing to commit\n[exit 0]\n\nwhat now?";
    assert_eq!(prompts(&effects), [told]);
    assert!(world.screen().contains("> what now?"), "the screen shows what was typed");
    world.turn_ends();
    assert_eq!(prompts(&world.says("and now?")), ["and now?"], "it is told once");
}

#[test]
fn esc_twice_on_an_empty_draft_goes_back_to_an_earlier_prompt() {
    for size in [(60, 20), (80, 24), (120, 40), (200, 60)] {
        let mut world = with_commands(size);
        world.key(KeyCode::Esc);
        assert_eq!(world.key(KeyCode::Esc), [ScreenEffect::ListPrompts]);
        let points = ["fix the parser", "now the tests\nall of them"].map(String::from).into();
        world.agent(AgentEvent::Prompts(points));
        insta::assert_snapshot!(format!("rewind_{}x{}", size.0, size.1), world.screen());
        world.key(KeyCode::Up);
        assert_eq!(prompts(&world.key(KeyCode::Enter)), ["/rewind 1"]);
        let load = json!({"load": {"session": "abcd1234", "draft": "fix the parser"}});
        let chunk = ContentChunk::new(ContentBlock::from("as it was: src/a.rs")).meta(meta(load));
        let effects = world.agent(AgentEvent::Update(SessionUpdate::AgentMessageChunk(chunk)));
        assert_eq!(effects, [ScreenEffect::Load("abcd1234".into())]);
        world.open(false);
        let screen = world.screen();
        assert!(screen.contains("> fix the parser") && screen.contains("as it was: src/a.rs"), "{screen}");
    }
}

#[test]
fn esc_twice_clears_a_draft_first_and_an_attached_agent_is_not_taken_back() {
    let mut world = World::new((80, 24));
    world.types("a draft");
    world.key(KeyCode::Esc);
    assert_eq!(world.key(KeyCode::Esc), [ScreenEffect::Remember("a draft".into())]);
    world.key(KeyCode::Esc);
    assert_eq!(world.key(KeyCode::Esc), [], "this agent has no /rewind");
}

#[test]
fn the_agent_view_is_two_keys_away_and_ctrl_a_is_not_one_of_them() {
    let mut world = World::new((80, 24));
    world.types("a draft");
    assert_eq!(world.chord(KeyCode::Char('a'), KeyModifiers::ALT), [ScreenEffect::Fleet]);
    world.control('x');
    assert_eq!(world.key(KeyCode::Char('a')), [ScreenEffect::Fleet]);
    assert_eq!(world.control('a'), []);
    assert!(world.screen().contains("> a draft"), "{}", world.screen());
}

#[test]
fn what_the_agent_has_heard_does_not_come_back_as_unsent() {
    let mut world = World::new((80, 24));
    world.says("heard");
    world.agent(AgentEvent::Heard);
    world.says("not heard");
    world.agent(AgentEvent::NotSent("heard".into(), gone()));
    world.agent(AgentEvent::NotSent("not heard".into(), gone()));
    assert_eq!(world.state.unsent(), ["not heard"]);
}

#[test]
fn another_model_and_effort_are_in_the_line_at_the_bottom() {
    let mut world = World::new((100, 24));
    let update = SessionInfoUpdate::new().meta(meta(json!({"model": "another-model", "effort": "high"})));
    world.update(SessionUpdate::SessionInfoUpdate(update));
    assert!(world.screen().contains("another-model, effort high"), "{}", world.screen());
}

#[test]
fn somebody_who_decides_nothing_is_told_so() {
    let facts = ScreenFacts {
        no_say: Some("a process of agent a3f8b2c1 cannot decide".into()),
        ..ScreenFacts::default()
    };
    let mut world = World::with_facts((80, 24), facts);
    world.open(false);
    let screen = world.screen();
    assert!(screen.contains("decides nothing · ") && screen.contains("agent a3f8b2c1"), "{screen}");
}

#[test]
fn the_conversation_can_be_read_in_an_editor_and_in_the_scrollback() {
    let mut world = World::new((80, 24));
    world.control('x');
    assert_eq!(world.key(KeyCode::Char('v')), []);
    assert!(world.screen().contains("nothing was said yet"), "{}", world.screen());
    world.streams("a", "An answer.");
    for (key, command) in [('v', "/view"), ('[', "/print")] {
        world.control('x');
        let by_key = world.key(KeyCode::Char(key));
        let ([ScreenEffect::View(text)] | [ScreenEffect::Print(text)]) = by_key.as_slice() else {
            panic!("{by_key:?}")
        };
        assert_eq!(text, "An answer.\n");
        world.types(command);
        assert_eq!(world.key(KeyCode::Enter), by_key);
    }
    world.state.set_look(Look { is_alternate: false, ..Look::default() });
    world.control('x');
    assert_eq!(world.key(KeyCode::Char('[')), []);
}

#[test]
fn ctrl_v_pastes_a_text_or_names_the_file_of_a_picture_and_answers_no_question() {
    let mut world = World::new((80, 24));
    world.types("see ");
    assert_eq!(world.control('v'), [ScreenEffect::ReadClipboard]);
    world.agent(AgentEvent::Clipboard(Ok(Clip::Text("y".into()))));
    world.agent(AgentEvent::Clipboard(Ok(Clip::Picture("/data/pasted-1.png".into()))));
    assert!(world.screen().contains("> see y@/data/pasted-1.png"), "{}", world.screen());
    world.agent(AgentEvent::Clipboard(Err("the clipboard is empty".into())));
    assert!(world.screen().contains("the clipboard is empty"), "{}", world.screen());
}

#[test]
fn the_title_of_the_window_says_who_needs_whom() {
    let mut world = World::new((80, 24));
    assert_eq!(world.state.window_title(), "caliban: ~/work/project");
    world.says("go");
    assert_eq!(world.state.window_title(), "▶ caliban: ~/work/project");
    world.asks(1, json!({"command": "ls"}));
    assert_eq!(world.state.window_title(), "! caliban: ~/work/project");
    let update = SessionInfoUpdate::new().title("a\u{1b}]0;b\u{7}".to_owned());
    world.update(SessionUpdate::SessionInfoUpdate(update));
    assert!(!world.state.window_title().contains(['\u{1b}', '\u{7}']));
}

#[test]
fn the_key_that_goes_through_the_modes_never_comes_to_unattended() {
    let mut world = World::new((80, 24));
    let mut seen = Vec::new();
    for _ in 0..4 {
        for effect in world.chord(KeyCode::BackTab, KeyModifiers::SHIFT) {
            let ScreenEffect::SetMode(mode) = effect else { continue };
            world.update(SessionUpdate::CurrentModeUpdate(CurrentModeUpdate::new(mode.clone())));
            seen.push(mode);
        }
    }
    assert_eq!(seen, ["accept-edits", "plan", "default", "accept-edits"]);
}
