//! The bytes of a terminal as events. Pure: that nothing came for a while is told by [`Decoder::rest`].
//!
//! Of its own, because a paste whose end got lost must not swallow every key from then on.

use std::{collections::VecDeque, time::Duration};

use crossterm::event::{
    Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers, MouseButton, MouseEvent, MouseEventKind,
};

use crate::theme::Ground;

/// How long the rest of a sequence may take. What is there by then is keys.
const SEQUENCE_WITHIN: Duration = Duration::from_millis(25);
/// How long a paste may pause. Its end got lost, then.
const PASTE_WITHIN: Duration = Duration::from_secs(1);
/// More bytes at once than a key has: after a paste without its end, they belong to it.
const TYPED: usize = 32;
/// A string of the terminal (its title, a clipboard) that is longer is none.
const STRING: usize = 64 * 1024;
const PASTE: &[u8] = b"\x1b[200~";
const PASTE_END: &[u8] = b"\x1b[201~";

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Decoder {
    /// What is not decoded yet.
    bytes: VecDeque<u8>,
    mode: DecodeMode,
    /// In so many of them there is no end of a paste.
    searched: usize,
    /// What the terminal said that its letters stand on.
    ground: Option<Ground>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum DecodeMode {
    #[default]
    Keys,
    /// What comes is pasted, up to its end.
    Paste,
    /// A paste had no end: what comes at once and is more than a key, or has that end, still belongs to it.
    Late,
}

/// What the bytes begin with.
enum DecodedInput {
    /// So many bytes, which are this.
    Event(usize, Event),
    /// So many bytes, which mean nothing to us.
    Nothing(usize),
    /// More has to come.
    More,
}

impl Decoder {
    /// Takes bytes that came together.
    pub(super) fn feed(&mut self, bytes: &[u8]) -> Vec<Event> {
        let is_late = self.mode == DecodeMode::Late;
        if is_late {
            let is_paste = bytes.len() > TYPED || position(bytes, PASTE_END).is_some();
            self.mode = if is_paste { DecodeMode::Paste } else { DecodeMode::Keys };
        }
        self.bytes.extend(bytes);
        let mut events = Vec::new();
        while !self.bytes.is_empty() {
            if self.mode == DecodeMode::Paste {
                let Some(text) = self.pasted(is_late) else { break };
                events.push(Event::Paste(text));
                continue;
            }
            let bytes = self.bytes.make_contiguous();
            if bytes.starts_with(PASTE) {
                self.bytes.drain(..PASTE.len());
                self.mode = DecodeMode::Paste;
                continue;
            }
            match first(bytes) {
                DecodedInput::Event(count, event) => {
                    self.bytes.drain(..count);
                    events.push(event);
                }
                DecodedInput::Nothing(count) => {
                    self.ground = bytes.get(..count).and_then(ground).or(self.ground);
                    self.bytes.drain(..count);
                }
                DecodedInput::More => break,
            }
        }
        events
    }

    /// What the terminal said that its letters stand on, once.
    pub(super) fn take_ground(&mut self) -> Option<Ground> {
        self.ground.take()
    }

    /// What was pasted, when its end is there. Of a paste whose end got lost, whatever is there.
    fn pasted(&mut self, is_late: bool) -> Option<String> {
        let bytes = self.bytes.make_contiguous();
        // Its end may have come in two parts.
        let from = self.searched.saturating_sub(PASTE_END.len());
        let end = position(bytes.get(from..)?, PASTE_END).map(|at| from + at);
        self.searched = if end.is_some() || is_late { 0 } else { bytes.len() };
        let (count, more) = match end {
            Some(at) => (at, PASTE_END.len()),
            None if is_late => (bytes.len(), 0),
            None => return None,
        };
        let text = String::from_utf8_lossy(bytes.get(..count)?).into_owned();
        self.bytes.drain(..count + more);
        self.mode = if end.is_some() { DecodeMode::Keys } else { DecodeMode::Late };
        Some(text)
    }

    /// How long to wait for more before [`Self::rest`].
    pub(super) fn patience(&self) -> Option<Duration> {
        match self.mode {
            DecodeMode::Paste => Some(PASTE_WITHIN),
            DecodeMode::Keys | DecodeMode::Late => (!self.bytes.is_empty()).then_some(SEQUENCE_WITHIN),
        }
    }

    /// Nothing came for that long: what is there is all there is.
    pub(super) fn rest(&mut self) -> Vec<Event> {
        let bytes = Vec::from(std::mem::take(&mut self.bytes));
        self.searched = 0;
        if self.mode == DecodeMode::Paste {
            self.mode = DecodeMode::Late;
            return vec![Event::Paste(String::from_utf8_lossy(&bytes).into_owned())];
        }
        match bytes.as_slice() {
            [0x1b] => vec![key(KeyCode::Esc, KeyModifiers::NONE)],
            // Alt and the key that begins a sequence.
            [0x1b, byte @ (b'[' | b']' | b'O' | b'P' | b'_' | b'^')] => {
                vec![with_alt(letter(char::from(*byte)))]
            }
            _ => Vec::new(),
        }
    }
}

fn position(bytes: &[u8], part: &[u8]) -> Option<usize> {
    bytes.windows(part.len()).position(|window| window == part)
}

fn key(code: KeyCode, modifiers: KeyModifiers) -> Event {
    Event::Key(KeyEvent::new(code, modifiers))
}

fn letter(character: char) -> Event {
    let shift = if character.is_uppercase() { KeyModifiers::SHIFT } else { KeyModifiers::NONE };
    key(KeyCode::Char(character), shift)
}

fn with_alt(event: Event) -> Event {
    match event {
        Event::Key(key) => Event::Key(KeyEvent { modifiers: key.modifiers | KeyModifiers::ALT, ..key }),
        other => other,
    }
}

fn first(bytes: &[u8]) -> DecodedInput {
    match bytes {
        [] | [0x1b] => DecodedInput::More,
        [0x1b, 0x1b, ..] => DecodedInput::Event(1, key(KeyCode::Esc, KeyModifiers::NONE)),
        [0x1b, b'[', rest @ ..] => csi(rest),
        [0x1b, b'O', rest @ ..] => match rest.first() {
            None => DecodedInput::More,
            Some(last) => match by_letter(*last) {
                Some(code) => DecodedInput::Event(3, key(code, KeyModifiers::NONE)),
                None => DecodedInput::Nothing(3),
            },
        },
        [0x1b, b']' | b'P' | b'_' | b'^', rest @ ..] => string(rest),
        [0x1b, rest @ ..] => match plain(rest) {
            DecodedInput::Event(count, event) => DecodedInput::Event(count + 1, with_alt(event)),
            DecodedInput::Nothing(count) => DecodedInput::Nothing(count + 1),
            DecodedInput::More => DecodedInput::More,
        },
        _ => plain(bytes),
    }
}

/// A key without a sequence.
fn plain(bytes: &[u8]) -> DecodedInput {
    let Some(&byte) = bytes.first() else { return DecodedInput::More };
    let control = |character: char| key(KeyCode::Char(character), KeyModifiers::CONTROL);
    let event = match byte {
        0 => control(' '),
        b'\r' => key(KeyCode::Enter, KeyModifiers::NONE),
        b'\t' => key(KeyCode::Tab, KeyModifiers::NONE),
        0x7f => key(KeyCode::Backspace, KeyModifiers::NONE),
        0x01..=0x1a => control(char::from(byte - 1 + b'a')),
        0x1b..=0x1f => control(char::from(byte - 0x1b + b'3')),
        _ => return character(bytes),
    };
    DecodedInput::Event(1, event)
}

/// A character of one to four bytes.
fn character(bytes: &[u8]) -> DecodedInput {
    let whole = bytes.get(..bytes.len().min(4)).unwrap_or(bytes);
    let text = match std::str::from_utf8(whole) {
        Ok(text) => text,
        Err(error) if error.valid_up_to() > 0 => {
            std::str::from_utf8(&whole[..error.valid_up_to()]).unwrap_or_default()
        }
        Err(error) => return error.error_len().map_or(DecodedInput::More, DecodedInput::Nothing),
    };
    match text.chars().next() {
        Some(character) => DecodedInput::Event(character.len_utf8(), letter(character)),
        None => DecodedInput::More,
    }
}

/// The answer to "what do letters stand on": `ESC ] 11 ; rgb:RRRR/GGGG/BBBB`, with one to four digits for each.
fn ground(sequence: &[u8]) -> Option<Ground> {
    let text = std::str::from_utf8(sequence.strip_prefix(b"\x1b]11;rgb:")?).ok()?;
    let text = text.trim_end_matches(['\x07', '\x1b', '\\']);
    let mut parts = text.split('/').map(|digits| {
        let most = 16_u32.checked_pow(u32::try_from(digits.len()).ok()?)?.checked_sub(1)?;
        Some(f64::from(u32::from_str_radix(digits, 16).ok()?) / f64::from(most))
    });
    let (red, green, blue) = (parts.next()??, parts.next()??, parts.next()??);
    let brightness = 0.2126 * red + 0.7152 * green + 0.0722 * blue;
    Some(if brightness > 0.5 { Ground::Light } else { Ground::Dark })
}

/// A string of the terminal. Only one is asked for; see [`ground`].
fn string(rest: &[u8]) -> DecodedInput {
    let end = rest.iter().position(|byte| *byte == 0x07).map(|at| at + 1);
    let end = end.or_else(|| position(rest, b"\x1b\\").map(|at| at + 2));
    match end {
        Some(end) => DecodedInput::Nothing(end + 2),
        None if rest.len() > STRING => DecodedInput::Nothing(2),
        None => DecodedInput::More,
    }
}

/// What stands behind `ESC [`.
fn csi(rest: &[u8]) -> DecodedInput {
    // The mouse in the old way: three bytes of any value. We do not ask for it.
    if rest.first() == Some(&b'M') {
        return if rest.len() < 4 { DecodedInput::More } else { DecodedInput::Nothing(6) };
    }
    let Some(end) = rest.iter().position(|byte| (0x40..=0x7e).contains(byte)) else {
        return DecodedInput::More;
    };
    let count = end + 3;
    let is_foreign = rest[..end].iter().any(|byte| !(0x20..=0x3f).contains(byte));
    let (arguments, last) = (std::str::from_utf8(&rest[..end]).unwrap_or_default(), rest[end]);
    if is_foreign {
        // A sequence that was cut off, and what came after it.
        return DecodedInput::Nothing(2);
    }
    let event = match (arguments.strip_prefix('<'), last) {
        (Some(report), b'M' | b'm') => mouse(report, last == b'm'),
        _ => sequence(arguments, last),
    };
    event.map_or(DecodedInput::Nothing(count), |event| DecodedInput::Event(count, event))
}

fn sequence(arguments: &str, last: u8) -> Option<Event> {
    let mut numbers = arguments.split(';');
    let first = numbers.next().unwrap_or_default();
    let code: u32 = first.split(':').next().and_then(|code| code.parse().ok()).unwrap_or(1);
    let (modifiers, kind) = modifiers(numbers.next().unwrap_or_default());
    let code = match last {
        b'I' => return Some(Event::FocusGained),
        b'O' => return Some(Event::FocusLost),
        b'Z' => return Some(key(KeyCode::BackTab, KeyModifiers::SHIFT)),
        // What other programs send for keys that have no sequence: 27, modifiers, code.
        b'~' if code == 27 => by_code(numbers.next()?.parse().ok()?, modifiers)?,
        b'~' => by_number(code)?,
        b'u' => by_code(code, modifiers)?,
        _ => by_letter(last)?,
    };
    Some(Event::Key(KeyEvent::new_with_kind(code, modifiers, kind)))
}

/// `5` or `5:2`: one more than the bits of the modifiers, and whether the key is pressed, repeated or released.
fn modifiers(text: &str) -> (KeyModifiers, KeyEventKind) {
    let (mask, kind) = text.split_once(':').unwrap_or((text, ""));
    let bits = mask.parse::<u16>().unwrap_or(1).saturating_sub(1);
    let all = [
        (1, KeyModifiers::SHIFT),
        (2, KeyModifiers::ALT),
        (4, KeyModifiers::CONTROL),
        (8, KeyModifiers::SUPER),
    ];
    let held = all.into_iter().filter(|(bit, _)| bits & bit != 0);
    let held = held.fold(KeyModifiers::NONE, |all, (_, modifier)| all | modifier);
    let kind = match kind {
        "2" => KeyEventKind::Repeat,
        "3" => KeyEventKind::Release,
        _ => KeyEventKind::Press,
    };
    (held, kind)
}

fn by_letter(letter: u8) -> Option<KeyCode> {
    Some(match letter {
        b'A' => KeyCode::Up,
        b'B' => KeyCode::Down,
        b'C' => KeyCode::Right,
        b'D' => KeyCode::Left,
        b'F' => KeyCode::End,
        b'H' => KeyCode::Home,
        b'M' => KeyCode::Enter,
        b'P'..=b'S' => KeyCode::F(letter - b'P' + 1),
        _ => return None,
    })
}

fn by_number(number: u32) -> Option<KeyCode> {
    Some(match number {
        1 | 7 => KeyCode::Home,
        2 => KeyCode::Insert,
        3 => KeyCode::Delete,
        4 | 8 => KeyCode::End,
        5 => KeyCode::PageUp,
        6 => KeyCode::PageDown,
        11..=15 => KeyCode::F(u8::try_from(number - 10).ok()?),
        17..=21 => KeyCode::F(u8::try_from(number - 11).ok()?),
        23..=24 => KeyCode::F(u8::try_from(number - 12).ok()?),
        _ => return None,
    })
}

/// A key by its character; those of the number pad and of movement have codes of their own.
fn by_code(code: u32, modifiers: KeyModifiers) -> Option<KeyCode> {
    Some(match code {
        9 if modifiers.contains(KeyModifiers::SHIFT) => KeyCode::BackTab,
        9 => KeyCode::Tab,
        13 | 57414 => KeyCode::Enter,
        27 => KeyCode::Esc,
        8 | 127 => KeyCode::Backspace,
        57399..=57408 => KeyCode::Char(char::from_digit(code - 57399, 10)?),
        57409..=57413 => {
            KeyCode::Char(b"./*-+".get(usize::try_from(code - 57409).ok()?).map(|c| char::from(*c))?)
        }
        57415 => KeyCode::Char('='),
        57416 => KeyCode::Char(','),
        57417 => KeyCode::Left,
        57418 => KeyCode::Right,
        57419 => KeyCode::Up,
        57420 => KeyCode::Down,
        57421 => KeyCode::PageUp,
        57422 => KeyCode::PageDown,
        57423 => KeyCode::Home,
        57424 => KeyCode::End,
        57425 => KeyCode::Insert,
        57426 => KeyCode::Delete,
        // Modifiers alone, media keys.
        57344..=63743 => return None,
        _ => KeyCode::Char(char::from_u32(code)?),
    })
}

/// `button;column;row`, counted from 1.
fn mouse(report: &str, is_released: bool) -> Option<Event> {
    let mut numbers = report.split(';').map(|number| number.parse::<u16>().ok());
    let (button, column, row) = (numbers.next()??, numbers.next()??, numbers.next()??);
    let kind = match (button & 0b1110_0011, is_released) {
        (0, false) => MouseEventKind::Down(MouseButton::Left),
        (0, true) => MouseEventKind::Up(MouseButton::Left),
        (32, _) => MouseEventKind::Drag(MouseButton::Left),
        (64, _) => MouseEventKind::ScrollUp,
        (65, _) => MouseEventKind::ScrollDown,
        _ => return None,
    };
    let (column, row) = (column.saturating_sub(1), row.saturating_sub(1));
    Some(Event::Mouse(MouseEvent { kind, column, row, modifiers: KeyModifiers::NONE }))
}

#[cfg(test)]
mod tests;
