//! The agent view.

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use caliban_core::{
    ask::Answer,
    status_word::{StatusGroup, StatusWord},
};
use caliban_tui::{
    fleet::{AgentKey, FleetAsk, FleetEffect, FleetEvent, FleetRow, FleetScope, FleetState, Forecast},
    theme::{Depth, Ground, Theme},
};
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::{buffer::Buffer, layout::Rect};
use serde_json::json;

const SIZES: [(u16, u16); 4] = [(60, 20), (80, 24), (120, 40), (200, 60)];

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

    /// The view of [`fleet`].
    fn of_fleet(size: (u16, u16)) -> Self {
        let mut view = Self::new(size);
        view.rows(fleet());
        view
    }

    fn update(&mut self, event: FleetEvent) -> Vec<FleetEffect> {
        let effects = self.state.update(event, self.now);
        // A frame follows every event.
        self.screen();
        self.state.drawn(self.now);
        effects
    }

    fn key(&mut self, code: KeyCode) -> Vec<FleetEffect> {
        self.update(FleetEvent::Key(KeyEvent::new(code, KeyModifiers::NONE)))
    }

    fn keys(&mut self, text: &str) -> Vec<FleetEffect> {
        text.chars().flat_map(|c| self.key(KeyCode::Char(c))).collect()
    }

    fn rows(&mut self, rows: Vec<FleetRow>) -> Vec<FleetEffect> {
        self.update(FleetEvent::Rows(rows))
    }

    fn wait(&mut self, time: Duration) {
        self.now += time;
        self.update(FleetEvent::Tick);
    }

    fn resize(&mut self, size: (u16, u16)) {
        self.size = size;
        self.update(FleetEvent::Resize(size.0, size.1));
    }

    fn screen(&self) -> String {
        let mut buffer = Buffer::empty(Rect::new(0, 0, self.size.0, self.size.1));
        self.state.draw(self.now, &mut buffer);
        let row = |y| (0..self.size.0).map(|x| buffer[(x, y)].symbol().to_owned()).collect::<String>();
        (0..self.size.1).map(|y| row(y).trim_end().to_owned()).collect::<Vec<_>>().join("\n")
    }

    /// The line on which the chosen agent stands.
    fn chosen(&self) -> (usize, String) {
        let screen = self.screen();
        let found = screen.lines().enumerate().find(|(_, line)| line.starts_with('›'));
        found.map_or((0, String::new()), |(at, line)| (at, line.to_owned()))
    }
}

fn key(id: &str) -> AgentKey {
    AgentKey { repo: PathBuf::from("/work/project"), id: id.into() }
}

fn row(id: &str, group: StatusGroup, state: &str, doing: &str) -> FleetRow {
    FleetRow {
        key: key(id),
        label: (id == "a1").then(|| "parser".into()),
        status: match group {
            StatusGroup::NeedsYou => StatusWord::Asks,
            StatusGroup::Working => StatusWord::Running,
            StatusGroup::Queued => StatusWord::Queued,
            StatusGroup::Finished => StatusWord::parse(state).unwrap_or(StatusWord::Done),
        },
        state: state.into(),
        doing: doing.into(),
        waiting: (group == StatusGroup::NeedsYou).then(|| "3m".into()),
        spent: "4 turns $0.12".into(),
        asks: if doing.starts_with("asks") { vec![format!("call_{id}")] } else { Vec::new() },
        revision: 1,
    }
}

fn fleet() -> Vec<FleetRow> {
    vec![
        row("a1", StatusGroup::Working, "running", "Bash: cargo test"),
        row("a2", StatusGroup::NeedsYou, "running", "asks: Bash git push --force"),
        row("a3", StatusGroup::Finished, "done", "all tests pass"),
        row("a4", StatusGroup::Queued, "spawning", "queued behind 2"),
        row("a5", StatusGroup::NeedsYou, "running", "waits for your verdict"),
    ]
}

