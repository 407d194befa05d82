//! The mouse: the wheel, a selection, and what is copied of it.

use caliban_acp::v1::ToolKind;
use caliban_tui::{
    Look,
    events::{MouseAction, ScreenEffect, ScreenEvent},
};
use crossterm::event::KeyCode;

use crate::world::World;

const PARAGRAPH: &str = "The quick brown fox jumps over the lazy dog, and then it goes on to jump over the next one, which is \
not lazy at all but only tired.";

fn drag(world: &mut World, from: (u16, u16), to: (u16, u16)) -> Vec<ScreenEffect> {
    let now = world.now;
    world.state.update(ScreenEvent::Mouse(MouseAction::Down, from.0, from.1), now);
    world.state.update(ScreenEvent::Mouse(MouseAction::Drag, to.0, to.1), now);
    world.state.update(ScreenEvent::Mouse(MouseAction::Up, to.0, to.1), now)
}

/// The row of the screen that contains this.
fn row(world: &mut World, text: &str) -> u16 {
    let rows = world.rows();
    let at = rows.iter().position(|row| row.contains(text));
    let at = at.unwrap_or_else(|| panic!("{text}: {rows:?}"));
    u16::try_from(at).unwrap_or(u16::MAX)
}

#[test]
fn t04_t05_a_copied_paragraph_has_neither_gutter_nor_added_newlines() {
    for width in [40, 60, 80, 200] {
        let mut world = World::new((width, 40));
        world.says("a question that is long enough to be wrapped on a narrow screen, too");
        world.streams("m", PARAGRAPH);
        world.calls("c", "Bash: make", ToolKind::Execute);
        world.output("c", "first line of output\nsecond\n");
        world.turn_ends();
        let (first, last) = (row(&mut world, "The quick"), row(&mut world, "tired."));
        drag(&mut world, (0, first), (width - 1, last));
        assert_eq!(world.control('c'), [ScreenEffect::Copy(PARAGRAPH.into())], "at {width}");
        let (first, last) = (row(&mut world, "first line"), row(&mut world, "second"));
        drag(&mut world, (0, first), (width - 1, last));
        assert_eq!(world.control('c'), [ScreenEffect::Copy("first line of output\nsecond".into())]);
        let (first, last) = (row(&mut world, "a question"), row(&mut world, "The quick"));
        drag(&mut world, (0, first), (width - 1, last));
        let copied = match &world.control('c')[..] {
            [ScreenEffect::Copy(text)] => text.clone(),
            other => panic!("{other:?}"),
        };
        assert!(
            copied.starts_with("a question that is long enough to be wrapped on a narrow screen, too\n\nThe")
        );
    }
}

#[test]
fn t06_a_drag_leaves_the_clipboard_alone_unless_the_person_wants_it() {
    let mut world = World::new((80, 24));
    world.streams("m", PARAGRAPH);
    let y = row(&mut world, "The quick");
    assert_eq!(drag(&mut world, (2, y), (10, y)), []);
    world.state.set_look(Look { copy_on_select: true, ..Look::default() });
    assert_eq!(drag(&mut world, (4, y), (8, y)), [ScreenEffect::Copy("quick".into())]);
    world.key(KeyCode::Esc);
    assert_eq!(
        world.control('c'),
        [ScreenEffect::Cancel],
        "Esc has taken the selection away; Ctrl+C does what it always does"
    );
}

#[test]
fn a_selection_stays_on_its_text_and_goes_with_the_next_key() {
    let mut world = World::new((80, 24));
    let text: String = (1..=60).map(|n| format!("line {n:02}\n\n")).collect();
    world.streams("m", &text);
    let y = row(&mut world, "line 55");
    drag(&mut world, (0, y), (79, y));
    world.state.update(ScreenEvent::Wheel(-2), world.now);
    assert_eq!(world.control('c'), [ScreenEffect::Copy("line 55".into())]);
    drag(&mut world, (0, y), (79, y));
    world.types("x");
    assert_ne!(world.control('c'), [ScreenEffect::Copy("line 55".into())]);
    assert_eq!(drag(&mut world, (3, y), (3, y)), [], "a click selects nothing");
}

#[test]
fn the_wheel_moves_as_many_rows_as_the_setting_says() {
    let mut world = World::new((80, 24));
    let text: String = (1..=60).map(|n| format!("line {n:02}\n\n")).collect();
    world.streams("m", &text);
    let before = row(&mut world, "line 55");
    world.state.update(ScreenEvent::Wheel(-1), world.now);
    assert_eq!(row(&mut world, "line 55"), before + 3);
    world.state.set_look(Look { wheel_rows: 1, ..Look::default() });
    world.state.update(ScreenEvent::Wheel(-1), world.now);
    assert_eq!(row(&mut world, "line 55"), before + 4);
}
