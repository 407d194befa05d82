//! What a person says to a call that waits for them.

use serde::{Deserialize, Serialize};

use crate::kept_rules::KeptRules;

/// The answer to an ask.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// This call may run.
    Once,
    /// This call and, for the rest of the session, all that the suggested rules cover. Transcripts of before have it.
    Always,
    /// The same by the rules about outside of the fence.
    AlwaysOutside,
    /// This call and all that these rules cover: the ones that the person was shown, or made of them.
    Keep(KeptRules),
    /// No; with a reason for the model.
    No(Option<String>),
}

/// An answer, and who gave it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GivenAnswer {
    /// The answer.
    pub answer: Answer,
    /// The program that gave it, for people; absent where that is not known, or when nobody answered in time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

impl From<Answer> for GivenAnswer {
    fn from(answer: Answer) -> Self {
        Self { answer, by: None }
    }
}

impl Answer {
    /// The same with its free texts (the rules, the reason) as `clean` makes them.
    #[must_use]
    pub fn cleaned(self, clean: impl Fn(&str) -> String) -> Self {
        match self {
            Self::Keep(KeptRules { rules, keep }) => {
                Self::Keep(KeptRules { rules: rules.iter().map(|rule| clean(rule)).collect(), keep })
            }
            Self::No(reason) => Self::No(reason.map(|reason| clean(&reason))),
            Self::Once | Self::Always | Self::AlwaysOutside => self,
        }
    }

    /// Whether this and `other` mean the same to whoever gave one of them: an answer is recorded without its secrets.
    pub fn is_same_decision(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Keep(one), Self::Keep(other)) => one.keep == other.keep,
            (Self::No(_), Self::No(_)) => true,
            (one, other) => one == other,
        }
    }

    /// What was decided: `denied not now`.
    pub fn words(&self) -> String {
        match self {
            Self::Once => "allowed".to_owned(),
            Self::Always | Self::AlwaysOutside => "allowed from now on".to_owned(),
            Self::Keep(kept) => format!("allowed from now on: {}", kept.words()),
            Self::No(reason) => format!("denied {}", reason.as_deref().unwrap_or_default()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_written_as_transcripts_of_before_have_it() {
        let no = Answer::No(Some("not now".into()));
        let given = GivenAnswer { answer: no, by: Some("caliban (pid 7)".into()) };
        let text = serde_json::to_value(&given).unwrap();
        assert_eq!(text, serde_json::json!({"answer": {"no": "not now"}, "by": "caliban (pid 7)"}));
        let before: GivenAnswer = serde_json::from_str(r#"{"answer": "always"}"#).unwrap();
        assert_eq!(before, Answer::Always.into());
    }
}
