//! Hostile text, shown inert.

use caliban_core::inert::{Pieces, block, line, quoted};
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
fn joiners_stay_where_they_join() {
    let texts = [
        "👩\u{200d}👩\u{200d}👧\u{200d}👦",                     // a family
        "👩🏽\u{200d}💻 🏳\u{fe0f}\u{200d}🌈 🏴\u{200d}☠\u{fe0f}", // a programmer, two flags
        "🙂\u{200d}↔\u{fe0f} ❤\u{fe0f}\u{200d}🔥 🐦\u{200d}⬛",
        "می\u{200c}خواهم کتاب\u{200c}های",  // Persian
        "مُ\u{200c}ب",                       // with a vowel mark
        "می\u{200c}روم",                    // before a letter that joins only the one before it
        "क्\u{200d}ष क्\u{200c}ष ज़्\u{200d}य", // Devanagari
        "শ্রী র\u{200d}্যাব",                  // Bengali
        "ශ්\u{200d}රී ලංකා",                   // Sinhala
        "ന്\u{200d} ",                       // Malayalam, the old way
    ];
    for text in texts {
        assert_eq!((line(text).as_ref(), block(text).as_ref()), (text, text));
        assert_eq!(line(&format!("{text}\u{202e}")), format!("{text}<U+202E>"), "with context");
        let mut pieces = Pieces::default();
        let mut shown: String = text.chars().map(|c| pieces.block(&c.to_string())).collect();
        shown.push_str(&pieces.finish());
        assert_eq!(shown, text, "one character at a time");
    }
}

#[test]
fn a09_joiners_that_nobody_could_see_are_shown() {
    for (text, wanted) in [
        ("pay\u{200d}pal", "pay<U+200D>pal"),
        ("pay\u{200c}pal", "pay<U+200C>pal"),
        ("\u{200d}a\u{200c}", "<U+200D>a<U+200C>"),
        ("👩\u{200d}x", "👩<U+200D>x"),
        ("👩\u{200d}🍎", "👩<U+200D>🍎"), // no picture that Unicode knows
        ("👩\u{200d}\u{200d}👧", "👩<U+200D><U+200D>👧"),
        ("👩\u{200c}👧", "👩<U+200C>👧"),
        ("کار\u{200c}ها", "کار<U+200C>ها"), // ra joins nothing after it
        ("می\u{200c}", "می<U+200C>"),
        ("می\u{200c}a", "می<U+200C>a"),
        ("می\u{200d}خ", "می<U+200D>خ"),
        ("क\u{200d}ष", "क<U+200D>ष"),
        ("क्\u{200c}", "क्<U+200C>"),
        ("क्\u{200c}ক", "क्<U+200C>ক"), // of another script
        ("क्\u{200d}ि", "क्<U+200D>ि"),
        ("\u{94d}\u{200d}ष", "\u{94d}<U+200D>ष"),
        ("कष\u{200d}ष", "कष<U+200D>ष"), // no virama
        ("র\u{200c}্য", "র<U+200C>্য"),
        ("ক\u{200d}্য", "ক<U+200D>্য"),
        ("🏴\u{e0067}\u{e007f}", "🏴<U+E0067><U+E007F>"),
    ] {
        assert_eq!((line(text).as_ref(), block(text).as_ref()), (wanted, wanted));
    }
}

/// Only what needs the next piece waits for it.
#[test]
fn a_piece_is_shown_at_once_but_for_a_line_end_or_joiner_at_its_end() {
    let mut pieces = Pieces::default();
    assert_eq!(pieces.block("abc"), "abc");
    assert_eq!(pieces.block("d\r"), "d");
    assert_eq!(pieces.block("\ne\r"), "\ne");
    assert_eq!(pieces.block("f\u{200d}"), "␍f");
    assert_eq!(pieces.finish(), "<U+200D>");
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
            || matches!(c, '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}')
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
    /// However a text is cut, it is shown as if it were whole.
    #[test]
    fn pieces_are_shown_like_the_whole(
        parts in proptest::collection::vec(proptest::sample::select(vec![
            "👩", "👧", "\u{200d}", "\u{200c}", "\u{fe0f}", "🏽", "می", "خ", "क", "्", "ष", "ि", "র", "\u{9cd}", "য", "\u{64f}",
            "\r", "\n", "\x1b", "a", " ",
        ]), 0..30),
        cuts in proptest::collection::vec(0usize..60, 0..8),
    ) {
        let text: String = parts.concat();
        let chars: Vec<char> = text.chars().collect();
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(chars.len())).chain([0, chars.len()]).collect();
        cuts.sort_unstable();
        let mut pieces = Pieces::default();
        let mut shown: String = cuts
            .windows(2)
            .map(|pair| pieces.block(&chars[pair[0]..pair[1]].iter().collect::<String>()))
            .collect();
        shown.push_str(&pieces.finish());
        prop_assert_eq!(shown, block(&text));
    }
}
