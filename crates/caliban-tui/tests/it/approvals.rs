//! Nothing is approved unseen.

use caliban_core::{
    ask::Answer,
    kept_rules::{KeepFor, KeptRules},
};
use caliban_tui::{
    asks::AskedQuestion,
    events::{AgentEvent, ScreenEffect, ScreenEvent},
};
use crossterm::event::{KeyCode, KeyModifiers};
use serde_json::json;

use crate::world::{World, prompts};

/// A screen with a question that has the focus and was read.
fn read(command: &str) -> World {
    let mut world = World::new((80, 24));
    world.says("push it");
    world.pass(5_000);
    world.asks(7, json!({"command": command}));
    world.key(KeyCode::Tab);
    world.screen();
    world.pass(2_000);
    world
}

#[test]
fn t25_a_question_in_mid_typing_is_not_answered_by_what_is_typed() {
    let mut world = World::new((80, 24));
    world.says("push it");
    world.types("and y");
    world.asks(7, json!({"command": "git push --force"}));
    let effects = world.says("es, y a y n");
    assert_eq!(prompts(&effects), ["and yes, y a y n"], "it is a message");
    assert!(effects.iter().all(|effect| !matches!(effect, ScreenEffect::Answer(..))));
    assert!(world.screen().contains("1 question (Tab)"), "{}", world.screen());
    // Even right after the focus: what comes that fast was not meant for it.
    world.key(KeyCode::Tab);
    assert_eq!(world.key(KeyCode::Char('y')), [], "it was not even drawn");
    world.screen();
    assert_eq!(world.key(KeyCode::Char('y')), []);
    world.pass(600);
    assert_eq!(world.key(KeyCode::Char('y')), [], "less than a second after the last key");
    world.pass(900);
    assert_eq!(world.key(KeyCode::Char('y')), []);
    world.pass(1_100);
    assert_eq!(world.key(KeyCode::Char('y')), [ScreenEffect::Answer(7, Answer::Once)]);
}

#[test]
fn enter_and_a_paste_never_answer() {
    let mut world = read("git push");
    assert_eq!(world.key(KeyCode::Enter), []);
    world.pass(2_000);
    assert_eq!(world.state.update(ScreenEvent::Paste("y".into()), world.now), []);
    assert!(world.screen().contains("> y"), "it goes into the draft: {}", world.screen());
}

#[test]
fn t26_a_long_command_is_allowed_only_when_its_end_was_seen() {
    let command: String = (1..=60).map(|n| format!("echo {n}\n")).collect::<String>() + "rm -rf precious";
    let mut world = read(&command);
    assert!(!world.screen().contains("rm -rf precious"));
    assert_eq!(world.key(KeyCode::Char('y')), []);
    assert!(world.screen().contains("scroll to its end"), "{}", world.screen());
    world.key(KeyCode::End);
    world.pass(2_000);
    assert_eq!(world.key(KeyCode::Char('y')), [], "scrolled, and not drawn yet");
    assert!(world.screen().contains("rm -rf precious"), "{}", world.screen());
    world.pass(2_000);
    assert_eq!(world.key(KeyCode::Char('y')), [ScreenEffect::Answer(7, Answer::Once)]);
}

#[test]
fn a_refusal_carries_its_reason_and_always_names_its_rule() {
    let mut world = read("git push");
    let screen = world.screen();
    assert!(screen.contains("always would add: Bash(git push *)"), "{screen}");
    assert!(screen.contains("no rule allows it") && screen.contains("the agent asks"), "{screen}");
    assert!(screen.contains("or type"), "{screen}");
    world.types("use a branch");
    assert!(world.screen().contains("refuse, and say: use a branch"));
    let refused = ScreenEffect::Answer(7, Answer::No(Some("use a branch".into())));
    assert_eq!(world.key(KeyCode::Enter), [refused]);
    let kept = |keep, rule: &str| {
        let kept = KeptRules { rules: vec![rule.to_owned()], keep };
        [ScreenEffect::Answer(7, Answer::Keep(kept))]
    };
    let mut world = read("git push");
    assert_eq!(world.key(KeyCode::Char('a')), []);
    assert_eq!(world.key(KeyCode::Enter), kept(KeepFor::Session, "Bash(git push *)"));
    let mut world = read("git push");
    assert!(world.screen().contains("always, outside the fence, would add: Bash(git push *) outside"));
    assert_eq!(world.key(KeyCode::Char('o')), []);
    assert_eq!(world.key(KeyCode::Enter), kept(KeepFor::Session, "Bash(git push *) outside"));
    let mut world = read("git push");
    assert_eq!(world.key(KeyCode::Char('n')), [ScreenEffect::Answer(7, Answer::No(None))]);
}

