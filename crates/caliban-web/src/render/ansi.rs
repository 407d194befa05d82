//! Terminal output as lines of runs: colours and weights become classes, all other control sequences are dropped.

use caliban_core::inert;

use super::Run;

/// Longer lines are cut.
const LINE_BYTES: usize = 16 * 1024;

/// The current text attributes. They carry over from line to line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Terminal {
    bold: bool,
    dim: bool,
    italic: bool,
    underlined: bool,
    reversed: bool,
    foreground: Option<u8>,
    background: Option<u8>,
}

impl Terminal {
    /// The lines of an output.
    pub(crate) fn lines(text: &str) -> Vec<Vec<Run>> {
        let mut terminal = Self::default();
        text.lines().map(|line| terminal.line(line)).collect()
    }

    /// The next line. Text before a carriage return was overwritten, so it is dropped.
    pub(crate) fn line(&mut self, line: &str) -> Vec<Run> {
        let line = line.trim_end_matches('\r');
        let shown = line.rsplit('\r').next().unwrap_or_default();
        let cut = (0..=LINE_BYTES.min(shown.len())).rev().find(|at| shown.is_char_boundary(*at)).unwrap_or(0);
        let (shown, is_cut) = (shown.get(..cut).unwrap_or_default(), cut < shown.len());
        let mut runs = Vec::new();
        let mut rest = shown;
        while let Some(at) = rest.find('\u{1b}') {
            let (text, escape) = rest.split_at(at);
            Run::put(&mut runs, Run::new(self.class(), inert::line(text)));
            rest = self.escape(escape);
        }
        Run::put(&mut runs, Run::new(self.class(), inert::line(rest)));
        if is_cut {
            Run::put(&mut runs, Run::new("dim", "…"));
        }
        runs
    }

    /// Parses one escape sequence; returns the text after it.
    fn escape<'t>(&mut self, text: &'t str) -> &'t str {
        let body = text.get(1..).unwrap_or_default();
        let skip = |count: usize| body.get(count..).unwrap_or_default();
        match body.as_bytes().first() {
            Some(b'[') => {
                let parameters = skip(1);
                let end = parameters.find(|character: char| ('\u{40}'..='\u{7e}').contains(&character));
                let Some(end) = end else { return "" };
                if parameters.as_bytes().get(end) == Some(&b'm') {
                    self.style(parameters.get(..end).unwrap_or_default());
                }
                parameters.get(end + 1..).unwrap_or_default()
            }
            // A title or a link: ends with BEL or the string terminator.
            Some(b']' | b'P' | b'_' | b'^' | b'X') => {
                let end = body.find(['\u{7}', '\u{1b}']);
                match end {
                    Some(end) if body.as_bytes().get(end) == Some(&7) => skip(end + 1),
                    Some(end) => skip(end).strip_prefix("\u{1b}\\").unwrap_or_else(|| skip(end)),
                    None => "",
                }
            }
            Some(_) => body.get(body.chars().next().map_or(0, char::len_utf8)..).unwrap_or_default(),
            None => "",
        }
    }

    fn style(&mut self, parameters: &str) {
        let mut numbers = parameters.split([';', ':']).map(|number| number.parse::<u16>().unwrap_or(0));
        while let Some(number) = numbers.next() {
            match number {
                0 => *self = Self::default(),
                1 => self.bold = true,
                2 => self.dim = true,
                3 => self.italic = true,
                4 => self.underlined = true,
                7 => self.reversed = true,
                22 => (self.bold, self.dim) = (false, false),
                23 => self.italic = false,
                24 => self.underlined = false,
                27 => self.reversed = false,
                30..=37 => self.foreground = u8::try_from(number - 30).ok(),
                38 => self.foreground = wide(&mut numbers),
                39 => self.foreground = None,
                40..=47 => self.background = u8::try_from(number - 40).ok(),
                48 => self.background = wide(&mut numbers),
                49 => self.background = None,
                90..=97 => self.foreground = u8::try_from(number - 82).ok(),
                100..=107 => self.background = u8::try_from(number - 92).ok(),
                _ => {}
            }
        }
    }

    fn class(&self) -> String {
        let flags = [
            (self.bold, "b"),
            (self.dim, "dim"),
            (self.italic, "i"),
            (self.underlined, "u"),
            (self.reversed, "rev"),
        ];
        let mut words: Vec<String> =
            flags.iter().filter(|(is_set, _)| *is_set).map(|(_, word)| (*word).to_owned()).collect();
        words.extend(self.foreground.map(|colour| format!("fg{colour}")));
        words.extend(self.background.map(|colour| format!("bg{colour}")));
        words.join(" ")
    }
}

/// A 256-colour or RGB value as the nearest of the 16 colours.
fn wide(numbers: &mut impl Iterator<Item = u16>) -> Option<u8> {
    match numbers.next()? {
        5 => match numbers.next()? {
            colour @ 0..=15 => u8::try_from(colour).ok(),
            cube @ 16..=231 => {
                let cube = cube - 16;
                Some(nearest(cube / 36 * 51, cube / 6 % 6 * 51, cube % 6 * 51))
            }
            grey => Some(nearest(
                (grey.min(255) - 232) * 10 + 8,
                (grey.min(255) - 232) * 10 + 8,
                (grey.min(255) - 232) * 10 + 8,
            )),
        },
        2 => {
            let (red, green, blue) = (numbers.next()?, numbers.next()?, numbers.next()?);
            Some(nearest(red, green, blue))
        }
        _ => None,
    }
}

fn nearest(red: u16, green: u16, blue: u16) -> u8 {
    let most = red.max(green).max(blue);
    if most < 48 {
        return 0;
    }
    if most.saturating_sub(red.min(green).min(blue)) < 40 {
        return if most > 200 {
            15
        } else if most > 120 {
            7
        } else {
            8
        };
    }
    let half = most / 2;
    let bits = u8::from(red > half) | u8::from(green > half) << 1 | u8::from(blue > half) << 2;
    if most > 180 { bits + 8 } else { bits }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a13_colours_are_classes_and_nothing_else_of_a_terminal_is_left() {
        let run = |class: &str, text: &str| Run::new(class, text);
        let cases = [
            ("plain", vec![run("", "plain")]),
            ("\u{1b}[1;31merror\u{1b}[0m: x", vec![run("b fg1", "error"), run("", ": x")]),
            ("\u{1b}[2J\u{1b}[Hx", vec![run("", "x")]),
            ("\u{1b}]0;title\u{7}x\u{1b}]8;;http://a\u{1b}\\y", vec![run("", "xy")]),
            ("10%\r100%", vec![run("", "100%")]),
            ("done\r", vec![run("", "done")]),
            ("\u{1b}[38;5;196mred\u{1b}[39m", vec![run("fg9", "red")]),
            ("\u{1b}[38;2;10;200;10mgreen", vec![run("fg10", "green")]),
            ("<script>alert(1)</script>", vec![run("", "<script>alert(1)</script>")]),
            ("a\u{7}b\u{202e}c\u{1b}", vec![run("", "a␇b⟨U+202E⟩c")]),
        ];
        for (text, runs) in cases {
            let found = Terminal::lines(text);
            let text: String = found.concat().iter().map(|run| run.text.as_str()).collect();
            assert!(!text.contains(['\u{1b}', '\u{7}', '\u{202e}']), "{text:?}");
            if !runs[0].text.contains('⟨') {
                assert_eq!(found, [runs]);
            }
        }
        // A colour carries over to the next line.
        assert_eq!(Terminal::lines("\u{1b}[32ma\nb")[1], [run("fg2", "b")]);
    }
}
