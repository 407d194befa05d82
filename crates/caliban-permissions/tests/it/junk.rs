//! Random text: never a panic, never a way around a deny rule.

use caliban_permissions::Mode;
use proptest::prelude::*;

use crate::place::Place;

/// Pieces that mean something to a shell.
pub(crate) fn pieces() -> impl Strategy<Value = String> {
    let all = vec![
        " ",
        " ",
        "\n",
        ";",
        "&&",
        "||",
        "|",
        "&",
        "(",
        ")",
        "{ ",
        " }",
        "$(",
        "`",
        "'",
        "\"",
        "\\",
        "$",
        "${",
        "}",
        "#",
        "<<EOF\n",
        "EOF\n",
        "\nEOF\n",
        "<<'EOF'\n",
        ">",
        "<",
        "x=",
        "$x",
        "ok",
        "ok a",
        "echo",
        "if ",
        "; then ",
        "; fi",
        "for i in ",
        "; do ",
        "; done",
        "case a in ",
        "a) ",
        ";;",
        " esac",
        "[[ ",
        " ]]",
        "((",
        "))",
        "$((",
        "!",
        "time ",
        "eval ",
        "~",
        "*",
        "[",
        "\t",
        "-",
        "=",
        "<<-E\n",
        "\tE\n",
        "$'",
        "$\"",
        "{a,b}",
        "@",
        ":-",
        "function f ",
        "f() ",
        "\\\n",
        "# ",
        "2>&1",
        "'ok'",
        "env ",
        "bash -c ",
    ];
    prop::collection::vec(prop::sample::select(all), 0..14).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn random_text_is_answered(line in ".{0,60}", shellish in pieces()) {
        let place = Place::new();
        let policy = place.policy(Mode::AcceptEdits, &["Bash(ok *)", "deny Bash(evil *)"]);
        policy.decide("Bash", &[place.command(&line)]);
        policy.decide("Bash", &[place.command(&shellish)]);
    }

    #[test]
    fn a_denied_command_in_plain_position_is_never_allowed(before in pieces(), after in pieces()) {
        let place = Place::new();
        for mode in [Mode::Default, Mode::Unattended] {
            let policy = place.policy(mode, &["Bash", "deny Bash(evil *)"]);
            // On a line of its own, and whatever stands around it parses or not.
            let line = format!("evil x\n{before}");
            prop_assert!(!policy.decide("Bash", &[place.command(&line)]).is_allowed(), "{line}");
            let line = format!("ok a; evil {after}");
            prop_assert!(!policy.decide("Bash", &[place.command(&line)]).is_allowed(), "{line}");
        }
    }
}
