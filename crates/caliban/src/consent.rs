//! What a line means that a person types while a permission is asked for. Pure.

/// The meaning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Consent {
    /// This call may run.
    Once,
    /// This call and those like it.
    Always,
    /// "Always", where there is no rule that it could mean.
    NoAlways,
    No,
    /// Show the whole call.
    View,
    /// No, with what to do instead.
    Instead(String),
}

impl Consent {
    pub(crate) fn of(line: &str, offers_always: bool) -> Self {
        match line.trim().to_lowercase().as_str() {
            "y" | "yes" => Self::Once,
            "a" | "always" if offers_always => Self::Always,
            "a" | "always" => Self::NoAlways,
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
        for yes in ["y", "Y", "yes", "Yes", " YES "] {
            assert_eq!(Consent::of(yes, false), Consent::Once, "{yes}");
        }
        for always in ["a", "A", "always", "Always"] {
            assert_eq!(Consent::of(always, true), Consent::Always, "{always}");
            assert_eq!(Consent::of(always, false), Consent::NoAlways, "{always}");
        }
        for no in ["", "n", "N", "no", "No", "NO"] {
            assert_eq!(Consent::of(no, true), Consent::No, "{no}");
        }
        assert_eq!(Consent::of("v", true), Consent::View);
        assert_eq!(Consent::of("Use make check", true), Consent::Instead("Use make check".into()));
        assert_eq!(Consent::of("yes but not there", true), Consent::Instead("yes but not there".into()));
    }
}