fn ask(id: &str, command: &str) -> FleetAsk {
    FleetAsk {
        key: key(id),
        id: format!("call_{id}"),
        digest: format!("digest_{id}"),
        tool: "Bash".into(),
        who: id.into(),
        input: json!({ "command": command }),
        preview: None,
        why: "no rule allows it".into(),
        rules: vec!["Bash(git push *)".into()],
        outside: Vec::new(),
    }
}

fn answer(id: &str, reply: Answer) -> Vec<FleetEffect> {
    vec![FleetEffect::Answer(key(id), format!("call_{id}"), format!("digest_{id}"), reply)]
}

#[test]
fn the_view_at_every_size() {
    for size in SIZES {
        let mut view = View::new(size);
        let name = |what: &str| format!("fleet_{what}_{}x{}", size.0, size.1);
        if size == (80, 24) {
            insta::assert_snapshot!("fleet_asking_the_daemon", view.screen());
            view.rows(Vec::new());
            insta::assert_snapshot!("fleet_empty", view.screen());
        }
        view.rows(fleet());
        insta::assert_snapshot!(name("list"), view.screen());
        view.key(KeyCode::Char('p'));
        let lines = (1..40).map(|n| format!("line {n} of what it did")).collect();
        view.update(FleetEvent::Peeked(key("a2"), lines));
        view.keys("and then?");
        insta::assert_snapshot!(name("peek"), view.screen());
        view.key(KeyCode::Esc);
        view.key(KeyCode::Char('y'));
        view.update(FleetEvent::Asked(vec![ask("a2", "git push --force\ngit tag v1")]));
        insta::assert_snapshot!(name("question"), view.screen());
        view.key(KeyCode::Esc);
        let patch =
            "1 file changed\n\ndiff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-old\n+new\n same\n";
        view.update(FleetEvent::Diffed(key("a2"), patch.into()));
        insta::assert_snapshot!(name("diff"), view.screen());
        view.key(KeyCode::Esc);
        view.key(KeyCode::Char('?'));
        insta::assert_snapshot!(name("help"), view.screen());
    }
}

#[test]
fn keys_are_about_the_chosen_agent() {
    let mut view = View::of_fleet((80, 24));
    assert_eq!(view.key(KeyCode::Enter), [FleetEffect::Attach(key("a2"))], "who needs somebody comes first");
    view.keys("n");
    assert_eq!(view.key(KeyCode::Enter), [FleetEffect::Attach(key("a5"))]);
    view.keys("n");
    assert_eq!(view.key(KeyCode::Enter), [FleetEffect::Attach(key("a2"))], "and round");
    assert_eq!(view.keys("r"), [], "it has not ended");
    assert_eq!(view.keys("d"), [FleetEffect::Diff(key("a2"))]);
    assert_eq!(view.keys("m"), [FleetEffect::Foretell(key("a2"))]);
    view.key(KeyCode::End);
    assert_eq!(view.keys("r"), [FleetEffect::Resume(vec![key("a3")])]);
    assert_eq!(view.key(KeyCode::Enter), [FleetEffect::Peek(key("a3"))], "what an ended one did is read");
}

#[test]
fn the_next_in_need_is_also_one_that_has_failed() {
    let mut view = View::new((80, 24));
    view.rows(vec![
        row("a1", StatusGroup::Working, "running", "Bash: cargo test"),
        row("a2", StatusGroup::Finished, "done", "all tests pass"),
        row("a3", StatusGroup::Finished, "failed", "no key"),
    ]);
    view.keys("n");
    assert_eq!(view.key(KeyCode::Enter), [FleetEffect::Peek(key("a3"))]);
}

#[test]
fn a_question_rings_once_and_only_when_it_is_new() {
    let mut view = View::new((80, 24));
    let quiet = row("a1", StatusGroup::Working, "running", "Bash: cargo test");
    let asks = row("a1", StatusGroup::NeedsYou, "running", "asks: Bash git push --force");
    let known = row("a2", StatusGroup::NeedsYou, "running", "asks: Write a.txt");
    assert_eq!(view.rows(vec![quiet, known.clone()]), [], "those that were asked before do not ring");
    let rung = view.rows(vec![asks.clone(), known.clone()]);
    assert_eq!(rung, [FleetEffect::Ring("parser: asks: Bash git push --force".into())]);
    assert_eq!(view.rows(vec![asks, known]), []);
}

