//! The fence (a17): what a command can reach that nobody has approved. Through the program, with real processes, sockets and
//! files outside.

mod adversary;
mod background;
mod denials;
mod generated;
mod generated_bulk;
mod git_files;
mod held;
mod hostile;
mod limits;
mod links;
mod network;
mod programs;
mod rules;
mod special_projects;
mod swapped;
mod tools;
mod words;

use std::{os::unix::fs::MetadataExt as _, path::Path};

use serde_json::{Value, json};
use testkit::{script::Script, script::ScriptStep, text, tool};

use crate::place::Place;

/// `caliban -p` in this mode, with these calls of Bash one after the other.
fn run(mode: &str, commands: &[&str]) -> Place {
    run_with(mode, &commands.iter().map(|command| json!({"command": command})).collect::<Vec<_>>(), &[])
}

fn run_with(mode: &str, inputs: &[Value], flags: &[&str]) -> Place {
    let place = Place::new(script(inputs));
    go(&place, mode, flags);
    place
}

fn script(inputs: &[Value]) -> Script {
    let calls: Vec<ScriptStep> = inputs.iter().map(|input| tool("Bash", input.clone())).collect();
    Script { steps: calls.into_iter().chain([text("done")]).collect() }
}

fn go(place: &Place, mode: &str, flags: &[&str]) {
    let flags = ["--permission-mode", mode].into_iter().chain(flags.iter().copied());
    let output = place.ask("go", flags);
    // 3: some calls were refused.
    assert!(matches!(output.code, 0 | 3), "{output:?}");
}

/// What came of the calls: the fence, the text, the exit code; of a refused one the decision and the reason.
fn results(place: &Place) -> Vec<(String, String, Option<i64>)> {
    let mut fences: Vec<(String, String)> = Vec::new();
    let mut found = Vec::new();
    for record in place.transcript() {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        match record["event"].as_str() {
            Some("call_started") => {
                let fence = record["decision"]["fence"].as_str().unwrap_or("none");
                fences.push((text(&record["id"]), fence.to_owned()));
            }
            Some("call_ended") => {
                let id = text(&record["id"]);
                let fence = fences.iter().find(|(known, _)| *known == id).unwrap().1.clone();
                found.push((fence, text(&record["content"][0]["text"]), record["exit_code"].as_i64()));
            }
            Some("call_refused") => {
                let decision = &record["decision"];
                found.push((text(&decision["verdict"]), text(&decision["why"]), None));
            }
            _ => {}
        }
    }
    found
}

/// The only result.
fn result(place: &Place) -> (String, String, Option<i64>) {
    let mut results = results(place);
    assert_eq!(results.len(), 1, "{results:?}");
    results.remove(0)
}

fn settings(place: &Place, more: &str) {
    let path = place.env.config().join("caliban/settings.toml");
    let text = place.env.read(&path);
    place.env.write(path, format!("{more}{text}"));
}

/// Everything in a directory: names, kinds, modes, owners, and contents or where a link leads.
fn picture(directory: &Path) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    let mut open = vec![directory.to_owned()];
    while let Some(at) = open.pop() {
        let Ok(entries) = at.read_dir() else { continue };
        for entry in entries {
            let entry = entry.unwrap();
            let (path, kind) = (entry.path(), entry.file_type().unwrap());
            let about = std::fs::symlink_metadata(&path).unwrap();
            let mut content = format!("{:o} {}:{}\n", about.mode(), about.uid(), about.gid()).into_bytes();
            if kind.is_file() {
                content.extend(std::fs::read(&path).unwrap_or_default());
            } else if let Ok(link) = std::fs::read_link(&path) {
                content.extend(link.as_os_str().as_encoded_bytes());
            }
            found.push((path.display().to_string(), content));
            if kind.is_dir() {
                open.push(path);
            }
        }
    }
    found.sort();
    found
}
