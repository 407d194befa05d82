//! What a typed line means. Pure.

use std::io::Write;

use anstyle::Style;
use caliban_acp::client::Question;
use caliban_core::ask::Answer;

use super::plain_view::{PlainView, SeenCall, TOO_LONG};
use crate::{
    consent::{Consent, OfferedRules},
    fleet::questions::{KeyboardMoment, OpenQuestions, Says, TakenLine},
};

/// What was typed, before it is known whether something is asked.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Typed {
    Nothing,
    /// `/cancel`: stops the turn.
    Cancel,
    Help,
    /// `/say`: a message, whatever is asked; alone, what was kept.
    Say(Option<String>),
    /// A command of the agent's own.
    Command(String),
    /// Something that looks like one.
    Unknown(String),
    Words(String),
}

impl Typed {
    pub(super) fn of(text: &str, commands: &[(String, String)]) -> Self {
        let text = text.trim();
        let Some(name) = text.strip_prefix('/') else {
            return if text.is_empty() { Self::Nothing } else { Self::Words(text.to_owned()) };
        };
        if let Some(words) = name.strip_prefix("say").filter(|rest| rest.starts_with(char::is_whitespace)) {
            return Self::Say(Some(words.trim().to_owned()));
        }
        // A path, or several lines, is no command.
        if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_') {
            return Self::Words(text.to_owned());
        }
        match name {
            "cancel" => Self::Cancel,
            "help" => Self::Help,
            "say" => Self::Say(None),
            _ if commands.iter().any(|(known, _)| known == name) => Self::Command(text.to_owned()),
            _ => Self::Unknown(text.to_owned()),
        }
    }
}

/// What words mean to the questions that lie open.
pub(super) enum Meant {
    Message,
    Answer(Box<Question>, Answer),
    View,
    /// No answer, for this reason.
    Not(String),
    /// Neither an answer nor a message, for this reason; kept.
    Keep(&'static str),
}

/// What words mean that were begun and came then.
///
/// What was not shown whole is not allowed; `viewed` is the question whose call was shown whole on request.
pub(super) fn meant(
    text: &str,
    line: KeyboardMoment,
    viewed: Option<&str>,
    desk: &mut OpenQuestions<Question>,
) -> Meant {
    let [always, outside] = desk.shown().map(Question::rules).unwrap_or_default();
    let consent = Consent::of(text, OfferedRules { always: &always, outside: &outside });
    let is_asked = desk.shown().is_some();
    let seen = desk.shown().map_or(SeenCall::Whole, |question| PlainView::shown(question, viewed));
    match (&consent, seen) {
        (Consent::Once | Consent::Keep(_), SeenCall::Cut) => {
            return Meant::Not(TOO_LONG.to_owned());
        }
        (Consent::Once | Consent::Keep(_), SeenCall::Part) => {
            return Meant::Not(
                "a part of the call is not shown: v shows all of it, then y allows it".to_owned(),
            );
        }
        _ => {}
    }
    let (says, reply) = match consent {
        Consent::View if is_asked => return Meant::View,
        Consent::NoAlways if is_asked => {
            return Meant::Not("there is no rule for that: y allows it once".to_owned());
        }
        Consent::NoRule(why) if is_asked => return Meant::Not(why),
        Consent::Once => (Says::Answer, Answer::Once),
        Consent::Keep(kept) => (Says::Answer, Answer::Keep(kept)),
        Consent::No | Consent::View | Consent::NoAlways | Consent::NoRule(_) => {
            (Says::Answer, Answer::No(None))
        }
        Consent::Instead(reason) => (Says::Words, Answer::No(Some(reason))),
    };
    match desk.take(line, says) {
        TakenLine::Nothing => Meant::Message,
        TakenLine::Early => Meant::Keep(
            "  (this was begun before the question was shown, so it is no answer; /say sends it as a message)",
        ),
        TakenLine::Late => {
            Meant::Keep("  (nothing is asked any more, so this was not sent; /say sends it as a message)")
        }
        TakenLine::Question(question) => Meant::Answer(Box::new(question), reply),
    }
}

pub(super) fn help(
    commands: &[(String, String)],
    screen: &mut PlainView,
    out: &mut dyn Write,
) -> std::io::Result<()> {
    screen.line(Style::new(), "/cancel: Stop the turn", out)?;
    screen.line(Style::new(), "/help: List the commands", out)?;
    screen.line(Style::new(), "/say WORDS: Send a message, also while something is asked", out)?;
    for (name, about) in commands.iter().filter(|(name, _)| name != "help") {
        screen.line(Style::new(), &format!("/{name}: {about}"), out)?;
    }
    screen.line(Style::new(), "Ctrl+D: Leave; the agent goes on", out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slash_is_a_command_that_there_is_or_said_to_be_none() {
        let known = [("status".to_owned(), String::new())];
        for (text, is) in [
            (" /cancel \n", Typed::Cancel),
            ("/help", Typed::Help),
            ("/status", Typed::Command("/status".into())),
            ("/stats", Typed::Unknown("/stats".into())),
            ("/say\n", Typed::Say(None)),
            ("/say yes\nno\n", Typed::Say(Some("yes\nno".into()))),
            ("/sayings", Typed::Unknown("/sayings".into())),
            ("/etc/hosts is wrong", Typed::Words("/etc/hosts is wrong".into())),
            ("/ab\ncd", Typed::Words("/ab\ncd".into())),
            ("/", Typed::Words("/".into())),
            (" \n", Typed::Nothing),
        ] {
            assert_eq!(Typed::of(text, &known), is, "{text:?}");
        }
    }
}