#[test]
fn agents_are_ended_and_started_anew_only_after_a_yes() {
    let mut view = View::of_fleet((80, 24));
    assert_eq!(view.keys("x"), []);
    assert!(view.screen().contains("end agent a2"), "{}", view.screen());
    assert_eq!(view.key(KeyCode::Enter), []);
    view.keys("x");
    assert_eq!(view.keys("y"), [FleetEffect::Stop(vec![key("a2")])]);
    view.keys("R");
    assert!(view.screen().contains("start anew agent a2"), "{}", view.screen());
    assert_eq!(view.keys("n"), []);
    view.keys("R");
    assert_eq!(view.keys("y"), [FleetEffect::Respawn(vec![key("a2")])]);
}

#[test]
fn marked_agents_are_acted_on_together() {
    let mut view = View::of_fleet((80, 24));
    // a2, a5 and a1, in the order of the list.
    view.keys("   ");
    assert!(view.screen().contains("3 marked"), "{}", view.screen());
    view.keys("x");
    assert!(view.screen().contains("end 3 agents (a1, a2, a5)"), "{}", view.screen());
    assert_eq!(view.keys("y"), [FleetEffect::Stop(vec![key("a1"), key("a2"), key("a5")])]);
    assert!(!view.screen().contains("marked"), "an order takes the marks with it");
    view.key(KeyCode::Home);
    view.keys(" ");
    assert_eq!(view.key(KeyCode::Esc), [], "first the marks go");
    assert_eq!(view.key(KeyCode::Esc), [FleetEffect::Quit]);
}

#[test]
fn the_choice_follows_the_agent_and_keeps_its_line_when_rows_move() {
    let mut view = View::new((80, 12));
    let agents = |needing: usize| -> Vec<FleetRow> {
        let group = |n: usize| if n < needing { StatusGroup::NeedsYou } else { StatusGroup::Working };
        (0..40).map(|n| row(&format!("b{n:02}"), group(n), "running", "works")).collect()
    };
    view.rows(agents(0));
    for _ in 0..20 {
        view.key(KeyCode::Down);
    }
    for _ in 0..4 {
        view.key(KeyCode::Up);
    }
    let (line, text) = view.chosen();
    assert!(text.contains("b16"), "{text}");
    // Two lines more stand above it, and it does not move on the screen.
    view.rows(agents(3));
    assert_eq!(view.chosen().0, line, "{}", view.screen());
    assert_eq!(view.key(KeyCode::Enter), [FleetEffect::Attach(key("b16"))]);
    // It is removed: the next one takes its place.
    let without: Vec<FleetRow> = agents(3).into_iter().filter(|row| row.key.id != "b16").collect();
    view.rows(without);
    assert!(view.chosen().1.contains("b17"), "{}", view.screen());
}

#[test]
fn the_first_row_is_a_choice_that_no_new_row_takes_over() {
    let mut view = View::of_fleet((80, 24));
    let mut rows = fleet();
    rows.insert(0, row("a0", StatusGroup::NeedsYou, "running", "asks: Bash rm"));
    view.rows(rows);
    assert_eq!(view.key(KeyCode::Enter), [FleetEffect::Attach(key("a2"))]);
}

