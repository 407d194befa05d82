//! Colours by meaning: light or dark ground, and as many colours as the terminal has. Never colour alone: whatever a
//! colour says, a word or a sign says too.

use ratatui::style::{Color, Modifier, Style};

/// How many colours there are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Depth {
    /// None, and words instead of signs: for a screen reader. Nothing moves by itself.
    Words,
    /// None (`NO_COLOR`): bold, dim and underlined only.
    #[default]
    None,
    /// The terminal's own sixteen.
    Sixteen,
    /// The fixed palette of 256.
    Indexed,
    /// All.
    True,
}

/// What text stands on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Ground {
    /// Bright letters on a dark ground.
    #[default]
    Dark,
    /// Dark letters on a light ground.
    Light,
}

/// The looks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Theme {
    /// How many colours.
    pub depth: Depth,
    /// On what.
    pub ground: Ground,
}

/// What a text is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TextRole {
    Text,
    Strong,
    Dim,
    Accent,
    User,
    Good,
    Bad,
    Warn,
    Heading,
    Code,
    Link,
    Added,
    Removed,
    Keyword,
    Literal,
    Number,
    Comment,
    Function,
    Type,
    Chosen,
}

/// Dark, light, one of sixteen.
type Tint = ([u8; 3], [u8; 3], Color);

const GREY: Tint = ([0x9a, 0xa0, 0xa6], [0x5f, 0x63, 0x68], Color::Reset);
const BLUE: Tint = ([0x7a, 0xb7, 0xff], [0x0b, 0x57, 0xc2], Color::Blue);
const CYAN: Tint = ([0x67, 0xd4, 0xd0], [0x00, 0x6a, 0x70], Color::Cyan);
const GREEN: Tint = ([0x86, 0xd6, 0x8a], [0x1b, 0x6e, 0x2a], Color::Green);
const RED: Tint = ([0xff, 0x8a, 0x80], [0xb3, 0x1b, 0x1b], Color::Red);
const AMBER: Tint = ([0xf2, 0xc1, 0x5e], [0x7a, 0x53, 0x00], Color::Yellow);
const VIOLET: Tint = ([0xd1, 0xa8, 0xff], [0x75, 0x2d, 0xb5], Color::Magenta);

impl Theme {
    /// What marks a line: a sign, or the word for it.
    pub(crate) fn mark(self, sign: &'static str, word: &'static str) -> &'static str {
        if self.depth == Depth::Words { word } else { sign }
    }

    /// How a text of this role looks.
    pub(crate) fn style(self, role: TextRole) -> Style {
        let (tint, modifier) = match role {
            TextRole::Text => (None, Modifier::empty()),
            TextRole::Strong => (None, Modifier::BOLD),
            TextRole::Dim | TextRole::Comment => (Some(GREY), Modifier::DIM),
            TextRole::Accent => (Some(BLUE), Modifier::empty()),
            TextRole::User => (Some(CYAN), Modifier::BOLD),
            TextRole::Good | TextRole::Literal | TextRole::Added => (Some(GREEN), Modifier::empty()),
            TextRole::Bad | TextRole::Removed => (Some(RED), Modifier::empty()),
            TextRole::Warn => (Some(AMBER), Modifier::empty()),
            TextRole::Heading => (Some(BLUE), Modifier::BOLD),
            TextRole::Code | TextRole::Function => (Some(CYAN), Modifier::empty()),
            TextRole::Link => (Some(BLUE), Modifier::UNDERLINED),
            TextRole::Keyword => (Some(VIOLET), Modifier::empty()),
            TextRole::Number => (Some(AMBER), Modifier::empty()),
            TextRole::Type => (Some(BLUE), Modifier::empty()),
            TextRole::Chosen => (None, Modifier::REVERSED),
        };
        let style = Style::new();
        if self.depth == Depth::Words {
            return style;
        }
        match (tint.map(|tint| self.colour(tint)), self.depth) {
            // Grey is a colour where there are colours, and dim letters where there are none.
            (Some(colour), Depth::Indexed | Depth::True) => {
                style.fg(colour).add_modifier(modifier.difference(Modifier::DIM))
            }
            (Some(colour), Depth::Sixteen) => style.fg(colour).add_modifier(modifier),
            _ => style.add_modifier(modifier),
        }
    }

    fn colour(self, (dark, light, named): Tint) -> Color {
        let [red, green, blue] = match self.ground {
            Ground::Dark => dark,
            Ground::Light => light,
        };
        match self.depth {
            Depth::True => Color::Rgb(red, green, blue),
            Depth::Indexed => Color::Indexed(nearest(red, green, blue)),
            Depth::Sixteen | Depth::None | Depth::Words => named,
        }
    }
}

/// The nearest of the 6×6×6 cube.
fn nearest(red: u8, green: u8, blue: u8) -> u8 {
    let step = |value: u8| -> u8 {
        match value {
            0..48 => 0,
            48..115 => 1,
            _ => (value - 35) / 40,
        }
    };
    16 + 36 * step(red) + 6 * step(green) + step(blue)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn luminance([r, g, b]: [u8; 3]) -> f64 {
        let channel = |value: u8| {
            let value = f64::from(value) / 255.0;
            if value <= 0.03928 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
        };
        0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b)
    }

    fn contrast(one: [u8; 3], other: [u8; 3]) -> f64 {
        let (one, other) = (luminance(one), luminance(other));
        (one.max(other) + 0.05) / (one.min(other) + 0.05)
    }

    #[test]
    fn t28_every_colour_can_be_read_on_its_ground() {
        for (dark, light, _) in [GREY, BLUE, CYAN, GREEN, RED, AMBER, VIOLET] {
            for ground in [[0xff, 0xff, 0xff], [0xfd, 0xf6, 0xe3]] {
                assert!(
                    contrast(light, ground) >= 4.5,
                    "{light:?} on {ground:?}: {}",
                    contrast(light, ground)
                );
            }
            for ground in [[0, 0, 0], [0x28, 0x2c, 0x34]] {
                assert!(contrast(dark, ground) >= 4.5, "{dark:?} on {ground:?}: {}", contrast(dark, ground));
            }
        }
    }

    #[test]
    fn no_colour_means_none() {
        let theme = Theme { depth: Depth::None, ground: Ground::Dark };
        for role in [TextRole::Bad, TextRole::Dim, TextRole::Keyword, TextRole::Heading] {
            assert_eq!(theme.style(role).fg, None);
        }
    }
}
