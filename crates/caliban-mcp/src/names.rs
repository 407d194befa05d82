//! Names under which the model calls MCP tools: `mcp__server__tool`, as all providers accept them.

use std::collections::HashSet;

/// The longest name that all providers accept.
const NAME_CHARS: usize = 64;

/// Gives out names, no name twice. The same questions in the same order get the same names.
#[derive(Default)]
pub(crate) struct ToolNames {
    taken: HashSet<String>,
}

impl ToolNames {
    pub(crate) fn name(&mut self, server: &str, tool: &str) -> String {
        let full = format!("mcp__{server}__{tool}");
        let plain: String = full
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() || c == '_' || c == '-' { c } else { '_' })
            .collect();
        let mut name = if plain.len() <= NAME_CHARS { plain.clone() } else { marked(&plain, &full) };
        let mut round = 0;
        while !self.taken.insert(name.clone()) {
            round += 1;
            name = marked(&plain, &format!("{full} {round}"));
        }
        name
    }
}

/// Shortened, with a mark that depends on the whole.
fn marked(plain: &str, full: &str) -> String {
    // FNV-1a: stable over versions and machines, which `Hash` does not promise.
    let mark =
        full.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    let keep = plain.len().min(NAME_CHARS - 9);
    format!("{}_{mark:08x}", &plain[..keep])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_plain_short_and_different() {
        let mut names = ToolNames::default();
        assert_eq!(names.name("hub", "get_issue"), "mcp__hub__get_issue");
        assert_eq!(names.name("my hub", "get.issue/ä"), "mcp__my_hub__get_issue__");
        let again = names.name("my hub", "get.issue/ö");
        assert_eq!((&again[..24], again.len()), ("mcp__my_hub__get_issue__", 33));
        let long = names.name("hub", &"x".repeat(100));
        let longer = names.name("hub", &"x".repeat(101));
        assert_eq!((long.len(), longer.len(), long == longer), (64, 64, false));
        let mut others = ToolNames::default();
        others.name("hub", "a");
        assert_eq!(others.name("hub", &"x".repeat(100)), long);
    }
}
