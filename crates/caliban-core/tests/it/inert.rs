//! Hostile text, shown inert.

use caliban_core::inert::{block, line, quoted};
use proptest::prelude::*;

#[test]
fn a09_escapes_become_visible() {
    let cases = [
        ("\x1b[31mred\x1b[0m", "␛[31mred␛[0m"),
        ("\x1b]52;c;ZXZpbA==\x07", "␛]52;c;ZXZpbA==␇"),
        ("\u{9b}31m", "<U+009B>31m"),
        ("a\u{202e}b\u{2066}c", "a<U+202E>b<U+2066>c"),
        ("x\u{e0041}\u{200b}\u{feff}y", "x<U+E0041><U+200B><U+FEFF>y"),
        ("a\rb\x08c\x7f\0", "a␍b␈c␡␀"),
        ("a\u{2028}b", "a<U+2028>b"),
    ];
    for (text, wanted) in cases {
        assert_eq!(line(text), wanted);
        assert_eq!(block(text), wanted);
    }
    assert_eq!(line("a\r\nb\tc\n"), "a␍␊b c␊");
    assert_eq!(block("a\r\nb\tc\n"), "a\nb\tc\n");
}

#[test]
fn a09_each_unseen_character_is_shown_by_its_number() {
    let unseen = [
        0x80..=0x9f, // C1 controls
        0xad..=0xad,
        0x61c..=0x61c,
        0x200b..=0x200f,
        0x2028..=0x202e,
        0x2060..=0x206f,
        0xfe00..=0xfe0e,
        0xfeff..=0xfeff,
        0xfff9..=0xfffb,
        0xe0000..=0xe007f,
        0xe0100..=0xe01ef,
    ];
    for number in unseen.into_iter().flatten() {
        let text = char::from_u32(number).unwrap().to_string();
        assert_eq!(
            (line(&text), block(&text)),
            (format!("<U+{number:04X}>").into(), format!("<U+{number:04X}>").into())
        );
    }
}

#[test]
fn ordinary_text_is_untouched() {
    for text in ["", "plain", "Grüße, 你好, مرحبا, ✅ ❤️", "e\u{301}", "<b>&amp;"] {
        assert_eq!(line(text), text);
        assert!(matches!(block(text), std::borrow::Cow::Borrowed(_)));
    }
}

#[test]
fn a_long_text_is_quoted_short() {
    assert_eq!(quoted("x\n"), "'x␊'");
    assert_eq!(quoted(&"é".repeat(81)), format!("'{}…'", "é".repeat(80)));
}

proptest! {
    #[test]
    fn a09_nothing_dangerous_is_left(text in any::<String>(), extra in proptest::collection::vec(0u32..0x11_0000, 0..40)) {
        let text: String = text.chars().chain(extra.into_iter().filter_map(char::from_u32)).collect();
        let hostile = |c: char| c.is_control()
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}')
            || matches!(c, '\u{feff}' | '\u{e0000}'..='\u{e0fff}' | '\u{61c}' | '\u{ad}');
        let one = line(&text);
        prop_assert!(!one.chars().any(hostile));
        prop_assert_eq!(line(&one), one.as_ref());
        let many = block(&text);
        prop_assert!(!many.chars().any(|c| hostile(c) && c != '\n' && c != '\t'));
        prop_assert_eq!(block(&many), many.as_ref());
        // Nothing is dropped but the `\r` of a line end.
        prop_assert!(one.chars().count() >= text.chars().count());
    }
}
