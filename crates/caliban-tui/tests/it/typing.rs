//! The composer and its keys.

use caliban_tui::events::{ScreenEffect, ScreenEvent};
use crossterm::event::{KeyCode, KeyModifiers};

use crate::world::{World, prompts};

#[test]
fn t17_the_cursor_is_at_the_caret_in_every_frame() {
    let mut world = World::new((40, 12));
    let cursor = |world: &mut World| {
        let (buffer, cursor) = world.buffer();
        let row: String = (0..40).map(|x| buffer[(x, cursor.y)].symbol().to_owned()).collect();
        (cursor.x, row.trim_end().to_owned())
    };
    world.types("ab");
    assert_eq!(cursor(&mut world), (4, "> ab".into()));
    world.types("漢");
    assert_eq!(cursor(&mut world).0, 6);
    world.says("");
    world.streams("m", "an answer\n\nthat goes on");
    world.types("x");
    assert_eq!(cursor(&mut world), (3, "> x".into()));
    world.control('j');
    assert_eq!(cursor(&mut world), (2, String::new()));
    world.types(&"w".repeat(60));
    assert_eq!(cursor(&mut world).0, 2 + 60 - 37);
}

#[test]
fn t21_every_way_to_a_new_line() {
    let mut world = World::new((80, 24));
    world.types("one");
    world.chord(KeyCode::Enter, KeyModifiers::SHIFT);
    world.types("two");
    world.chord(KeyCode::Enter, KeyModifiers::ALT);
    world.types("three");
    world.control('j');
    world.types("four\\");
    world.key(KeyCode::Enter);
    world.types("five");
    assert_eq!(prompts(&world.key(KeyCode::Enter)), ["one\ntwo\nthree\nfour\nfive"]);
}

#[test]
fn t22_a_draft_that_ctrl_c_cleared_comes_back() {
    let mut world = World::new((80, 24));
    world.types("precious words");
    assert_eq!(world.control('c'), [ScreenEffect::Remember("precious words".into())]);
    assert!(!world.screen().contains("precious"));
    world.key(KeyCode::Up);
    assert_eq!(prompts(&world.key(KeyCode::Enter)), ["precious words"]);
}

#[test]
fn t23_esc_interrupts_despite_a_queue() {
    let mut world = World::new((80, 24));
    assert_eq!(prompts(&world.says("begin")), ["begin"]);
    world.types("later");
    assert_eq!(world.key(KeyCode::Tab), []);
    world.types("a draft");
    assert_eq!(world.key(KeyCode::Esc), [ScreenEffect::Cancel]);
    let screen = world.screen();
    assert!(screen.contains("queued: later") && screen.contains("> a draft"), "{screen}");
}

#[test]
fn t24_four_queued_messages_are_one_delivery() {
    let mut world = World::new((80, 24));
    world.says("begin");
    for text in ["one", "two", "three", "four"] {
        world.types(text);
        world.key(KeyCode::Tab);
    }
    let effects = world.turn_ends();
    assert_eq!(prompts(&effects), ["one\n\ntwo\n\nthree\n\nfour"]);
    assert_eq!(prompts(&world.turn_ends()), [""; 0]);
}

#[test]
fn enter_steers_and_a_queued_message_can_be_taken_back() {
    let mut world = World::new((80, 24));
    world.says("begin");
    assert_eq!(prompts(&world.says("mind the tests")), ["mind the tests"]);
    world.types("queued");
    world.key(KeyCode::Tab);
    world.chord(KeyCode::Up, KeyModifiers::ALT);
    assert!(!world.screen().contains("queued: "));
    assert_eq!(prompts(&world.key(KeyCode::Enter)), ["queued"]);
}

#[test]
fn what_is_typed_before_the_session_is_open_is_sent_when_it_is() {
    let mut world = World::closed((80, 24));
    assert_eq!(prompts(&world.says("early")), [""; 0]);
    assert_eq!(prompts(&world.open(false)), ["early"]);
}

#[test]
fn an_unknown_command_is_not_sent_and_the_nearest_is_named() {
    let mut world = crate::commands::with_commands((80, 24));
    assert_eq!(world.says("/hepl"), []);
    assert!(world.screen().contains("did you mean /help?"), "{}", world.screen());
    assert!(world.screen().contains("> /hepl"), "it can be mended");
    world.control('c');
    assert_eq!(prompts(&world.says("/etc/hosts is broken")), ["/etc/hosts is broken"]);
}

#[test]
fn leaving_takes_two_keys_and_says_what_was_not_sent() {
    let mut world = World::new((80, 24));
    assert_eq!(world.control('c'), []);
    world.pass(1_500);
    assert_eq!(world.control('c'), []);
    world.pass(100);
    assert_eq!(world.control('c'), [ScreenEffect::Quit]);
    world.types("unsent");
    assert_eq!(world.state.unsent(), ["unsent"]);
    assert_eq!(world.control('d'), []);
}

#[test]
fn a_file_and_a_command_are_completed() {
    let mut world = World::new((80, 24));
    world.types("look at @ma");
    let files = ["src/main.rs", "README.md"].map(String::from).into();
    world.agent(caliban_tui::events::AgentEvent::Files(files));
    assert!(world.screen().contains("› src/main.rs"), "{}", world.screen());
    world.key(KeyCode::Tab);
    assert_eq!(prompts(&world.key(KeyCode::Enter)), ["look at @src/main.rs"]);
    world.turn_ends();
    world.types("/he");
    assert!(world.screen().contains("› /help"), "{}", world.screen());
    world.key(KeyCode::Enter);
    assert!(world.screen().contains("Keys") || world.screen().contains("Shift+Enter"), "{}", world.screen());
}

#[test]
fn history_is_searched() {
    let mut world = World::new((80, 24));
    for text in ["fix the parser", "run the tests", "write the docs"] {
        world.says(text);
        world.turn_ends();
    }
    world.types("a draft");
    world.control('r');
    world.types("pars");
    world.key(KeyCode::Enter);
    assert!(world.screen().contains("> fix the parser"));
    world.key(KeyCode::Up);
    assert!(world.screen().contains("> a draft"), "the draft is in the history: {}", world.screen());
}

#[test]
fn t12_an_idle_screen_waits_for_nothing() {
    let mut world = World::new((80, 24));
    world.says("begin");
    assert!(world.state.deadline(world.now).is_some(), "the spinner turns");
    world.turn_ends();
    assert_eq!(world.state.deadline(world.now), None);
    let before = world.buffer();
    world.pass(60_000);
    world.state.update(ScreenEvent::Tick, world.now);
    assert_eq!(world.buffer(), before);
}

#[test]
fn what_was_put_aside_counts_as_unsent() {
    let mut world = World::new((80, 24));
    world.types("put aside");
    world.control('s');
    world.says("begin");
    world.types("queued");
    world.key(KeyCode::Tab);
    world.types("a draft");
    assert_eq!(world.state.unsent(), ["queued", "a draft", "put aside"]);
}
