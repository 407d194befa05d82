//! A person's yes to one call: bound to exactly what was shown, good for once.

use std::collections::HashMap;

use serde_json::Value;

/// The answers that have been given and not yet used.
#[derive(Debug, Default)]
pub struct Approvals {
    given: HashMap<String, (String, Value)>,
}

/// Why an approval does not count.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ApprovalError {
    /// Nobody approved it, or the approval has been used.
    #[error("call {0} has no approval")]
    None(String),
    /// Something else was approved.
    #[error("call {0} is not the one that was approved")]
    Changed(String),
}

impl Approvals {
    /// Notes the approval of this call, as it was shown.
    pub fn give(&mut self, call: &str, tool: &str, input: &Value) {
        self.given.insert(call.to_owned(), (tool.to_owned(), input.clone()));
    }

    /// Uses the approval up. Also a wrong try uses it up.
    pub fn take(&mut self, call: &str, tool: &str, input: &Value) -> Result<(), ApprovalError> {
        match self.given.remove(call) {
            None => Err(ApprovalError::None(call.to_owned())),
            Some((approved, shown)) if approved == tool && shown == *input => Ok(()),
            Some(_) => Err(ApprovalError::Changed(call.to_owned())),
        }
    }
}
