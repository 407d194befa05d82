//! Bytes as lower-case hexadecimal digits, and back.

/// Two digits for each byte.
#[must_use]
pub fn encode(bytes: &[u8]) -> String {
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits.filter_map(|digit| char::from_digit(digit.into(), 16)).collect()
}

/// Exactly `N` bytes; none if it is anything else, upper-case digits included.
#[must_use]
pub fn decode<const N: usize>(text: &[u8]) -> Option<[u8; N]> {
    fn nibble(byte: u8) -> Option<u8> {
        match byte {
            b'0'..=b'9' => Some(byte - b'0'),
            b'a'..=b'f' => Some(byte - b'a' + 10),
            _ => None,
        }
    }
    if text.len() != N * 2 {
        return None;
    }
    let mut bytes = [0; N];
    for (slot, pair) in bytes.iter_mut().zip(text.chunks_exact(2)) {
        *slot = nibble(pair[0])? * 16 + nibble(pair[1])?;
    }
    Some(bytes)
}