#[test]
fn t25_letters_are_text_while_something_is_typed() {
    let mut view = View::of_fleet((80, 24));
    view.key(KeyCode::Tab);
    assert_eq!(view.keys("xyrRq dn@ /"), []);
    assert!(view.screen().contains("+ xyrRq dn@ /"), "{}", view.screen());
    view.key(KeyCode::Esc);
    assert!(view.screen().contains("+ xyrRq dn@ /"), "what was typed stays there");
    view.key(KeyCode::Tab);
    assert_eq!(view.key(KeyCode::Enter), [FleetEffect::Dispatch("xyrRq dn@ /".into())]);
    assert!(view.screen().contains("starting it"), "{}", view.screen());
    view.update(FleetEvent::Dispatched(Err("there is no agent type `x`; known: y".into())));
    let screen = view.screen();
    assert!(screen.contains("+ xyrRq dn@ /") && screen.contains("there is no agent type"), "{screen}");
    view.key(KeyCode::Enter);
    view.update(FleetEvent::Dispatched(Ok("started a9".into())));
    assert!(!view.screen().contains("xyrRq") && view.screen().contains("started a9"), "{}", view.screen());
}

#[test]
fn a_filter_narrows_the_list_and_keys_act_on_what_is_shown() {
    let mut view = View::of_fleet((80, 24));
    view.keys("/PARS");
    assert_eq!(view.keys("x"), [], "x is a letter of the filter");
    view.key(KeyCode::Backspace);
    view.key(KeyCode::Enter);
    let screen = view.screen();
    assert!(screen.contains("parser") && !screen.contains("a2"), "{screen}");
    assert_eq!(view.key(KeyCode::Enter), [FleetEffect::Attach(key("a1"))]);
    // It does something else now and does not match any more: nothing is chosen.
    view.rows(vec![row("a2", StatusGroup::Working, "running", "works")]);
    assert!(view.screen().contains("no agent matches the filter"), "{}", view.screen());
    assert_eq!(view.key(KeyCode::Enter), []);
    assert_eq!(view.key(KeyCode::Esc), [], "first the filter goes");
    assert_eq!(view.key(KeyCode::Enter), [FleetEffect::Attach(key("a2"))]);
}

#[test]
fn a_reply_that_was_not_sent_waits_for_the_next_peek_of_its_agent() {
    let mut view = View::of_fleet((80, 24));
    assert_eq!(view.keys("p"), [FleetEffect::Peek(key("a2"))]);
    view.keys("for a2, q");
    assert_eq!(view.key(KeyCode::Down), [FleetEffect::Peek(key("a5"))], "the peek goes to the next agent");
    assert!(!view.screen().contains("for a2"), "{}", view.screen());
    view.keys("for a5");
    view.key(KeyCode::Esc);
    assert_eq!(view.state.unsent(), ["to a2: for a2, q", "to a5: for a5"]);
    assert!(view.screen().contains("a5 ✎"), "{}", view.screen());
    view.key(KeyCode::Home);
    view.keys("p");
    assert!(view.screen().contains("> for a2, q"), "{}", view.screen());
    assert_eq!(view.key(KeyCode::Enter), [FleetEffect::Reply(key("a2"), "for a2, q".into())]);
    view.update(FleetEvent::NotSent(key("a2"), "for a2, q".into(), "it has ended".into()));
    assert!(view.screen().contains("> for a2, q"), "it comes back: {}", view.screen());
    // What it does goes on below.
    let mut rows = fleet();
    rows[1].revision = 2;
    assert_eq!(view.rows(rows), [FleetEffect::Peek(key("a2"))]);
}

#[test]
fn t25_t26_a_question_is_answered_only_after_it_was_shown_whole_and_read() {
    let mut view = View::of_fleet((80, 24));
    // The keys of somebody who does not look: nothing of it answers.
    assert_eq!(view.keys("yyy"), [FleetEffect::Ask(vec![key("a2")])]);
    let long = (1..60).map(|n| format!("echo {n}")).collect::<Vec<_>>().join("\n");
    view.update(FleetEvent::Asked(vec![ask("a2", &long)]));
    assert_eq!(view.keys("y"), []);
    view.wait(Duration::from_secs(2));
    assert_eq!(view.keys("y"), [], "its end was not on the screen");
    assert!(view.screen().contains("first scroll to the end"), "{}", view.screen());
    view.key(KeyCode::End);
    assert_eq!(view.keys("y"), [], "its end was not read");
    view.wait(Duration::from_secs(2));
    view.update(FleetEvent::Paste("y".into()));
    assert_eq!(view.keys("y"), [], "a paste answers nothing, and begins the wait anew");
    view.wait(Duration::from_secs(2));
    assert_eq!(view.keys("y"), answer("a2", Answer::Once));
    assert_eq!(view.keys("j"), [], "the list has the keys again");
}

