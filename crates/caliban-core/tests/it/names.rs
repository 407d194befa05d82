//! The slug rule.

use caliban_core::names::{NameError, Slug};
use proptest::prelude::*;

#[test]
fn a03_hostile_names_are_refused_with_a_reason() {
    use NameError::{Character, DotDot, Empty, End, Lock, Reserved, Start, TooLong};
    let long = "x".repeat(300);
    let cases: Vec<(&str, NameError)> = vec![
        ("", Empty),
        ("../x", Character('/')),
        ("-b", Start('-')),
        (".git", Start('.')),
        ("a/../../b", Character('/')),
        ("a\0b", Character('\0')),
        ("a\nb", Character('\n')),
        (&long, TooLong(300)),
        ("HEAD", Character('H')),
        ("head", Reserved("head")),
        ("fetch_head", Reserved("fetch_head")),
        ("аuth", Character('а')),   // Cyrillic
        ("ａuth", Character('ａ')), // full width
        ("auth\u{202e}x", Character('\u{202e}')),
        ("x.lock", Lock),
        ("a@{1}", Character('@')),
        ("a..b", DotDot),
        ("..", Start('.')),
        ("a.", End('.')),
        ("a-", End('-')),
        ("_a", Start('_')),
        ("a b", Character(' ')),
        ("a~1", Character('~')),
        ("a:b", Character(':')),
        ("a\\b", Character('\\')),
        ("$(x)", Character('$')),
    ];
    for (text, wanted) in cases {
        assert_eq!(Slug::parse(text), Err(wanted), "{text:?}");
    }
    assert_eq!(
        Slug::parse("a\u{202e}").unwrap_err().to_string(),
        "a name has only a-z, 0-9, '-', '_' and '.', not '<U+202E>'"
    );
    assert_eq!(
        Slug::parse("größe").unwrap_err().to_string(),
        "a name has only a-z, 0-9, '-', '_' and '.', not 'ö'"
    );
}

#[test]
fn ordinary_names_pass() {
    for text in ["a", "auth", "fix-the-bug", "v1.2", "a_b", "a3f8000b", "0", &"x".repeat(64)] {
        assert_eq!(Slug::parse(text).map(String::from), Ok(text.to_owned()));
    }
    assert!(serde_json::from_str::<Slug>("\"../x\"").is_err());
}

#[test]
fn free_text_becomes_a_name() {
    let cases = [
        ("Refactor the auth module!", "refactor-the-auth-module"),
        ("  --  ", "agent"),
        ("", "agent"),
        ("修复", "agent"),
        ("HEAD", "agent-head"),
        ("../../etc/passwd", "etc-passwd"),
        ("x.lock", "x-lock"),
        (
            "a very long sentence that goes on and on beyond all reason",
            "a-very-long-sentence-that-goes-on-and-on",
        ),
        (
            "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
            "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
        ),
    ];
    for (text, wanted) in cases {
        assert_eq!(Slug::slugify(text).as_str(), wanted, "{text:?}");
    }
    // Forty characters are kept whole. Longer text ends with a whole word if half of the name is left then.
    let (half, rest) = ("a".repeat(20), "b".repeat(40));
    assert_eq!(Slug::slugify(&rest).as_str(), rest);
    assert_eq!(Slug::slugify(&format!("{half} {rest}")).as_str(), half);
    let short = &half[1..];
    assert_eq!(Slug::slugify(&format!("{short} {rest}")).as_str(), format!("{short}-{}", &rest[..20]));
    // Only the first 320 characters are read.
    assert_eq!(Slug::slugify(&format!("{}word", " ".repeat(319))).as_str(), "w");
}

#[test]
fn a_name_is_shown_and_stored_as_it_is() {
    let slug: Slug = "auth".parse().unwrap();
    assert_eq!((format!("{slug:>6}"), slug.as_ref(), slug.as_str()), ("  auth".to_owned(), "auth", "auth"));
    assert_eq!(serde_json::to_string(&slug).unwrap(), "\"auth\"");
    let id: caliban_core::ids::AgentId = "a3f8000b".parse().unwrap();
    assert_eq!(Slug::from(id).as_str(), "a3f8000b");
}

proptest! {
    #[test]
    fn a03_what_slugify_makes_always_parses(text in any::<String>()) {
        let slug = Slug::slugify(&text);
        prop_assert_eq!(Slug::parse(slug.as_str()), Ok(slug));
    }

    #[test]
    fn a03_what_parses_is_safe_everywhere(text in "[a-zA-Z0-9._@{}/~^:-]{0,12}") {
        if let Ok(slug) = Slug::parse(&text) {
            let name = slug.as_str();
            prop_assert!(!name.starts_with(['-', '.']) && !name.contains("..") && !name.ends_with(".lock"));
            prop_assert!(name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-_.".contains(&b)));
        }
    }
}
