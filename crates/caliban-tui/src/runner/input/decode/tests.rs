use proptest::prelude::*;

use super::*;

fn keys(bytes: &[u8]) -> Vec<String> {
    let mut decoder = Decoder::default();
    let mut events = decoder.feed(bytes);
    events.extend(decoder.rest());
    events.iter().map(shown).collect()
}

fn shown(event: &Event) -> String {
    match event {
        Event::Key(key) => format!("{:?}+{:?}", key.modifiers, key.code).replace("KeyModifiers", ""),
        other => format!("{other:?}"),
    }
}

fn one(bytes: &[u8]) -> (KeyCode, KeyModifiers) {
    let mut decoder = Decoder::default();
    let mut events = decoder.feed(bytes);
    events.extend(decoder.rest());
    match events.as_slice() {
        [Event::Key(key)] => (key.code, key.modifiers),
        other => panic!("{bytes:?} is {other:?}"),
    }
}

#[test]
fn every_way_to_send_a_key_is_that_key() {
    let (none, shift, alt, control) =
        (KeyModifiers::NONE, KeyModifiers::SHIFT, KeyModifiers::ALT, KeyModifiers::CONTROL);
    for (bytes, expected) in [
        ("a", (KeyCode::Char('a'), none)),
        ("A", (KeyCode::Char('A'), shift)),
        ("ä", (KeyCode::Char('ä'), none)),
        ("🦀", (KeyCode::Char('🦀'), none)),
        ("\r", (KeyCode::Enter, none)),
        ("\n", (KeyCode::Char('j'), control)),
        ("\t", (KeyCode::Tab, none)),
        ("\x7f", (KeyCode::Backspace, none)),
        ("\x03", (KeyCode::Char('c'), control)),
        ("\0", (KeyCode::Char(' '), control)),
        ("\x1b", (KeyCode::Esc, none)),
        ("\x1ba", (KeyCode::Char('a'), alt)),
        ("\x1b\r", (KeyCode::Enter, alt)),
        ("\x1b[", (KeyCode::Char('['), alt)),
        ("\x1bO", (KeyCode::Char('O'), alt | shift)),
        ("\x1b]", (KeyCode::Char(']'), alt)),
        ("\x1b[A", (KeyCode::Up, none)),
        ("\x1bOA", (KeyCode::Up, none)),
        ("\x1b[1;3A", (KeyCode::Up, alt)),
        ("\x1b[1;5H", (KeyCode::Home, control)),
        ("\x1b[3~", (KeyCode::Delete, none)),
        ("\x1b[5;2~", (KeyCode::PageUp, shift)),
        ("\x1b[Z", (KeyCode::BackTab, shift)),
        ("\x1b[13;2u", (KeyCode::Enter, shift)),
        ("\x1b[27;2;13~", (KeyCode::Enter, shift)),
        ("\x1b[97;5u", (KeyCode::Char('a'), control)),
        ("\x1b[9;2u", (KeyCode::BackTab, shift)),
        ("\x1b[27u", (KeyCode::Esc, none)),
        ("\x1b[97:65;6u", (KeyCode::Char('a'), control | shift)),
        ("\x1b[57414u", (KeyCode::Enter, none)),
    ] {
        assert_eq!(one(bytes.as_bytes()), expected, "{bytes:?}");
    }
    assert_eq!(keys(b"\x1b\x1b[A").len(), 2, "Esc, then Up");
}

#[test]
fn the_mouse_and_the_focus_are_told_and_answers_of_the_terminal_are_no_keys() {
    let mouse = |bytes: &[u8]| match Decoder::default().feed(bytes).as_slice() {
        [Event::Mouse(mouse)] => (mouse.kind, mouse.column, mouse.row),
        other => panic!("{other:?}"),
    };
    assert_eq!(mouse(b"\x1b[<0;10;5M"), (MouseEventKind::Down(MouseButton::Left), 9, 4));
    assert_eq!(mouse(b"\x1b[<32;1;1M"), (MouseEventKind::Drag(MouseButton::Left), 0, 0));
    assert_eq!(mouse(b"\x1b[<0;0;0m"), (MouseEventKind::Up(MouseButton::Left), 0, 0));
    assert_eq!(mouse(b"\x1b[<65;3;3M").0, MouseEventKind::ScrollDown);
    assert_eq!(Decoder::default().feed(b"\x1b[I\x1b[O"), [Event::FocusGained, Event::FocusLost]);
    for answer in [
        "\x1b[?62;4c",
        "\x1b[12;40R",
        "\x1b]11;rgb:00/00/00\x07",
        "\x1b]52;c;eA==\x1b\\",
        "\x1bP1+r\x1b\\",
        "\x1b[M !!",
        "\x1b[?1u",
    ] {
        let seen = keys(format!("{answer}x").as_bytes());
        assert_eq!(
            seen.last().map(String::as_str),
            Some(shown(&letter('x')).as_str()),
            "{answer:?}: {seen:?}"
        );
        assert!(seen.len() <= 2, "{answer:?}: {seen:?}");
    }
}

