//! Who comes first.

use caliban_core::priority::{Priority, Standing};
use caliban_core::setup::AgentSetup;

#[test]
fn a_person_comes_first_and_nobody_below_an_agent_comes_before_it() {
    let ranks = [
        Standing::Background(Priority::Low),
        Standing::Background(Priority::Normal),
        Standing::Background(Priority::High),
        Standing::Attended,
    ]
    .map(Standing::rank);
    assert!(ranks.is_sorted_by(|one, next| one < next) && ranks[1] == 0, "{ranks:?}");
    assert_eq!(Standing::Attended.below(Priority::Low), Standing::Background(Priority::Low));
    let low = Standing::Background(Priority::Low);
    assert_eq!(low.below(Priority::High), low);
    assert_eq!(Priority::below(None, Priority::High), Priority::High);
    assert_eq!(Priority::below(Some(Priority::High), Priority::Low), Priority::Low);
    assert_eq!(Priority::below(Some(Priority::Low), Priority::Normal), Priority::Low);
}

#[test]
fn a11_what_an_agent_starts_has_at_most_its_priority_and_keeps_its_quiet_hours() {
    let of = |priority: Option<Priority>, ignores_quiet_hours: bool| AgentSetup {
        priority,
        ignores_quiet_hours,
        ..AgentSetup::default()
    };
    let below = |child: AgentSetup, parent: &AgentSetup| {
        let child = child.below(parent);
        (child.priority, child.keeps_quiet_hours())
    };
    let (low, normal, high) =
        (of(Some(Priority::Low), false), of(None, false), of(Some(Priority::High), false));
    assert_eq!(below(of(Some(Priority::High), true), &low), (Some(Priority::Low), true));
    assert_eq!(below(of(Some(Priority::High), true), &normal), (None, true));
    assert_eq!(below(of(None, false), &high), (Some(Priority::High), false));
    assert_eq!(below(of(Some(Priority::Low), false), &high), (Some(Priority::Low), true));
    assert_eq!(below(of(None, false), &of(None, true)), (None, false));
}

#[test]
fn what_an_agent_starts_has_no_sub_agents_if_either_says_so() {
    let of = |no_sub_agent: bool| AgentSetup { no_sub_agent, ..AgentSetup::default() };
    let below = |child: bool, parent: bool| of(child).below(&of(parent)).no_sub_agent;
    assert_eq!([below(false, false), below(false, true), below(true, false)], [false, true, true]);
}
