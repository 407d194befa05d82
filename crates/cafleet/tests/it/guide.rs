//! The broker's reference page says what the program takes.

use std::path::Path;

use crate::usage::every_command;
use crate::world::World;

#[test]
fn the_guide_has_every_command_with_all_its_flags_and_no_others() {
    let world = World::new();
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/broker.md");
    let guide = std::fs::read_to_string(guide).expect("guide");
    let all = every_command(&world);
    // A group's own help says nothing that its commands' does not.
    let is_group =
        |path: &Vec<String>| all.iter().any(|other| other.len() > path.len() && other.starts_with(path));
    for verb in all.iter().filter(|path| !is_group(path)) {
        let name = verb.join(" ");
        let verb: Vec<&str> = verb.iter().map(String::as_str).collect();
        let row = guide.lines().find(|line| line.starts_with("| `") && line.contains(&format!("`{name}")));
        let row = row.unwrap_or_else(|| panic!("the guide does not have {name}"));
        let help = world.run(&[&verb[..], &["--help"]].concat()).out;
        let options =
            help.split("Options:").nth(1).and_then(|rest| rest.split("\n\n").next()).unwrap_or_default();
        // A flag leads its line; other flags may be named in the words about it.
        let mut takes: Vec<&str> = options
            .lines()
            .filter_map(|line| {
                let line = line.trim_start().trim_start_matches("-f, ");
                flags(line).next().filter(|flag| line.starts_with(flag))
            })
            .filter(|flag| *flag != "--json")
            .collect();
        let row = row.replace("\\|", "/");
        let mut told: Vec<&str> = row.split('|').nth(2).map(|cell| flags(cell).collect()).unwrap_or_default();
        takes.sort_unstable();
        told.sort_unstable();
        assert_eq!(told, takes, "{name}");
    }
}

/// The words that are long flags.
fn flags(text: &str) -> impl Iterator<Item = &str> {
    let is_flag = |word: &&str| {
        word.starts_with("--")
            && word.len() > 2
            && word.bytes().all(|byte| byte == b'-' || byte.is_ascii_lowercase())
    };
    text.split([' ', '\n', '`', ',']).filter(is_flag)
}

#[test]
fn the_guide_has_the_defaults_of_the_program() {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/broker.md");
    let guide = std::fs::read_to_string(guide).expect("guide");
    let page = caliban_store::broker::DEFAULT_PAGE;
    let prefix = caliban_store::broker::IdPrefix::MIN_LEN;
    for words in [
        format!("at most {page} messages"),
        format!("prefix of at least {prefix} characters"),
        "| `CAFLEET_MAX_TEXT_LEN` | 200 |".to_owned(),
        "A body has at most 1 MiB.".to_owned(),
    ] {
        assert!(guide.replace('\n', " ").contains(&words), "the guide does not say: {words}");
    }
}
