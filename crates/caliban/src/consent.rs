//! What a line means that a person types while a permission is asked for. Pure.

/// The meaning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Consent {
    /// This call may run.
    Once,
    /// This call and those like it.
    Always,
    /// The same, outside of the fence.
    AlwaysOutside,
    /// "Always", where there is no rule that it could mean.
    NoAlways,
    No,
    /// Show the whole call.
    View,
    /// No, with what to do instead.
    Instead(String),
}

/// Which kinds of "always" a question offers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OfferedRules {
    pub(crate) always: bool,
    pub(crate) outside: bool,
}

impl OfferedRules {
    /// How they are offered, with the rules that they add.
    pub(crate) fn words(always: &[String], outside: &[String]) -> String {
        let words = |key: &str, rules: &[String]| match rules {
            [] => String::new(),
            rules => format!(", {key} {}", caliban_core::inert::line(&rules.join(", "))),
        };
        words("a = always allow", always) + &words("o = always, outside the fence:", outside)
    }
}

impl Consent {
    pub(crate) fn of(line: &str, offered: OfferedRules) -> Self {
        match line.trim().to_lowercase().as_str() {
            "y" | "yes" => Self::Once,
            "a" | "always" if offered.always => Self::Always,
            "o" | "outside" if offered.outside => Self::AlwaysOutside,
            "a" | "always" | "o" | "outside" => Self::NoAlways,
            "" | "n" | "no" => Self::No,
            "v" | "view" => Self::View,
            _ => Self::Instead(line.trim().to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_clear_yes_is_a_yes() {
        let offered = |is: bool| OfferedRules { always: is, outside: is };
        for yes in ["y", "Y", "yes", "Yes", " YES "] {
            assert_eq!(Consent::of(yes, offered(false)), Consent::Once, "{yes}");
        }
        for always in ["a", "A", "always", "Always"] {
            assert_eq!(Consent::of(always, offered(true)), Consent::Always, "{always}");
            assert_eq!(Consent::of(always, offered(false)), Consent::NoAlways, "{always}");
        }
        assert_eq!(Consent::of("o", offered(true)), Consent::AlwaysOutside);
        assert_eq!(Consent::of("o", offered(false)), Consent::NoAlways);
        for no in ["", "n", "N", "no", "No", "NO"] {
            assert_eq!(Consent::of(no, offered(true)), Consent::No, "{no}");
        }
        assert_eq!(Consent::of("v", offered(true)), Consent::View);
        assert_eq!(Consent::of("Use make check", offered(true)), Consent::Instead("Use make check".into()));
        assert_eq!(
            Consent::of("yes but not there", offered(true)),
            Consent::Instead("yes but not there".into())
        );
    }
}
