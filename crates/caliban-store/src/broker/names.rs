//! When a reader would take two names for the same.
//!
//! Owns the only comparison of names. It ignores case, confusable characters by Unicode's list (UTS 39) and invisible
//! characters. Refuses: a list of our own.

use unicode_security::general_security_profile::IdentifierType;
use unicode_security::{GeneralSecurityProfile, skeleton};

use super::{ADMINISTRATOR, BrokerError};

/// Whether a reader can mistake one name for the other.
pub(super) fn alike(one: &str, other: &str) -> bool {
    let (one, other) = (visible(one), visible(other));
    // Which letters look alike depends on their case: a small L looks like a capital I.
    type Case = fn(&str) -> String;
    let cases: [Case; 3] = [str::to_owned, str::to_lowercase, str::to_uppercase];
    let looks = |text: &str| cases.map(|case| skeleton(&case(text)).collect::<String>().to_lowercase());
    let (one, other) = (looks(&one), looks(&other));
    one.iter().any(|look| other.contains(look))
}

/// Refuses a name that looks like that of a built-in agent.
pub(super) fn refuse_reserved(name: &str) -> Result<(), BrokerError> {
    if alike(name, ADMINISTRATOR) { Err(BrokerError::ReservedName(name.to_owned())) } else { Ok(()) }
}

fn visible(text: &str) -> String {
    let is_seen =
        |c: &char| !c.is_control() && c.identifier_type() != Some(IdentifierType::Default_Ignorable);
    text.trim().chars().filter(is_seen).collect()
}

#[cfg(test)]
mod tests {
    use super::alike;

    #[test]
    fn a10_a_name_that_reads_like_another_is_that_name() {
        for name in [
            "Administrator",
            " ADMINISTRATOR ",
            "\u{410}dministrator",
            "Аdmіnіstrаtоr",
            "Ａｄｍｉｎｉｓｔｒａｔｏｒ",
            "Admin\u{200b}istrator",
            "Admin\u{7}istrator",
            "Admin\u{ad}istrator",
            "Admin\u{2060}istrator",
            "𝐀𝐝𝐦𝐢𝐧𝐢𝐬𝐭𝐫𝐚𝐭𝐨𝐫",
            "ADMlNlSTRATOR",
            "Adrninistrator",
            "Adminiѕtrator",
        ] {
            assert!(alike(name, "Administrator"), "{name:?}");
        }
        for name in ["Administrators", "Admin", "Reviewer", "Администратор", "管理者", "Director", "adm1n"]
        {
            assert!(!alike(name, "Administrator"), "{name:?}");
        }
        assert!(alike("Réviewer", "re\u{301}viewer"));
        assert!(!alike("Réviewer", "reviewer"));
    }
}
