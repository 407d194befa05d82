//! The configuration of the agent's git: the user's for this repository, without credentials and without what would lead out
//! of the private git.

use super::{HOOKS, words};
use crate::error::Result;
use crate::repo::{Repo, split_nul};

/// Sections that hold credentials or name other places.
const LEFT_OUT: [&str; 7] = ["credential", "http", "url", "include", "includeif", "extensions", "safe"];
/// Settings of `core` that are the repository's own, or run a program outside of the worktree.
const CORE: [&str; 9] = [
    "core.repositoryformatversion",
    "core.bare",
    "core.worktree",
    "core.fsmonitor",
    "core.sshcommand",
    "core.askpass",
    "core.gitproxy",
    "core.alternaterefscommand",
    "core.sparsecheckout",
];
/// Extensions that change nothing about what the agent's git has.
const EXTENSIONS: [&str; 3] = ["extensions.objectformat", "extensions.noop", "extensions.relativeworktrees"];

/// The text of the configuration. An error where the repository has an extension that the private git has not.
pub(super) async fn of(repo: &Repo) -> Result<String> {
    let call = repo.git.trusted(repo.common_dir(), "config").env("GIT_DIR", repo.common_dir());
    let call = call.with_patience(repo.git.options.patience);
    let answer = call.args(["--local", "--includes", "-z", "--list"]).ok().await?;
    let mut text = String::new();
    for entry in split_nul(&answer.stdout) {
        let entry = String::from_utf8_lossy(entry);
        let (key, value) = match entry.split_once('\n') {
            Some((key, value)) => (key, Some(value)),
            None => (entry.as_ref(), None),
        };
        if key.starts_with("extensions.") && !EXTENSIONS.contains(&key) {
            return Err(words(&format!("the repository uses {key}")));
        }
        if key.ends_with(".promisor") {
            return Err(words("the repository is a partial clone"));
        }
        text.push_str(&line(key, value));
    }
    // Hooks of the repository are elsewhere in the fence; nobody can sign there.
    Ok(format!("[core]\nhooksPath = {HOOKS}\n{text}[commit]\ngpgSign = false\n[tag]\ngpgSign = false\n"))
}

/// One setting as a section of its own.
fn line(key: &str, value: Option<&str>) -> String {
    let Some((section, rest)) = key.split_once('.') else { return String::new() };
    if LEFT_OUT.contains(&section) || CORE.contains(&key) {
        return String::new();
    }
    let (sub, name) = match rest.rsplit_once('.') {
        Some((sub, name)) => (Some(sub), name),
        None => (None, rest),
    };
    let head = match sub {
        Some(sub) => format!("[{section} \"{}\"]\n", sub.replace('\\', "\\\\").replace('"', "\\\"")),
        None => format!("[{section}]\n"),
    };
    let Some(value) = value else { return format!("{head}{name}\n") };
    let value = if name.ends_with("url") { without_user(value) } else { value.to_owned() };
    let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n").replace('\t', "\\t");
    format!("{head}{name} = \"{value}\"\n")
}

/// An address without user and password.
fn without_user(url: &str) -> String {
    match url.split_once("://") {
        Some((scheme, rest)) => {
            let end = rest.find('/').unwrap_or(rest.len());
            let host = rest[..end].rsplit('@').next().unwrap_or_default();
            format!("{scheme}://{host}{}", &rest[end..])
        }
        None => url.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_stay_outside() {
        assert_eq!(
            line("remote.origin.url", Some("https://u:secret@host/x@y.git")),
            "[remote \"origin\"]\nurl = \"https://host/x@y.git\"\n"
        );
        assert_eq!(
            line("remote.a\"b.url", Some("git@host:x.git")),
            "[remote \"a\\\"b\"]\nurl = \"git@host:x.git\"\n"
        );
        for key in [
            "credential.helper",
            "http.https://host/.extraheader",
            "url.https://t@h/.insteadof",
            "core.worktree",
        ] {
            assert_eq!(line(key, Some("x")), "", "{key}");
        }
        assert_eq!(
            line("alias.say", Some("!echo \"a\\b\"\n")),
            "[alias]\nsay = \"!echo \\\"a\\\\b\\\"\\n\"\n"
        );
        assert_eq!(line("core.filemode", None), "[core]\nfilemode\n");
    }
}
