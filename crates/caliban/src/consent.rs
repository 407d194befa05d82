//! What a line means that a person types while a permission is asked for. Pure.

use caliban_core::{
    inert,
    kept_rules::{KeepFor, KeptRules},
};
use caliban_permissions::Rule;

/// The meaning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Consent {
    /// This call may run.
    Once,
    /// This call and what these rules cover.
    Keep(KeptRules),
    /// "Always", where there is no rule that it could mean.
    NoAlways,
    /// "Always", with something that is no rule, for this reason.
    NoRule(String),
    No,
    /// Show the whole call.
    View,
    /// No, with what to do instead.
    Instead(String),
}

/// The rules of each kind of "always" that a question offers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OfferedRules<'a> {
    pub(crate) always: &'a [String],
    pub(crate) outside: &'a [String],
}

impl OfferedRules<'_> {
    /// How they are offered, with the rules that they add.
    pub(crate) fn words(self) -> String {
        let words = |key: &str, rules: &[String]| match rules {
            [] => String::new(),
            rules => format!(", {key} {}", inert::line(&KeptRules::line(rules))),
        };
        words("a = always allow", self.always) + &words("o = always, outside the fence:", self.outside)
    }

    /// How long they hold; none when there are none.
    pub(crate) fn how_long(self) -> Option<String> {
        let key = match (self.always, self.outside) {
            ([], []) => return None,
            ([], _) => "o",
            _ => "a",
        };
        Some(format!(
            "always: in this session; `{key} repo` or `{key} everywhere` keeps the rule, `{key} repo RULE` another one"
        ))
    }
}

impl Consent {
    pub(crate) fn of(line: &str, offered: OfferedRules<'_>) -> Self {
        match line.trim().to_lowercase().as_str() {
            "y" | "yes" => Self::Once,
            "" | "n" | "no" => Self::No,
            "v" | "view" => Self::View,
            _ => Self::always(line.trim(), offered).unwrap_or_else(|| Self::Instead(line.trim().to_owned())),
        }
    }

    /// `a`, `a repo`, `a everywhere Bash(make *)`, and the same with `o`; none when it is something else.
    fn always(line: &str, offered: OfferedRules<'_>) -> Option<Self> {
        let (key, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let suggested = match key.to_lowercase().as_str() {
            "a" | "always" => offered.always,
            "o" | "outside" => offered.outside,
            _ => return None,
        };
        let (keep, rules) = rest.trim().split_once(char::is_whitespace).unwrap_or((rest.trim(), ""));
        let keep = if keep.is_empty() { KeepFor::Session } else { keep.to_lowercase().parse().ok()? };
        if suggested.is_empty() {
            return Some(Self::NoAlways);
        }
        if rules.trim().is_empty() {
            return Some(Self::Keep(KeptRules::new(keep, suggested)));
        }
        let kept = KeptRules::written(keep, rules);
        let wrong = kept.rules.iter().find_map(|rule| rule.parse::<Rule>().err());
        Some(wrong.map_or(Self::Keep(kept), |error| Self::NoRule(error.to_string())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_clear_yes_is_a_yes() {
        let (plain, outside) =
            (["Bash(git push --force origin main)".to_owned()], ["Bash(make) outside".to_owned()]);
        let offered = |is: bool| {
            if is {
                OfferedRules { always: &plain, outside: &outside }
            } else {
                OfferedRules { always: &[], outside: &[] }
            }
        };
        for yes in ["y", "Y", "yes", "Yes", " YES "] {
            assert_eq!(Consent::of(yes, offered(false)), Consent::Once, "{yes}");
        }
        for always in ["a", "A", "always", "Always", "a session"] {
            let kept = Consent::Keep(KeptRules::new(KeepFor::Session, &plain));
            assert_eq!(Consent::of(always, offered(true)), kept, "{always}");
            assert_eq!(Consent::of(always, offered(false)), Consent::NoAlways, "{always}");
        }
        let kept = |keep, rules: &[String]| Consent::Keep(KeptRules::new(keep, rules));
        assert_eq!(Consent::of("o", offered(true)), kept(KeepFor::Session, &outside));
        assert_eq!(Consent::of("o", offered(false)), Consent::NoAlways);
        assert_eq!(Consent::of("a repo", offered(true)), kept(KeepFor::Repo, &plain));
        assert_eq!(Consent::of("o everywhere", offered(true)), kept(KeepFor::Everywhere, &outside));
        let edited = ["Bash(git push *)".to_owned(), "Bash(make)".to_owned()];
        assert_eq!(
            Consent::of("a repo Bash(git push *); Bash(make)", offered(true)),
            kept(KeepFor::Repo, &edited)
        );
        assert!(matches!(Consent::of("a repo Bash(", offered(true)), Consent::NoRule(_)));
        for no in ["", "n", "N", "no", "No", "NO"] {
            assert_eq!(Consent::of(no, offered(true)), Consent::No, "{no}");
        }
        assert_eq!(Consent::of("v", offered(true)), Consent::View);
        for words in ["Use make check", "yes but not there", "a branch is better", "always use make"] {
            assert_eq!(Consent::of(words, offered(true)), Consent::Instead(words.into()));
        }
    }
}