/// 28.4: the rule is shown as it will be written, can be changed before, and the person says for how long.
#[test]
fn always_shows_its_rule_and_takes_another() {
    let mut world = read("git push");
    world.key(KeyCode::Char('a'));
    let screen = world.screen();
    assert!(screen.contains("rule: Bash(git push *)"), "{screen}");
    assert!(screen.contains("● this session   ○ this repo   ○ everywhere"), "{screen}");
    world.key(KeyCode::Tab);
    assert!(world.screen().contains("○ this session   ● this repo"), "{}", world.screen());
    // What is no rule is said, and answers nothing.
    world.key(KeyCode::Backspace);
    assert_eq!(world.key(KeyCode::Enter), []);
    assert!(world.screen().contains("the parenthesis is not closed"), "{}", world.screen());
    world.key(KeyCode::Backspace);
    world.types("origin main)");
    world.key(KeyCode::Home);
    world.key(KeyCode::Delete);
    world.types("B");
    let rules = vec!["Bash(git push origin main)".to_owned()];
    let kept = KeptRules { rules, keep: KeepFor::Repo };
    assert_eq!(world.key(KeyCode::Enter), [ScreenEffect::Answer(7, Answer::Keep(kept))]);
    // Esc goes back to the question, and nothing is answered.
    let mut world = read("git push");
    world.key(KeyCode::Char('a'));
    world.key(KeyCode::Esc);
    let screen = world.screen();
    assert!(screen.contains("y allow once") && !screen.contains("rule: "), "{screen}");
}

/// 28.19: words and Enter answer, as with --plain.
#[test]
fn words_and_enter_answer_an_open_question() {
    for (words, reply) in [
        ("run make instead", Answer::No(Some("run make instead".into()))),
        ("Y", Answer::Once),
        ("NO", Answer::No(None)),
    ] {
        let mut world = read("git push");
        world.types(words);
        assert_eq!(world.key(KeyCode::Enter), [ScreenEffect::Answer(7, reply)], "{words}");
    }
    // With Enter before, words may begin with a letter that is a key; Enter alone answers nothing.
    let mut world = read("git push");
    assert_eq!(world.key(KeyCode::Enter), []);
    world.types("not today");
    let refused = Answer::No(Some("not today".into()));
    assert_eq!(world.key(KeyCode::Enter), [ScreenEffect::Answer(7, refused)]);
    let mut world = read("git push");
    assert_eq!(world.key(KeyCode::Enter), []);
    assert_eq!(world.key(KeyCode::Enter), []);
    assert!(world.screen().contains("y allow once"), "{}", world.screen());
}

/// 28.19: what was typed for something else never answers.
#[test]
fn a_command_that_is_typed_at_an_open_question_is_no_answer() {
    for begins in ['/', '!'] {
        let mut world = read("git push");
        assert_eq!(world.key(KeyCode::Char(begins)), []);
        let screen = world.screen();
        assert!(screen.contains(&format!("> {begins}")) && screen.contains("1 question (Tab)"), "{screen}");
        // In words it is as good as any other letter.
        let mut world = read("git push");
        world.types("use ./x");
        let refused = Answer::No(Some("use ./x".into()));
        assert_eq!(world.key(KeyCode::Enter), [ScreenEffect::Answer(7, refused)]);
    }
}

#[test]
fn ctrl_d_at_a_question_leaves_as_it_does_elsewhere() {
    let mut world = read("git push");
    assert_eq!(world.control('d'), []);
    let screen = world.screen();
    assert!(screen.contains("Ctrl+D again ends it") && screen.contains("1 question (Tab)"), "{screen}");
    assert_eq!(world.control('d'), [ScreenEffect::Quit]);
    // Not while words are written.
    let mut world = read("git push");
    world.types("use");
    assert_eq!(world.control('d'), []);
    assert!(world.screen().contains("refuse, and say: use"));
}

#[test]
fn the_key_that_answers_one_question_does_not_answer_the_next() {
    let mut world = read("git push");
    world.asks(8, json!({"command": "rm -rf /"}));
    assert_eq!(world.key(KeyCode::Char('y')), [ScreenEffect::Answer(7, Answer::Once)]);
    for _ in 0..20 {
        world.screen();
        world.pass(100);
        assert_eq!(world.key(KeyCode::Char('y')), [], "a key that is held down");
    }
    world.screen();
    world.pass(1_500);
    assert_eq!(world.key(KeyCode::Char('y')), [ScreenEffect::Answer(8, Answer::Once)]);
}

#[test]
fn a_question_that_is_answered_elsewhere_closes() {
    let mut world = read("git push");
    world.agent(AgentEvent::Withdrawn(7));
    let screen = world.screen();
    assert!(screen.contains("answered elsewhere") && !screen.contains("y allow once"), "{screen}");
    world.pass(2_000);
    assert_eq!(world.key(KeyCode::Char('y')), []);
    assert!(world.screen().contains("> y"), "keys are the composer's again");
}

#[test]
fn what_the_dialog_shows_is_the_whole_call() {
    let mut world = read("echo ok\u{202e}\u{200b} \u{1b}[8m; rm -rf ~");
    let screen = world.screen();
    assert!(screen.contains("echo ok<U+202E><U+200B> ␛[8m; rm -rf ~"), "{screen}");
}