#[test]
fn t20_a_paste_without_its_end_recovers() {
    let mut decoder = Decoder::default();
    assert_eq!(decoder.feed(b"\x1b[200~lost\nend"), []);
    assert_eq!(decoder.feed(b" of it"), []);
    assert_eq!(decoder.patience(), Some(PASTE_WITHIN), "something is waited for");
    assert_eq!(decoder.rest(), [Event::Paste("lost\nend of it".to_owned())]);
    assert_eq!(decoder.patience(), None);
    // Keys are keys again.
    assert_eq!(decoder.feed(b"\x03").len(), 1);
    assert_eq!(decoder.feed(b"y"), [letter('y')]);
}

#[test]
fn t20_of_a_paste_that_only_paused_nothing_is_typed() {
    let mut decoder = Decoder::default();
    decoder.feed(b"\x1b[200~first\n");
    decoder.rest();
    let late = "and a line that would be sent by its end\n";
    assert_eq!(decoder.feed(late.as_bytes()), [Event::Paste(late.to_owned())]);
    assert_eq!(decoder.feed(b"rm -rf\n\x1b[201~q"), [Event::Paste("rm -rf\n".to_owned()), letter('q')]);
    // The end alone is no key.
    decoder.feed(b"\x1b[200~x");
    decoder.rest();
    assert_eq!(decoder.feed(b"\x1b[201~"), [Event::Paste(String::new())]);
    assert_eq!(decoder.feed(b"\x1b[201~"), []);
}

#[test]
fn t18_a_paste_of_a_megabyte_in_pieces_is_one() {
    let text = "0123456789abcde\n".repeat(65_536);
    let bytes = format!("\x1b[200~{text}\x1b[201~").into_bytes();
    let mut decoder = Decoder::default();
    let events: Vec<Event> = bytes.chunks(4096).flat_map(|piece| decoder.feed(piece)).collect();
    assert_eq!(events, [Event::Paste(text)]);
}

proptest! {
    #[test]
    fn pieces_make_no_difference(parts in prop::collection::vec(prop::sample::select(vec![
        "a", "ä", "🦀", "\x1b[A", "\x1b[1;5C", "\x1b[13;2u", "\x1b[<0;10;5M", "\r", "\x1b[200~x\ny\x1b[201~", "\x1bb", "\x1b[3~", "\x1b[I",
    ]), 0..20), cuts in prop::collection::vec(1usize..5, 1..40)) {
        let bytes = parts.concat().into_bytes();
        let whole = Decoder::default().feed(&bytes);
        let mut decoder = Decoder::default();
        let mut events = Vec::new();
        let (mut rest, mut cuts) = (bytes.as_slice(), cuts.iter().cycle());
        while !rest.is_empty() {
            let (piece, after) = rest.split_at(rest.len().min(*cuts.next().unwrap_or(&1)));
            events.extend(decoder.feed(piece));
            rest = after;
        }
        prop_assert_eq!(events, whole);
    }

    #[test]
    fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut decoder = Decoder::default();
        decoder.feed(&bytes);
        decoder.rest();
        decoder.rest();
        prop_assert_eq!(decoder.feed(b"\x1b[201~").len() <= 1, true);
        decoder.rest();
        prop_assert_eq!(decoder.feed(b"z"), vec![letter('z')]);
    }
}

#[test]
fn the_ground_that_the_terminal_names_is_no_key() {
    let grounds = [
        ("\x1b]11;rgb:ffff/ffff/ffff\x1b\\", Some(Ground::Light)),
        ("\x1b]11;rgb:fd/f6/e3\x07", Some(Ground::Light)),
        ("\x1b]11;rgb:1e1e/1e1e/2e2e\x07", Some(Ground::Dark)),
        ("\x1b]11;rgb://\x07", None),
        ("\x1b]11;rgb:ffffffffff/0/0\x07", None),
        ("\x1b]10;rgb:ffff/ffff/ffff\x07", None),
    ];
    for (answer, ground) in grounds {
        let mut decoder = Decoder::default();
        // It may come in two parts, and with keys around it.
        let (first, second) = answer.split_at(9);
        assert_eq!(decoder.feed(first.as_bytes()), vec![]);
        let events = decoder.feed(format!("{second}x").as_bytes());
        assert_eq!(events, vec![key(KeyCode::Char('x'), KeyModifiers::NONE)], "{answer:?}");
        assert_eq!(decoder.take_ground(), ground, "{answer:?}");
        assert_eq!(decoder.take_ground(), None);
    }
}
