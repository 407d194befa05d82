//! The agent view.

use std::time::{Duration, Instant};

use caliban_tui::{
    fleet::{FleetEffect, FleetEvent, FleetRow, FleetState, Group},
    theme::{Depth, Ground, Theme},
};
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::{buffer::Buffer, layout::Rect};

struct View {
    state: FleetState,
    now: Instant,
    size: (u16, u16),
}

impl View {
    fn new(size: (u16, u16)) -> Self {
        let theme = Theme { depth: Depth::True, ground: Ground::Dark };
        Self { state: FleetState::new(size, theme, "~/work/project".into()), now: Instant::now(), size }
    }

    fn key(&mut self, code: KeyCode) -> Option<FleetEffect> {
        self.state.update(FleetEvent::Key(KeyEvent::new(code, KeyModifiers::NONE)), self.now)
    }

    fn rows(&mut self, rows: Vec<FleetRow>) {
        self.state.update(FleetEvent::Rows(rows), self.now);
    }

    fn screen(&self) -> String {
        let mut buffer = Buffer::empty(Rect::new(0, 0, self.size.0, self.size.1));
        self.state.draw(&mut buffer);
        let row = |y| (0..self.size.0).map(|x| buffer[(x, y)].symbol().to_owned()).collect::<String>();
        (0..self.size.1).map(|y| row(y).trim_end().to_owned()).collect::<Vec<_>>().join("\n")
    }
}

fn row(id: &str, group: Group, state: &str, doing: &str) -> FleetRow {
    FleetRow {
        id: id.into(),
        label: (id == "a1").then(|| "parser".into()),
        group,
        state: state.into(),
        doing: doing.into(),
        spent: "4 turns $0.12".into(),
    }
}

fn fleet() -> Vec<FleetRow> {
    vec![
        row("a1", Group::Working, "running", "Bash: cargo test"),
        row("a2", Group::NeedsYou, "running", "asks: Bash git push --force"),
        row("a3", Group::Finished, "done", "all tests pass"),
        row("a4", Group::Queued, "spawning", "2 before it"),
        row("a5", Group::NeedsYou, "idle", "waits for a message"),
    ]
}

#[test]
fn agents_stand_in_groups_and_keys_are_about_the_chosen_one() {
    let mut view = View::new((80, 18));
    insta::assert_snapshot!("fleet_asking", view.screen());
    view.rows(fleet());
    insta::assert_snapshot!("fleet_80x18", view.screen());
    assert_eq!(
        view.key(KeyCode::Enter),
        Some(FleetEffect::Attach("a2".into())),
        "who needs somebody comes first"
    );
    view.key(KeyCode::Char('n'));
    assert_eq!(view.key(KeyCode::Enter), Some(FleetEffect::Attach("a5".into())));
    view.key(KeyCode::Char('n'));
    assert_eq!(view.key(KeyCode::Enter), Some(FleetEffect::Attach("a2".into())), "and round");
    assert_eq!(view.key(KeyCode::Char('r')), None, "it has not ended");
    for _ in 0..9 {
        view.key(KeyCode::Down);
    }
    assert_eq!(view.key(KeyCode::Char('r')), Some(FleetEffect::Resume("a3".into())));
}

#[test]
fn an_agent_is_ended_only_after_a_yes() {
    let mut view = View::new((80, 18));
    view.rows(fleet());
    assert_eq!(view.key(KeyCode::Char('x')), None);
    assert!(view.screen().contains("end agent a2"), "{}", view.screen());
    assert_eq!(view.key(KeyCode::Enter), None);
    view.key(KeyCode::Char('x'));
    assert_eq!(view.key(KeyCode::Char('y')), Some(FleetEffect::Stop("a2".into())));
}

#[test]
fn the_choice_follows_the_agent_when_rows_move() {
    let mut view = View::new((80, 18));
    view.rows(fleet());
    view.key(KeyCode::Down);
    view.key(KeyCode::Down);
    assert_eq!(view.key(KeyCode::Enter), Some(FleetEffect::Attach("a1".into())));
    let mut rows = fleet();
    rows[0].group = Group::Finished;
    rows.insert(0, row("a0", Group::NeedsYou, "running", "asks"));
    view.rows(rows);
    assert_eq!(view.key(KeyCode::Char('r')), Some(FleetEffect::Resume("a1".into())));
}

#[test]
fn letters_filter_only_while_the_filter_is_written() {
    let mut view = View::new((80, 18));
    view.rows(fleet());
    view.key(KeyCode::Char('/'));
    for c in "next".chars() {
        assert_eq!(view.key(KeyCode::Char(c)), None);
    }
    assert!(view.screen().contains("no agent matches"), "{}", view.screen());
    view.key(KeyCode::Esc);
    view.key(KeyCode::Char('/'));
    for c in "tests".chars() {
        view.key(KeyCode::Char(c));
    }
    view.key(KeyCode::Enter);
    assert_eq!(view.key(KeyCode::Enter), None, "it has ended");
    assert_eq!(view.key(KeyCode::Char('r')), Some(FleetEffect::Resume("a3".into())));
    assert_eq!(view.key(KeyCode::Esc), None, "first the filter goes");
    assert_eq!(view.key(KeyCode::Esc), Some(FleetEffect::Quit));
}

#[test]
fn two_hundred_agents_scroll_with_the_choice() {
    let mut view = View::new((80, 18));
    view.rows((0..200).map(|n| row(&format!("b{n:03}"), Group::Working, "running", "works")).collect());
    for _ in 0..150 {
        view.key(KeyCode::Down);
    }
    let screen = view.screen();
    assert!(screen.contains("› b150") && !screen.contains("b001"), "{screen}");
    view.state.update(FleetEvent::Told("gone\u{1b}[2J".into()), view.now);
    assert!(view.screen().contains("gone␛[2J"));
    view.now += Duration::from_secs(6);
    view.state.update(FleetEvent::Tick, view.now);
    assert_eq!(view.state.deadline(), None);
}
