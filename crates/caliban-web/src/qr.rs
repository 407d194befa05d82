//! A link as a QR code, for the camera of a phone: as rows of modules for the page, as text for a terminal. Pure.

use qrcodegen::{QrCode, QrCodeEcc};

/// Width of the light margin that cameras need.
const MARGIN: usize = 4;

/// The QR code of a link: its dark modules, row by row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Code(Vec<Vec<bool>>);

impl Code {
    /// None when the link is too long for a code (2,953 bytes).
    #[must_use]
    pub fn of(link: &str) -> Option<Self> {
        let code = QrCode::encode_text(link, QrCodeEcc::Low).ok()?;
        let row = |y| (0..code.size()).map(|x| code.get_module(x, y)).collect();
        Some(Self((0..code.size()).map(row).collect()))
    }

    /// Rows of `1` (dark) and `0`, without the margin.
    pub(crate) fn rows(&self) -> Vec<String> {
        let bit = |is_dark: &bool| if *is_dark { '1' } else { '0' };
        self.0.iter().map(|row| row.iter().map(bit).collect()).collect()
    }

    /// Two rows of modules per line of text. The light modules are drawn: without colours that is right in a dark
    /// terminal.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let end = self.0.len() + 2 * MARGIN;
        // Outside of the code everything is light.
        let is_dark = |x: usize, y: usize| {
            let at = y.checked_sub(MARGIN).zip(x.checked_sub(MARGIN));
            at.is_some_and(|(y, x)| self.0.get(y).and_then(|row| row.get(x)).is_some_and(|is_dark| *is_dark))
        };
        let half = |x, y| match (is_dark(x, y), is_dark(x, y + 1)) {
            (false, false) => '█',
            (false, true) => '▀',
            (true, false) => '▄',
            (true, true) => ' ',
        };
        (0..end).step_by(2).map(|y| (0..end).map(|x| half(x, y)).collect()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_modules_of_a_known_link() {
        let code = Code::of("https://fleet.test/#t=0123").unwrap();
        let rows = code.rows();
        assert_eq!(rows, KNOWN);
        // The lines of text show the same code as the rows.
        let lines = code.lines();
        assert_eq!((lines.len(), lines.iter().map(|line| line.chars().count()).max()), (17, Some(33)));
        assert!(lines[0].chars().chain(lines[1].chars()).all(|char| char == '█'), "{lines:#?}");
        let first: String = lines[2].chars().skip(4).take(25).collect();
        let wanted: String = std::iter::zip(rows[0].chars(), rows[1].chars())
            .map(|two| match two {
                ('0', '0') => '█',
                ('0', _) => '▀',
                (_, '0') => '▄',
                _ => ' ',
            })
            .collect();
        assert_eq!(first, wanted);
        assert_eq!(Code::of(&"x".repeat(3000)), None);
    }

    const KNOWN: [&str; 25] = [
        "1111111010011101101111111",
        "1000001001100100101000001",
        "1011101000101000101011101",
        "1011101011001101001011101",
        "1011101011001011101011101",
        "1000001010101000101000001",
        "1111111010101010101111111",
        "0000000011110011000000000",
        "1000101110000010011111001",
        "1000000100101111100011010",
        "1011011001100101101011100",
        "0100110011110011010100110",
        "0110001011011000111101111",
        "1011100110101101100010010",
        "0001101011111011100111100",
        "0010110010100000000110110",
        "1100101110000011111111100",
        "0000000010111000100010000",
        "1111111010010010101010000",
        "1000001001100011100011111",
        "1011101011000010111111100",
        "1011101001111100011100111",
        "1011101001111000111001010",
        "1000001001010000000111110",
        "1111111010000011011000111",
    ];
}
