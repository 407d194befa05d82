//! Where the zero-width joiner and non-joiner do what Unicode made them for, and so can be seen.
//!
//! Emoji that are one picture; Arabic letters that would otherwise join; Indic letters around a virama. The rules for
//! letters are the contexts A1, A2 and B of UAX #31. Anywhere else a joiner changes nothing that a reader could see,
//! and two names that differ by it would look alike: there it is none of ours to let through.

const JOINER: char = '\u{200D}';
const NON_JOINER: char = '\u{200C}';
const BENGALI_VIRAMA: char = '\u{09CD}';
/// A sign that makes the emoji before it a picture.
const EMOJI_STYLE: char = '\u{FE0F}';

/// Whether this is one of the two.
pub(super) fn is_joiner(c: char) -> bool {
    matches!(c, JOINER | NON_JOINER)
}

/// Whether what follows this character matters for a joiner before it.
pub(super) fn needs_more(c: char) -> bool {
    is_arabic_mark(c) || c == BENGALI_VIRAMA
}

/// Whether the joiner between these two texts is meant and has an effect.
pub(super) fn joins(before: &str, joiner: char, after: &str) -> bool {
    match joiner {
        JOINER => joins_emoji(before, after) || joins_indic(before, joiner, after),
        NON_JOINER => parts_arabic(before, after) || joins_indic(before, joiner, after),
        _ => false,
    }
}

/// One picture of several: what can stand after a joiner in the sequences that Unicode recommends, behind an emoji.
fn joins_emoji(before: &str, after: &str) -> bool {
    let is_addition = |c: &char| *c == EMOJI_STYLE || matches!(c, '\u{1F3FB}'..='\u{1F3FF}');
    let first = before.chars().rev().find(|c| !is_addition(c));
    first.is_some_and(is_emoji) && after.chars().next().is_some_and(is_joined_emoji)
}

fn is_emoji(c: char) -> bool {
    matches!(c, '\u{1F300}'..='\u{1F3FA}' | '\u{1F400}'..='\u{1F64F}' | '\u{1F680}'..='\u{1F6FF}'
        | '\u{1F900}'..='\u{1FAFF}' | '\u{2600}'..='\u{27BF}' | '\u{2B1B}')
}

fn is_joined_emoji(c: char) -> bool {
    matches!(c,
        '\u{1F466}'..='\u{1F469}' | '\u{1F9D1}' | '\u{1F9D2}' | '\u{1F91D}' // people, and hands held
        | '\u{2764}' | '\u{1F48B}'                                         // hearts and kisses
        | '\u{2640}' | '\u{2642}' | '\u{26A7}'                             // signs
        | '\u{1F9B0}'..='\u{1F9B3}'                                        // hair
        | '\u{2695}' | '\u{2696}' | '\u{2708}' | '\u{1F33E}' | '\u{1F373}' | '\u{1F37C}' | '\u{1F384}'
        | '\u{1F393}' | '\u{1F3A4}' | '\u{1F3A8}' | '\u{1F3EB}' | '\u{1F3ED}' | '\u{1F4BB}' | '\u{1F4BC}'
        | '\u{1F527}' | '\u{1F52C}' | '\u{1F680}' | '\u{1F692}' | '\u{1F9AF}' | '\u{1F9BC}' | '\u{1F9BD}'
        | '\u{1FA70}'                                                      // what people do
        | '\u{2194}' | '\u{2195}' | '\u{27A1}'                             // where they turn
        | '\u{1F308}' | '\u{2620}' | '\u{1F5E8}' | '\u{2B1B}' | '\u{2744}' | '\u{1F525}' | '\u{1FA79}'
        | '\u{1F4A8}' | '\u{1F4AB}' | '\u{1F32B}' | '\u{1F7E9}' | '\u{1F7EB}' | '\u{1F9BA}'
        | '\u{1F4A5}'                                                      // flags, animals, faces
    )
}

/// A non-joiner between two Arabic letters that would join without it (A1).
fn parts_arabic(before: &str, after: &str) -> bool {
    let before = before.chars().rev().find(|c| !is_arabic_mark(*c));
    let after = after.chars().find(|c| !is_arabic_mark(*c));
    before.is_some_and(|c| arabic(c) == Some(Joins::Both)) && after.and_then(arabic).is_some()
}

