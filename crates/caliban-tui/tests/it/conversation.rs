//! Scrolling, resizing, streaming, and text from elsewhere.

use caliban_acp::v1::ToolKind;
use caliban_tui::events::ScreenEvent;
use crossterm::event::KeyCode;

use crate::world::World;

fn numbered(world: &mut World, count: usize) {
    let text: String = (1..=count).map(|n| format!("line number {n:03} of the answer\n\n")).collect();
    world.streams("m", &text);
}

#[test]
fn t01_each_line_is_there_once_through_a_series_of_resizes() {
    let mut world = World::new((80, 24));
    numbered(&mut world, 80);
    for (columns, rows) in
        [(40, 24), (300, 60), (57, 11), (80, 200), (41, 200), (120, 200), (80, 24), (200, 200)]
    {
        world.resize(columns, rows);
        let screen = world.screen();
        if rows == 200 {
            for n in 1..=80 {
                assert_eq!(
                    screen.matches(&format!("number {n:03}")).count(),
                    1,
                    "{n} at {columns}: {screen}"
                );
            }
        }
        assert!(screen.contains("number 080"), "{screen}");
    }
}

#[test]
fn t02_scrolled_up_the_top_line_stays_while_it_streams() {
    let mut world = World::new((80, 24));
    numbered(&mut world, 60);
    world.key(KeyCode::PageUp);
    world.key(KeyCode::PageUp);
    let top = world.rows()[..2].to_vec();
    assert!(top.concat().contains("line number"), "{top:?}");
    for n in 0..50 {
        world.streams("m", &format!("more {n}\n\n"));
        assert_eq!(world.rows()[..2], top);
    }
    world.calls("c", "Bash: make", ToolKind::Execute);
    world.output("c", "out\nput\n");
    assert_eq!(world.rows()[..2], top);
    // The same line is at the top at another width, too.
    world.resize(50, 24);
    assert_eq!(world.rows()[..2], top);
    world.state.update(ScreenEvent::Wheel(100), world.now);
    assert!(world.screen().contains("more 49"));
}

#[test]
fn t03_typing_does_not_scroll() {
    let mut world = World::new((80, 24));
    numbered(&mut world, 60);
    world.key(KeyCode::PageUp);
    let top = world.rows()[0].clone();
    world.types("a few words, and the place stays where it is");
    assert_eq!(world.rows()[0], top);
}

#[test]
fn scrolling_to_the_ends_and_back() {
    let mut world = World::new((60, 20));
    numbered(&mut world, 40);
    for _ in 0..30 {
        world.key(KeyCode::PageUp);
    }
    assert!(world.rows()[0].contains("001"), "{}", world.screen());
    for _ in 0..30 {
        world.key(KeyCode::PageDown);
    }
    assert!(world.screen().contains("040"));
    numbered(&mut world, 41);
    assert!(world.screen().contains("041"), "the end is followed again");
}

#[test]
fn t15_a_flood_of_output_is_bounded_and_its_end_is_seen() {
    let mut world = World::new((80, 24));
    world.calls("c", "Bash: seq 35000", ToolKind::Execute);
    let output: String = (1..=35_000).map(|n| format!("a line of output that is not short {n}\n")).collect();
    world.output("c", &output);
    let screen = world.screen();
    assert!(screen.contains("not short 35000"), "{screen}");
    assert!(!screen.contains("not short 34000"), "{screen}");
    world.types("still here");
    assert!(world.screen().contains("> still here"));
}

#[test]
fn t27_hostile_bytes_in_output_and_on_resume_are_inert() {
    let mut world = World::closed((80, 24));
    world.streams("m", "before \u{1b}[2J\u{1b}]0;title\u{7} &#x1b;[31m \u{202e}after");
    world.calls("c", "Bash: echo \u{1b}[?1049l", ToolKind::Execute);
    world.output("c", "x\u{1b}[Hy\u{8}\u{8}\u{200b}z\r\nok");
    world.ends("c", "exit 0\u{1b}c", true);
    world.open(false);
    let screen = world.screen();
    assert!(!screen.chars().any(|c| c.is_control() && c != '\n'), "{screen:?}");
    for shown in ["␛[2J", "␛]0;title␇", "␛[31m", "<U+202E>", "␛[?1049l", "x␛[Hy␈␈<U+200B>z", "exit 0␛c"]
    {
        assert!(screen.contains(shown), "{shown}: {screen}");
    }
}

#[test]
fn a_call_shows_the_last_lines_of_its_output() {
    let mut world = World::new((80, 24));
    world.calls("c", "Bash: make test", ToolKind::Execute);
    let output: String = (1..=40).map(|n| format!("step {n}\n")).collect();
    world.output("c", &output);
    assert!(world.screen().contains("step 40") && !world.screen().contains("step 30"));
    world.ends("c", "exit 0", true);
    let screen = world.screen();
    assert!(screen.contains("✓ Bash: make test  exit 0") && screen.contains("step 40"), "{screen}");
    world.control('o');
    world.resize(80, 60);
    assert!(world.screen().contains("step 1\n"), "{}", world.screen());
}

#[test]
fn history_that_is_replayed_does_not_count_as_work() {
    let mut world = World::closed((80, 24));
    world.streams("m", "an old answer");
    world.open(false);
    assert!(!world.screen().contains("Esc interrupts"), "{}", world.screen());
    assert_eq!(world.state.deadline(world.now), None);
}
