//! Names that people mean when they mistype one, where the provider cannot be asked. What is known of models is in
//! [`caliban_core::models`].

use caliban_core::models;

/// How many suggestions are made.
const MAX_SUGGESTIONS: usize = 3;
/// How alike two names must be, from 0 to 1.
const ALIKE: f64 = 0.75;

/// The known names that are like a mistyped one, the most alike first.
pub fn suggestions(model: &str) -> Vec<String> {
    close_matches(model, models::all().iter().map(|model| model.name.as_str()))
}

/// The names that are like a wanted one, the most alike first.
pub fn close_matches<'a>(wanted: &str, names: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let wanted = wanted.to_lowercase();
    let score = |name: &str| {
        let name = name.to_lowercase();
        // The tag or vendor is what people leave out: `llama3` for `llama3:8b`.
        let part = name.split([':', '/']).any(|part| part == wanted);
        if part { 1.0 } else { strsim::jaro_winkler(&wanted, &name) }
    };
    let mut scored: Vec<(f64, &str)> = names.into_iter().map(|name| (score(name), name)).collect();
    scored.retain(|(score, name)| *score >= ALIKE && !name.eq(&wanted.as_str()));
    scored.sort_by(|a, b| b.0.total_cmp(&a.0));
    scored.into_iter().take(MAX_SUGGESTIONS).map(|(_, name)| name.to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistyped_name_finds_its_neighbours() {
        assert_eq!(suggestions("claude-sonet-4-6")[0], "claude-sonnet-4-6");
        assert_eq!(suggestions("gpt5.5")[0], "gpt-5.5");
        assert_eq!(close_matches("llama3", ["qwen3:8b", "llama3:8b"]), ["llama3:8b"]);
        assert_eq!(suggestions("zzz"), Vec::<String>::new());
    }
}