#[test]
fn every_question_of_the_marked_is_read_by_itself() {
    let mut view = View::new((80, 24));
    let asking = |id: &str| row(id, StatusGroup::NeedsYou, "running", "asks: Bash x");
    view.rows(vec![
        asking("a2"),
        asking("a6"),
        asking("a7"),
        row("a8", StatusGroup::Working, "running", "works"),
    ]);
    view.keys("    ");
    assert_eq!(view.keys("y"), [FleetEffect::Ask(vec![key("a2"), key("a6"), key("a7")])]);
    view.update(FleetEvent::Asked(vec![ask("a2", "one"), ask("a6", "two"), ask("a7", "three")]));
    assert!(view.screen().contains("1 of 3"), "{}", view.screen());
    view.wait(Duration::from_secs(2));
    assert_eq!(view.keys("yy"), answer("a2", Answer::Once), "the second y is for a question just shown");
    assert!(view.screen().contains("two"), "{}", view.screen());
    view.wait(Duration::from_secs(2));
    view.keys("later, please");
    assert_eq!(view.key(KeyCode::Enter), answer("a6", Answer::No(Some("later, please".into()))));
    // Somebody answers the last one elsewhere.
    view.rows(vec![row("a7", StatusGroup::Working, "running", "works")]);
    assert!(view.screen().contains("answered elsewhere"), "{}", view.screen());
    view.wait(Duration::from_secs(2));
    assert_eq!(view.keys("y"), []);
}

#[test]
fn work_lands_only_after_what_would_happen_was_shown() {
    let mut view = View::of_fleet((80, 24));
    view.keys("m");
    let conflicts = vec!["conflicts in src/lib.rs: it cannot land as it is".to_owned()];
    view.update(FleetEvent::Foretold(Forecast {
        key: key("a2"),
        lines: conflicts,
        can_land: false,
        message: String::new(),
    }));
    assert!(view.screen().contains("conflicts in src/lib.rs"), "{}", view.screen());
    assert_eq!(view.keys("y"), [], "what cannot land is not tried");
    view.key(KeyCode::Esc);
    view.keys("m");
    let lines = vec!["it lands without conflicts".to_owned()];
    view.update(FleetEvent::Foretold(Forecast {
        key: key("a2"),
        lines,
        can_land: true,
        message: "Fix it".into(),
    }));
    assert_eq!(view.keys("y"), [], "typed before it could be read");
    view.wait(Duration::from_secs(2));
    assert_eq!(view.keys("y"), [FleetEffect::Merge(key("a2"), None)]);
    // Whoever looks at another agent by then lands nothing of this one.
    view.keys("m");
    view.key(KeyCode::Down);
    let lines = vec!["it lands without conflicts".to_owned()];
    view.update(FleetEvent::Foretold(Forecast {
        key: key("a2"),
        lines,
        can_land: true,
        message: "Fix it".into(),
    }));
    view.wait(Duration::from_secs(2));
    assert!(!view.keys("y").contains(&FleetEffect::Merge(key("a2"), None)));
}

#[test]
fn pages_about_an_agent_name_it_as_the_list_does() {
    let mut view = View::of_fleet((80, 24));
    view.update(FleetEvent::Diffed(key("a1"), "+ one line".into()));
    assert!(view.screen().contains("changes of parser"), "{}", view.screen());
    view.key(KeyCode::Esc);
    let forecast = Forecast { key: key("a1"), lines: Vec::new(), can_land: true, message: String::new() };
    view.update(FleetEvent::Foretold(forecast));
    assert!(view.screen().contains("what would land of parser is known"), "{}", view.screen());
}

