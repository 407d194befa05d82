//! Cutting in the middle.

use caliban_core::cap::{Cap, middle};
use proptest::prelude::*;

#[test]
fn both_ends_are_kept_and_the_gap_is_counted() {
    let text: String = ('a'..='z').cycle().take(200).collect();
    assert_eq!(middle(&text, Cap::Bytes(60)), "abcdefghijklmno\n[… 170 bytes left out …]\ndefghijklmnopqr");
    assert_eq!(middle(&text, Cap::Bytes(200)), text);
    assert_eq!(middle(&text, Cap::Chars(200)), text);
    assert_eq!(middle("äöü", Cap::Bytes(3)), "ä");
    assert_eq!(middle("äöü", Cap::Chars(2)), "äö");
    assert_eq!(middle("äöü", Cap::Chars(0)), "");
    // Room for the line and nothing, or one character, beside it.
    let line = "\n[… 200 characters left out …]\n";
    assert_eq!(middle(&text, Cap::Chars(line.chars().count())), line);
    let one = middle(&text, Cap::Chars(line.chars().count() + 1));
    assert_eq!(one, format!("a{}", line.replace("200", "199")));
}

proptest! {
    #[test]
    fn the_result_is_within_the_cap_and_the_sum_is_right(text in "\\PC{0,300}", cap in 0usize..200) {
        for (cap, length, unit) in [
            (Cap::Bytes(cap), (|s: &str| s.len()) as fn(&str) -> usize, " bytes"),
            (Cap::Chars(cap), (|s: &str| s.chars().count()) as fn(&str) -> usize, " characters"),
        ] {
            let limit = match cap { Cap::Bytes(n) | Cap::Chars(n) => n };
            let cut = middle(&text, cap);
            prop_assert!(length(&cut) <= limit);
            if length(&text) <= limit {
                prop_assert_eq!(cut.as_ref(), text.as_str());
            } else if let Some((head, rest)) = cut.split_once("\n[… ") {
                let (number, tail) = rest.split_once(" …]\n").unwrap();
                let missing: usize = number.strip_suffix(&format!("{unit} left out")).unwrap().parse().unwrap();
                prop_assert!(text.starts_with(head) && text.ends_with(tail));
                prop_assert_eq!(length(head) + missing + length(tail), length(&text));
            } else {
                prop_assert!(text.starts_with(cut.as_ref()));
            }
        }
    }
}
