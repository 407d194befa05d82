//! Modes, by name and by effect on what touches no file.

use caliban_core::access::Access;
use caliban_permissions::{Mode, Verdict};

use crate::place::{Place, short};

#[test]
fn modes_are_read_and_shown_by_name() {
    for name in Mode::NAMES {
        assert_eq!(name.parse::<Mode>().unwrap().to_string(), name);
        assert_eq!(serde_json::from_value::<Mode>(name.into()).unwrap().name(), name);
    }
    assert_eq!(
        "yolo".parse::<Mode>().unwrap_err().to_string(),
        "there is no permission mode 'yolo'; expected default, accept-edits, never-ask, plan, unattended"
    );
    let unread = serde_json::from_value::<Mode>("Plan".into()).unwrap_err().to_string();
    assert_eq!(
        unread,
        "unknown variant `Plan`, expected one of `default`, `accept-edits`, `never-ask`, `plan`, `unattended`"
    );
}

#[test]
fn what_touches_nothing_is_allowed_unless_denied() {
    let place = Place::new();
    for mode in [Mode::Default, Mode::AcceptEdits, Mode::Plan, Mode::Unattended] {
        let policy = place.policy(mode, &["deny TodoWrite"]);
        assert_eq!(short(&policy.decide("JobOutput", &[Access::Nothing])), "allow");
        assert_eq!(short(&policy.decide("JobOutput", &[])), "allow");
        assert_eq!(short(&policy.decide("TodoWrite", &[Access::Nothing])), "deny");
        assert_eq!(short(&policy.decide("AgentTool", &[Access::Agent])), "allow");
        let in_worktree = if mode == Mode::Default { "ask" } else { "allow" };
        assert_eq!(short(&policy.decide("AgentTool", &[Access::AgentInWorktree])), in_worktree, "{mode}");
        let without = place.policy(mode, &["deny AgentTool"]);
        assert_eq!(short(&without.decide("spawn_background", &[Access::Agent])), "deny");
    }
}

#[test]
fn a_verdict_names_the_rule_and_its_source() {
    let place = Place::new();
    let policy = place.policy(Mode::Default, &["Bash(make *)", "deny Bash(git push *)"]);
    assert_eq!(
        policy.decide("Bash", &[place.command("make all")]),
        Verdict::Allow {
            rule: Some("Bash(make *) (test)".to_owned()),
            why: "allowed by Bash(make *) (test)".to_owned(),
            fence: caliban_core::fence::Profile::Edit
        }
    );
    assert_eq!(
        policy.decide("Bash", &[place.command("git push")]),
        Verdict::Deny {
            rule: Some("Bash(git push *) (test)".to_owned()),
            why: "denied by Bash(git push *) (test)".to_owned()
        }
    );
}
