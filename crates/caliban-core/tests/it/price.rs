//! Prices and money.

use caliban_core::price::{Billing, MicroUsd, Price, of};
use caliban_core::usage::Usage;

fn listed(model: &str) -> Option<Price> {
    of(model, Billing::Listed)
}

#[test]
fn a_request_costs_what_the_list_says() {
    let usage = Usage { input: 1_000_000, output: 100_000, cache_read: 500_000, cache_write: 200_000 };
    // 3 + 1.5 + 0.15 + 0.75
    assert_eq!(listed("claude-sonnet-4-5").unwrap().cost(usage), MicroUsd(5_400_000));
    // One token of anything is never free.
    assert_eq!(listed("gpt-5-nano").unwrap().cost(Usage { input: 1, ..Usage::default() }), MicroUsd(1));
}

#[test]
fn a_name_that_leads_to_another_model_costs_what_that_costs() {
    assert_eq!(listed("gpt-5.6"), listed("gpt-5.6-sol"));
    assert!(listed("gpt-5.6").is_some());
}

#[test]
fn where_the_sources_disagree_the_higher_price_stands() {
    let read = Usage { cache_read: 1_000_000, ..Usage::default() };
    assert_eq!(listed("claude-sonnet-5-5").unwrap().cost(read), MicroUsd(200_000));
}

#[test]
fn long_prompts_have_their_own_rates() {
    let price = listed("claude-haiku-5-5").unwrap();
    assert_eq!(price.cost(Usage { input: 100_000, ..Usage::default() }), MicroUsd(10_000));
    assert_eq!(price.cost(Usage { input: 50_000, cache_read: 50_001, ..Usage::default() }), MicroUsd(27_501));
    // OpenAI: twice the input, half as much again for the output.
    let price = listed("gpt-5.4").unwrap();
    assert_eq!(price.cost(Usage { input: 272_000, ..Usage::default() }), MicroUsd(680_000));
    let long = Usage { input: 200_000, output: 10_000, cache_read: 50_000, cache_write: 50_000 };
    assert_eq!(price.cost(long), MicroUsd(1_000_000 + 225_000 + 25_000 + 250_000));
}

#[test]
fn dates_prefixes_and_dots_are_seen_through() {
    let haiku = listed("claude-haiku-4-5").unwrap();
    for name in [
        "claude-haiku-4-5-20251001",
        "claude-haiku-4-5-latest",
        "anthropic/claude-haiku-4.5",
        "anthropic.claude-haiku-4-5",
        "Claude-Haiku-4-5",
    ] {
        assert_eq!(listed(name), Some(haiku), "{name}");
    }
    assert_eq!(listed("gpt-5-2025-08-07"), listed("gpt-5"));
    assert_eq!(listed("gemini-3.1-pro-preview"), listed("gemini-3.1-pro"));
    assert_ne!(listed("gpt-5"), listed("gpt-5-mini"));
}

#[test]
fn an_unknown_price_is_unknown_and_a_local_model_is_free() {
    for name in [
        "",
        "gpt-99",
        "claude-opus-4-5-turbo",
        "llama3.3:70b",
        "gpt-5-20",
        "gpt-5-2025-08-7",
        "gpt-5-2025-8-07",
        "gpt-5-202-08-07",
        "gpt-5-2025-08-ab",
        "gpt-5-2025-ab-07",
        "gpt-5-abcd-08-07",
        "claude-haiku-4-5-2025100a",
        "-20251001",
        "openai/gpt-5.6:batch",
        "gpt-5.5-pro",
    ] {
        assert_eq!(listed(name), None, "{name}");
    }
    let usage = Usage { input: 5, output: 5, cache_read: 5, cache_write: 5 };
    assert_eq!(of("llama3.3:70b", Billing::Local).map(|price| price.cost(usage)), Some(MicroUsd(0)));
}

#[test]
fn money_is_shown_and_read() {
    let shown = [
        (0, "$0.0000"),
        (1, "$0.0001"),
        (4_200, "$0.0042"),
        (1_250_000, "$1.25"),
        (999_999, "$1.0000"),
        (1_000_000, "$1.00"),
    ];
    for (micro, text) in shown {
        assert_eq!(MicroUsd(micro).to_string(), text);
    }
    let read = [("2", 2_000_000), ("2.5", 2_500_000), ("$0.005", 5_000), ("0.000001", 1)];
    for (text, micro) in read {
        assert_eq!(text.parse(), Ok(MicroUsd(micro)), "{text}");
    }
    for text in
        ["", "$", ".", "1.", ".5", "-1", "+1", "1e3", "0.0000001", "99999999999999999999", "1,5", "NaN"]
    {
        assert!(text.parse::<MicroUsd>().is_err(), "{text}");
    }
}
