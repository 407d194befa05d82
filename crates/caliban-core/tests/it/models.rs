//! What is known of models.

use std::collections::BTreeSet;

use caliban_core::{
    message::Effort,
    models::{Thinking, all, compared, family, is_known, price, sources},
};

#[test]
fn families_are_known_by_their_beginning() {
    let thinking = |model: &str| family(model).thinking;
    assert_eq!(thinking("claude-haiku-4-5-20251001"), Thinking::Budget);
    assert_eq!(thinking("anthropic/claude-opus-4-7"), Thinking::Effort);
    assert_eq!(thinking("gpt-4.1-mini"), Thinking::None);
    assert_eq!(thinking("gpt-5.6-sol"), Thinking::Effort);
    assert_eq!((thinking("qwen3:8b"), is_known("qwen3:8b")), (Thinking::None, false));
    assert_eq!(family("claude-opus-4"), family("claude-opus-4-0"));
    assert_eq!(family("claude-sonnet-4").window, 200_000);
    // A version that is yet to come is taken for one like the newest.
    assert_eq!((thinking("claude-opus-9"), family("claude-opus-9").window), (Thinking::Effort, 1_000_000));
}

#[test]
fn windows_are_as_the_vendors_publish_them() {
    let window = |model: &str| family(model).window;
    for model in ["gpt-5.6-sol", "gpt-6-luna", "gpt-6.1-terra", "openai/gpt-6-astra"] {
        assert_eq!(window(model), 1_050_000, "{model}");
    }
    assert_eq!(window("claude-haiku-5-5"), 1_000_000);
    assert_eq!(window("gpt-5.1"), 400_000);
    // As routers write it.
    assert_eq!(family("anthropic/claude-opus-4.5"), family("claude-opus-4-5"));
    assert_eq!(window("anthropic/Claude-Haiku-4.5"), 200_000);
}

#[test]
fn the_file_is_dated_has_its_sources_and_no_line_hides_another() {
    assert!(compared().parse::<jiff::civil::Date>().is_ok(), "{}", compared());
    assert!(sources().len() >= 3 && sources().iter().all(|source| source.page.contains('.')));
    let names: BTreeSet<&str> = all().iter().map(|model| model.name.as_str()).collect();
    assert_eq!(names.len(), all().len(), "a model has two lines");
    assert!(names.len() > 40);
    for model in all() {
        assert!(is_known(&model.name), "{} has a price and no family", model.name);
        assert_eq!(price(&model.name), Some(model.price));
        let family = family(&model.name);
        assert!(!family.vendor.is_empty() && family.levels.is_sorted(), "{family:?}");
        // A family whose name is the beginning of an earlier one would never be found.
        assert!(family.begins.starts_with(&caliban_core::models::family(&family.begins).begins));
        assert_eq!(family.begins, caliban_core::models::family(&family.begins).begins);
    }
}

#[test]
fn a_level_that_a_model_lacks_is_the_next_lower_one() {
    let nearest = |model: &str, effort| family(model).nearest(effort);
    assert_eq!(nearest("claude-opus-4-6", Effort::Xhigh), Effort::High);
    assert_eq!(nearest("claude-opus-4-6", Effort::Max), Effort::Max);
    assert_eq!(nearest("gpt-5-pro", Effort::Low), Effort::High);
    assert_eq!(nearest("qwen3", Effort::Max), Effort::Max);
}