#[test]
fn a_long_diff_is_scrolled_to_its_end_and_hostile_bytes_are_inert() {
    let mut view = View::of_fleet((80, 24));
    let mut patch: String = (1..200).map(|n| format!("+line {n}\n")).collect();
    patch.push_str("+\u{1b}[2Jthe end");
    view.keys("d");
    view.update(FleetEvent::Diffed(key("a2"), patch));
    assert!(!view.screen().contains("the end"));
    view.key(KeyCode::End);
    let screen = view.screen();
    assert!(screen.contains("+␛[2Jthe end") && screen.contains("+line 199"), "{screen}");
    view.key(KeyCode::PageUp);
    assert!(!view.screen().contains("the end") && view.screen().contains("+line 17"), "{}", view.screen());
}

#[test]
fn all_repos_are_a_key_away_and_a_refusal_is_read_whole() {
    let mut view = View::of_fleet((60, 20));
    assert_eq!(view.keys("a"), [FleetEffect::Show(FleetScope::All)]);
    let mut rows = fleet();
    rows.push(FleetRow {
        key: AgentKey { repo: "/work/other".into(), id: "a1".into() },
        ..row("a1", StatusGroup::Working, "running", "works elsewhere")
    });
    view.rows(rows);
    let screen = view.screen();
    assert!(screen.contains("other:a1") && screen.contains("project:a1"), "{screen}");
    assert_eq!(view.keys("a"), [FleetEffect::Show(FleetScope::Repo)]);
    let refusal = "agent a2 is at work: its tree may change under the merge; stop it first with caliban stop a2, \
                   or wait for it with caliban agents wait a2";
    view.update(FleetEvent::Told(refusal.into()));
    assert!(view.screen().replace('\n', "").contains("caliban agents wait a2"), "{}", view.screen());
    view.resize((60, 3));
    view.resize((1, 1));
    view.resize((60, 20));
    view.wait(Duration::from_secs(60));
    assert_eq!(view.state.deadline(view.now), None, "an idle view has no timer");
}

#[test]
fn two_hundred_agents_scroll_with_the_choice() {
    let mut view = View::new((80, 18));
    view.rows((0..200).map(|n| row(&format!("b{n:03}"), StatusGroup::Working, "running", "works")).collect());
    for _ in 0..150 {
        view.key(KeyCode::Down);
    }
    let screen = view.screen();
    assert!(screen.contains("›  b150") && !screen.contains("b001"), "{screen}");
    view.key(KeyCode::End);
    assert!(view.chosen().1.contains("b199"));
}

#[test]
fn an_error_does_not_stay_under_a_later_success() {
    let mut view = View::of_fleet((80, 24));
    view.update(FleetEvent::Told("the daemon did not answer".into()));
    assert!(view.screen().contains("the daemon did not answer"), "{}", view.screen());
    assert_eq!(view.keys("d"), [FleetEffect::Diff(key("a2"))]);
    assert!(!view.screen().contains("the daemon did not answer"), "{}", view.screen());
}

#[test]
fn the_message_of_a_merge_is_edited_where_it_is_confirmed() {
    let mut view = View::of_fleet((80, 24));
    view.keys("m");
    let lines = vec!["it merges into main without conflicts".to_owned()];
    let message = "Fix it".to_owned();
    view.update(FleetEvent::Foretold(Forecast { key: key("a2"), lines, can_land: true, message }));
    view.wait(Duration::from_secs(2));
    assert_eq!(view.keys("e, yes"), [], "what is typed is text");
    assert!(view.screen().contains("message: Fix it, yes"), "{}", view.screen());
    view.key(KeyCode::Enter);
    assert_eq!(view.keys("y"), [], "typed on");
    assert!(view.screen().contains("y lands it with: Fix it, yes"), "{}", view.screen());
    view.wait(Duration::from_secs(2));
    assert_eq!(view.keys("y"), [FleetEffect::Merge(key("a2"), Some("Fix it, yes".into()))]);
}