#[test]
fn no_key_with_a_modifier_answers() {
    let mut world = read("rm -rf precious");
    for c in ['y', 'a', 'n', 'r'] {
        for modifiers in [KeyModifiers::CONTROL, KeyModifiers::ALT] {
            let effects = world.chord(KeyCode::Char(c), modifiers);
            assert!(
                !effects.iter().any(|effect| matches!(effect, ScreenEffect::Answer(..))),
                "{c} {effects:?}"
            );
            world.pass(2_000);
        }
    }
    assert!(world.screen().contains("y allow once"), "{}", world.screen());
}

#[test]
fn who_comes_back_from_the_shell_has_to_read_the_question_again() {
    let mut world = read("rm -rf precious");
    world.state.returned(world.now);
    assert_eq!(world.key(KeyCode::Char('y')), []);
    world.screen();
    world.pass(3_000);
    assert_eq!(world.key(KeyCode::Char('y')).len(), 1);
}

fn ticks(world: &mut World, ms: u64) {
    world.pass(ms);
    world.state.update(ScreenEvent::Tick, world.now);
    world.screen();
}

#[test]
fn a_question_opens_by_itself_when_nobody_is_writing() {
    let mut world = World::new((80, 24));
    world.asks(7, json!({"command": "git push --force"}));
    assert!(world.state.deadline(world.now).is_some(), "it is looked at again");
    ticks(&mut world, 700);
    assert!(world.screen().contains("1 question (Tab)"), "{}", world.screen());
    ticks(&mut world, 200);
    assert!(!world.screen().contains("1 question (Tab)"), "{}", world.screen());
    // Whoever begins to write just then writes a message, and answers nothing.
    assert_eq!(world.key(KeyCode::Char('y')), []);
    let screen = world.screen();
    assert!(screen.contains("> y") && screen.contains("1 question (Tab)"), "{screen}");
    // Over a draft it stays above the input line, and it opens by itself once only.
    ticks(&mut world, 5_000);
    world.key(KeyCode::Backspace);
    ticks(&mut world, 5_000);
    assert!(world.screen().contains("1 question (Tab)"), "{}", world.screen());
    world.key(KeyCode::Tab);
    world.screen();
    ticks(&mut world, 2_000);
    let answered = world.key(KeyCode::Char('y'));
    assert!(matches!(answered[..], [ScreenEffect::Answer(7, Answer::Once)]), "{answered:?}");
    // A second question comes while somebody writes: it does not get in the way.
    world.types("wait");
    world.asks(8, json!({"command": "make"}));
    ticks(&mut world, 5_000);
    assert!(world.screen().contains("1 question (Tab)"), "{}", world.screen());
}

#[test]
fn a_question_rings() {
    let mut world = World::new((80, 24));
    let rung = world.agent(AgentEvent::Asked(AskedQuestion {
        number: 1,
        tool: "Bash".into(),
        agent: None,
        input: json!({"command": "make"}),
        preview: None,
        why: String::new(),
        rules: Vec::new(),
        outside: Vec::new(),
    }));
    assert_eq!(rung, [ScreenEffect::Ring("the agent asks: Bash make".into())]);
}

#[test]
fn a_question_that_has_opened_by_itself_is_answered_when_it_was_read() {
    let mut world = World::new((80, 24));
    world.asks(7, json!({"command": "make"}));
    ticks(&mut world, 900);
    ticks(&mut world, 600);
    let answered = world.key(KeyCode::Char('y'));
    assert!(matches!(answered[..], [ScreenEffect::Answer(7, Answer::Once)]), "{answered:?}");
}

/// 28.20: an old error does not stay under what is done after it.
#[test]
fn what_was_said_before_goes_with_the_next_thing_that_is_done() {
    let mut world = World::new((80, 24));
    world.agent(AgentEvent::Told("there is no such thing".into()));
    assert!(world.screen().contains("there is no such thing"), "{}", world.screen());
    world.says("then do this");
    assert!(!world.screen().contains("there is no such thing"), "{}", world.screen());
}

#[test]
fn a_question_about_an_edit_is_drawn_with_line_numbers_and_what_stands_around() {
    let mut world = World::new((80, 24));
    world.agent(AgentEvent::Asked(AskedQuestion {
        number: 1,
        tool: "Edit".into(),
        agent: None,
        input: json!({"file_path": "a.rs", "old_string": "old", "new_string": "new"}),
        preview: Some("     9  before\n       -old\n    10 +new\n    11  after".into()),
        why: String::new(),
        rules: Vec::new(),
        outside: Vec::new(),
    }));
    world.key(KeyCode::Tab);
    let screen = world.screen();
    for line in ["9  before", "-old", "10 +new", "11  after"] {
        assert!(screen.contains(line), "{line} is not in {screen}");
    }
}
