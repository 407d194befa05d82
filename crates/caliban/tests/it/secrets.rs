//! Secrets (a12): commands do not get them, and what they find elsewhere does not reach the disk.

use std::{
    fs,
    path::{Path, PathBuf},
};

use testkit::Env;

const CANARY: &str = "canary-4f1d9c7e2b";

/// Every file below a directory, with what is in it.
fn files(dir: &Path) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
        let path = entry.path();
        if entry.file_type().unwrap().is_dir() {
            found.extend(files(&path));
        } else {
            let text = String::from_utf8_lossy(&fs::read(&path).unwrap_or_default()).into_owned();
            found.push((path, text));
        }
    }
    found
}

#[test]
fn a12_a_canary_reaches_neither_commands_nor_the_disk() {
    let mut env = Env::new();
    let repo = env.repo();
    for name in ["ANTHROPIC_API_KEY", "GITHUB_TOKEN", "CARGO_REGISTRY_TOKEN", "MY_SECRET"] {
        env.set(name, CANARY);
    }
    // The model tries: the environment, and a file that somebody left lying about.
    env.write(repo.join(".env"), format!("KEY={CANARY}\n"));
    let seen = env.work().join("seen");
    let script = serde_json::json!({"steps": [
        {"tool_calls": [{"name": "Bash", "input": {"command": format!("env > {}", seen.display())}}]},
        {"tool_calls": [{"name": "Bash", "input": {"command": "env; cat .env"}}]},
        {"text": format!("The key is {CANARY}.")},
    ]});
    let script = env.write("script.json", script.to_string());
    let args =
        ["--script", script.to_str().unwrap(), "--permission-mode", "unattended", "-p", "what is the key?"];
    env.run_in(&repo, args).ok();
    let given = env.read(&seen);
    assert!(given.contains("PATH=") && given.contains("HOME="), "{given}");
    assert!(!given.contains(CANARY), "{given}");
    let written: Vec<_> = [env.data(), env.state(), env.cache()].iter().flat_map(|dir| files(dir)).collect();
    let leaks: Vec<_> =
        written.iter().filter(|(_, text)| text.contains(CANARY)).map(|(path, _)| path).collect();
    assert_eq!(leaks, Vec::<&PathBuf>::new());
    // What was said about the key is there, without the key.
    assert!(written.iter().any(|(_, text)| text.contains("The key is [redacted:")), "{written:?}");
}
