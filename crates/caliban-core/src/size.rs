//! Sizes as people write them: `512 MB`, `4 GB`.

/// The units, largest first. Of 1024 each, as memory is counted.
const UNITS: [(&str, u64); 4] = [("TB", 1 << 40), ("GB", 1 << 30), ("MB", 1 << 20), ("KB", 1 << 10)];

/// A size in the largest unit that leaves a whole number, else in bytes.
#[must_use]
pub fn in_words(bytes: u64) -> String {
    let unit = UNITS.iter().find(|(_, size)| bytes >= *size && bytes.is_multiple_of(*size));
    match unit {
        Some((name, size)) => format!("{} {name}", bytes / size),
        None => format!("{bytes} bytes"),
    }
}

/// Reads a size; none when it is no number with a unit, zero, or too large.
#[must_use]
pub fn parse(text: &str) -> Option<u64> {
    let text = text.trim();
    let (name, size) = UNITS.iter().find(|(name, _)| {
        text.len() > name.len() && text.is_char_boundary(text.len() - name.len()) && {
            text[text.len() - name.len()..].eq_ignore_ascii_case(name)
        }
    })?;
    let number: u64 = text[..text.len() - name.len()].trim_end().parse().ok()?;
    number.checked_mul(*size).filter(|bytes| *bytes > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_written() {
        for (text, bytes, words) in
            [("4GB", 4 << 30, "4 GB"), ("1536 mb", 1536 << 20, "1536 MB"), (" 2 TB ", 2 << 40, "2 TB")]
        {
            assert_eq!(parse(text), Some(bytes), "{text}");
            assert_eq!(in_words(bytes), words);
            assert_eq!(parse(words), Some(bytes));
        }
        assert_eq!(in_words(1000), "1000 bytes");
        for text in ["", "GB", "4", "0 GB", "-1 GB", "4.5 GB", "99999999999 TB", "é", "4 PB"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