#[derive(PartialEq, Eq)]
enum Joins {
    /// With the letters before and after it.
    Both,
    /// Only with the one before it.
    Before,
}

fn is_arabic_mark(c: char) -> bool {
    matches!(c, '\u{0610}'..='\u{061A}' | '\u{064B}'..='\u{065F}' | '\u{0670}' | '\u{06D6}'..='\u{06DC}'
        | '\u{06DF}'..='\u{06E4}' | '\u{06E7}' | '\u{06E8}' | '\u{06EA}'..='\u{06ED}')
}

/// How a letter of the Arabic block joins; `None` for what does not, and for other characters.
fn arabic(c: char) -> Option<Joins> {
    match c {
        '\u{0622}'..='\u{0625}'
        | '\u{0627}'
        | '\u{0629}'
        | '\u{062F}'..='\u{0632}'
        | '\u{0648}'
        | '\u{0671}'..='\u{0673}'
        | '\u{0675}'..='\u{0677}'
        | '\u{0688}'..='\u{0699}'
        | '\u{06C0}'
        | '\u{06C3}'..='\u{06CB}'
        | '\u{06CD}'
        | '\u{06CF}'
        | '\u{06D2}'
        | '\u{06D3}'
        | '\u{06D5}'
        | '\u{06EE}'
        | '\u{06EF}' => Some(Joins::Before),
        '\u{0620}'
        | '\u{0626}'
        | '\u{0628}'
        | '\u{062A}'..='\u{062E}'
        | '\u{0633}'..='\u{063F}'
        | '\u{0641}'..='\u{0647}'
        | '\u{0649}'
        | '\u{064A}'
        | '\u{066E}'
        | '\u{066F}'
        | '\u{0678}'..='\u{0687}'
        | '\u{069A}'..='\u{06BF}'
        | '\u{06C1}'
        | '\u{06C2}'
        | '\u{06CC}'
        | '\u{06CE}'
        | '\u{06D0}'
        | '\u{06D1}'
        | '\u{06FA}'..='\u{06FC}'
        | '\u{06FF}' => Some(Joins::Both),
        _ => None,
    }
}

/// A joiner or non-joiner behind a letter and its virama (A2, B); and the one Bengali spelling that has it before the
/// virama (ra with ya).
fn joins_indic(before: &str, joiner: char, after: &str) -> bool {
    let mut back = before.chars().rev();
    let (last, second, third) = (back.next(), back.next(), back.next());
    let next = after.chars().next();
    if joiner == JOINER && last == Some('\u{09B0}') && after.starts_with("\u{09CD}\u{09AF}") {
        return true;
    }
    let Some(script) = last.filter(|c| is_virama(*c)).and_then(script) else { return false };
    // A dot below may stand between the letter and its virama.
    let letter = if second.is_some_and(is_nukta) { third } else { second };
    let is_letter = |c: char| is_indic_letter(c) && self::script(c) == Some(script);
    letter.is_some_and(is_letter)
        && match joiner {
            NON_JOINER => next.is_some_and(is_letter),
            // Not before a vowel sign, which would hide it.
            _ => next.is_none_or(|c| self::script(c).is_none() || is_letter(c)),
        }
}

/// The scripts from Devanagari to Sinhala have blocks of 128 characters that are laid out alike.
fn script(c: char) -> Option<u32> {
    let number = u32::from(c);
    (0x0900..0x0E00).contains(&number).then_some(number / 0x80)
}

fn is_virama(c: char) -> bool {
    script(c).is_some() && (u32::from(c) % 0x80 == 0x4D || c == '\u{0DCA}')
}

fn is_nukta(c: char) -> bool {
    script(c).is_some() && u32::from(c) % 0x80 == 0x3C
}

/// Letters, and none of the signs and digits among them.
fn is_indic_letter(c: char) -> bool {
    let place = u32::from(c) % 0x80;
    match script(c) {
        // Sinhala has a layout of its own.
        Some(0x1B) => matches!(c, '\u{0D85}'..='\u{0DC6}'),
        Some(_) => matches!(place, 0x05..=0x39 | 0x58..=0x61 | 0x71..=0x7F),
        None => false,
    }
}
