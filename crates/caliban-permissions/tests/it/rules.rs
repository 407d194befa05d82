//! The text of rules, right and wrong.

use caliban_core::access::Access;
use caliban_permissions::{Mode, Rule};

use crate::place::{Place, short};

#[test]
fn a_wrong_rule_is_told_with_place_and_example() {
    let told = |text: &str| text.parse::<Rule>().unwrap_err().to_string();
    assert_eq!(
        told("Bash(git *"),
        "rule `Bash(git *`: the parenthesis is not closed at character 11; expected `)`, for example `Bash(cargo test *)`"
    );
    assert_eq!(
        told("Bash(ls && rm *)"),
        "rule `Bash(ls && rm *)`: a rule is about one command, and this joins several at character 9; expected the words of one \
         command, with `*`, for example `Bash(git log *)`"
    );
    assert_eq!(
        told("WebFetch(https://x.org/)"),
        "rule `WebFetch(https://x.org/)`: this is no domain at character 10; expected `domain:` and a host name, for example \
         `WebFetch(domain:example.org)`"
    );
    assert_eq!(
        told("Grep(x)"),
        "rule `Grep(x)`: this tool takes no pattern at character 5; expected `Read(…)`, which covers it too, for example \
         `Read(~/notes/**)`"
    );
    for wrong in [
        "",
        "(x)",
        "Bash()",
        "Bash( )",
        "Ba sh",
        "Edit(../x)",
        "Edit([)",
        "Edit(!x)",
        "Read(~)",
        "mcp__",
        "mcp__a(b)",
        "Todo(x)",
    ] {
        assert!(wrong.parse::<Rule>().is_err(), "{wrong}");
    }
}

#[test]
fn a_rule_keeps_its_text() {
    for right in
        ["Bash", "Bash(git *)", "Edit(src/**)", "*", "mcp__a__b", "WebFetch(domain:*.x.org)", "TodoWrite"]
    {
        assert_eq!(right.parse::<Rule>().unwrap().to_string(), right);
    }
}

#[test]
fn domains_are_exact_unless_starred() {
    let place = Place::new();
    let check = |rule: &str, host: &str| {
        let fetch = Access::Fetch { url: format!("https://{host}/"), host: host.to_owned() };
        short(&place.policy(Mode::Default, &[rule]).decide("WebFetch", &[fetch]))
    };
    for (rule, host, expected) in [
        ("WebFetch(domain:example.org)", "example.org", "allow"),
        ("WebFetch(domain:Example.ORG)", "example.org.", "allow"),
        ("WebFetch(domain:example.org)", "www.example.org", "ask"),
        ("WebFetch(domain:example.org)", "evilexample.org", "ask"),
        ("WebFetch(domain:*.example.org)", "www.example.org", "allow"),
        ("WebFetch(domain:*.example.org)", "example.org", "ask"),
        ("WebFetch(domain:*.example.org)", "evilexample.org", "ask"),
        ("WebFetch(domain:*)", "x.net", "allow"),
        ("WebFetch", "x.net", "allow"),
        ("deny WebFetch(domain:x.net)", "x.net", "deny"),
    ] {
        assert_eq!(check(rule, host), expected, "{rule} {host}");
    }
}

#[test]
fn mcp_rules_name_a_server_or_a_tool() {
    let place = Place::new();
    let check = |mode: Mode, rule: &str, server: &str, tool: &str, read_only: bool| {
        let access = Access::Mcp { server: server.to_owned(), tool: tool.to_owned(), read_only };
        short(&place.policy(mode, &[rule]).decide(&format!("mcp__{server}__{tool}"), &[access]))
    };
    for (mode, rule, tool, read_only, expected) in [
        (Mode::Default, "mcp__hub", "get", false, "allow"),
        (Mode::Default, "mcp__hub__get", "get", false, "allow"),
        (Mode::Default, "mcp__hub__get", "getter", false, "ask"),
        (Mode::Default, "mcp__hub__g*", "getter", false, "allow"),
        (Mode::Default, "mcp__hu", "get", false, "ask"),
        (Mode::Default, "deny mcp__hub", "get", true, "deny"),
        (Mode::Plan, "mcp__hub", "put", false, "deny"),
        (Mode::Plan, "mcp__hub", "get", true, "allow"),
        (Mode::Plan, "Bash", "get", true, "ask"),
        (Mode::Unattended, "Bash", "put", false, "allow"),
    ] {
        assert_eq!(check(mode, rule, "hub", tool, read_only), expected, "{mode} {rule} {tool}");
    }
}

#[test]
fn a_domain_is_a_name() {
    for wrong in ["domain:", "domain:a b", "domain:*.a b", "domain:x/y", "x.org"] {
        assert!(format!("WebFetch({wrong})").parse::<Rule>().is_err(), "{wrong}");
    }
    for right in ["domain:x.org", "domain:*.x.org", "domain:*", "domain:[::1]"] {
        assert!(format!("WebFetch({right})").parse::<Rule>().is_ok(), "{right}");
    }
}
