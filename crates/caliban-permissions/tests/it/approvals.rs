//! Approvals count once, for exactly what was shown.

use caliban_permissions::{ApprovalError, Approvals};
use serde_json::json;

#[test]
fn a16_an_approval_is_bound_to_the_call_and_used_up() {
    let mut approvals = Approvals::default();
    let shown = json!({"command": "cargo test"});
    let none = |call: &str| Err(ApprovalError::None(call.to_owned()));
    assert_eq!(approvals.take("c1", "Bash", &shown), none("c1"));
    approvals.give("c1", "Bash", &shown);
    assert_eq!(approvals.take("c2", "Bash", &shown), none("c2"));
    assert_eq!(approvals.take("c1", "Bash", &shown), Ok(()));
    assert_eq!(approvals.take("c1", "Bash", &shown), none("c1"));
    approvals.give("c1", "Bash", &shown);
    assert_eq!(
        approvals.take("c1", "Bash", &json!({"command": "rm -rf /"})),
        Err(ApprovalError::Changed("c1".to_owned()))
    );
    assert_eq!(approvals.take("c1", "Bash", &shown), none("c1"));
    approvals.give("c1", "Bash", &shown);
    assert_eq!(approvals.take("c1", "Write", &shown), Err(ApprovalError::Changed("c1".to_owned())));
}
