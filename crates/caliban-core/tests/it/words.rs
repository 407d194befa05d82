//! Words that people read and names that stand in files.

use caliban_core::background::{BackgroundRow, BackgroundStatus};
use caliban_core::budget::{Kind, NearLimit, Scope};
use caliban_core::fence::Profile;
use caliban_core::hook::HookEvent;
use caliban_core::message::Effort;
use caliban_core::priority::Priority;
use caliban_core::wait::{Pause, Wait};

#[test]
fn a_background_agent_is_shown_by_icon_word_and_time() {
    let shown: Vec<String> = [
        BackgroundStatus::Running,
        BackgroundStatus::Completed,
        BackgroundStatus::Failed,
        BackgroundStatus::Killed,
        BackgroundStatus::BudgetExceeded,
    ]
    .map(|status| format!("{} {status:>9}", status.icon()))
    .into();
    assert_eq!(shown, ["▶   running", "✓ completed", "✗    failed", "✗    killed", "$ budget exceeded"]);
    let mut row = BackgroundRow {
        id: 0,
        status: BackgroundStatus::Running,
        summary: String::new(),
        model: String::new(),
        started_ms: 1_000,
        ended_ms: None,
        tokens: 0,
        cached: 0,
        activity: None,
    };
    assert_eq!((row.elapsed_ms(5_000), row.elapsed_ms(500)), (4_000, 0));
    row.ended_ms = Some(3_000);
    assert_eq!(row.elapsed_ms(5_000), 2_000);
}

#[test]
fn a_name_is_the_same_in_words_and_in_json() {
    for effort in Effort::ALL {
        assert_eq!(serde_json::to_value(effort).unwrap(), effort.word());
    }
    for event in [
        HookEvent::SessionStart,
        HookEvent::UserPromptSubmit,
        HookEvent::PreToolUse,
        HookEvent::PostToolUse,
        HookEvent::Stop,
        HookEvent::SubagentStop,
        HookEvent::Notification,
    ] {
        assert_eq!(serde_json::to_value(event).unwrap(), event.name());
    }
    for profile in [Profile::None, Profile::Edit, Profile::Read] {
        assert_eq!(serde_json::to_value(profile).unwrap(), profile.to_string());
    }
    for priority in Priority::ALL {
        assert_eq!(serde_json::to_value(priority).unwrap(), priority.to_string());
        assert_eq!(serde_json::from_value::<Priority>(priority.to_string().into()).unwrap(), priority);
        assert_eq!(priority.to_string().parse(), Ok(priority));
    }
    assert!(serde_json::from_str::<Priority>("\"urgent\"").is_err());
    let wrong = "urgent".parse::<Priority>().unwrap_err();
    assert_eq!(wrong.to_string(), "there is no priority 'urgent'; expected low, normal, high");
}

#[test]
fn only_what_hooks_print_at_the_start_and_at_a_prompt_goes_to_the_model() {
    assert!(HookEvent::SessionStart.output_is_context() && HookEvent::UserPromptSubmit.output_is_context());
    assert!(!HookEvent::PreToolUse.output_is_context() && !HookEvent::Stop.output_is_context());
}

#[test]
fn of_two_fences_the_one_that_allows_less_holds() {
    assert_eq!(Profile::None.narrower(Profile::Edit), Profile::Edit);
    assert_eq!(Profile::Read.narrower(Profile::Edit), Profile::Read);
}

#[test]
fn a_wait_says_why_and_how_long_if_that_is_known() {
    let pause = Pause { reason: "slow down".to_owned(), ms: 5, until_ms: 10 };
    for wait in [Wait::RateLimit(pause.clone()), Wait::QuietHours(pause.clone())] {
        assert_eq!((wait.pause(), wait.to_string().as_str()), (Some(&pause), "slow down"));
    }
    let jobs = Wait::Jobs { commands: vec!["1: make".to_owned(), "2: top".to_owned()] };
    assert_eq!(jobs.pause(), None);
    assert_eq!(jobs.to_string(), "waiting for background commands: 1: make; 2: top");
}

#[test]
fn a_limit_is_named_with_its_amounts() {
    let near = NearLimit::new("today's budget".to_owned(), Kind::Usd, 4_100_000, 5_000_000);
    assert_eq!((near.percent, near.to_string().as_str()), (82, "82 % of today's budget"));
    assert_eq!(NearLimit::new(String::new(), Kind::Turns, 3, 0).percent, 300);
    let words = |kind: Kind| (kind.part_in_words(4_000_000, 5_000_000), kind.amount_in_words(5_000_000));
    let expected = [
        (Kind::Tokens, "4000000 of 5000000 tokens", "5000000 tokens"),
        (Kind::Fresh, "4000000 of 5000000 new tokens", "5000000 new tokens"),
        (Kind::Usd, "$4.00 of $5.00", "$5.00"),
        (Kind::Turns, "4000000 of 5000000 turns", "5000000 turns"),
        (Kind::Wall, "4000 of 5000 seconds", "5000 seconds"),
    ];
    for (kind, part, amount) in expected {
        assert_eq!(words(kind), (part.to_owned(), amount.to_owned()));
    }
    assert_eq!(Scope::Tree(7).to_string(), "7 and those it started");
    assert_eq!(Scope::<u32>::Day.to_string(), "all agents for today");
}
