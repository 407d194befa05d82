//! What the shell's completions ask for: `caliban __complete INDEX -- WORDS…` prints what the word at that index could be,
//! one to a line, with what it means behind a tab. So nested commands, the values of flags and the ids of agents are all
//! completed by what the program knows, the same in every shell.

use std::{ffi::OsString, io::Write as _, path::PathBuf};

use caliban_contract::detached::{self, DetachedState};
use clap::{Arg, Command, ValueHint};
use clap_complete::engine::{ArgValueCandidates, CompletionCandidate, complete};

use crate::{
    fleet::Fleet,
    session_places::{Sessions, Shelf, label_of},
    settings::Environment,
};

/// The first argument that asks for completions.
pub(crate) const MODE: &str = "__complete";

/// What an `ID` is the id of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum IdKind {
    Agent,
    Session,
    Job,
}

/// Prints what the word could be. A shell has no use for errors: then nothing is printed.
pub(crate) fn print(arguments: &[OsString]) {
    let Some((index, words)) = arguments.split_first() else { return };
    let words = words.strip_prefix(&[OsString::from("--")]).unwrap_or(words).to_vec();
    let Some(index) = index.to_str().and_then(|index| index.parse::<usize>().ok()) else { return };
    let mut command = with_ids(super::with_short_verbs(), IdKind::Agent);
    let here = std::env::current_dir().ok();
    let found = complete(&mut command, words, index, here.as_deref()).unwrap_or_default();
    let mut out = std::io::stdout().lock();
    for candidate in found.iter().filter(|candidate| !candidate.is_hide_set()) {
        let help = candidate.get_help().map(ToString::to_string).unwrap_or_default();
        let help = help.lines().next().unwrap_or_default();
        // The shell may have gone away.
        let _gone = writeln!(out, "{}\t{help}", candidate.get_value().to_string_lossy());
    }
}

/// The command with completers for every `ID`, and without files where a prompt is meant.
fn with_ids(command: Command, kind: IdKind) -> Command {
    let command = command.mut_args(|arg| {
        if arg.get_id() == "prompt" {
            return arg.value_hint(ValueHint::Other);
        }
        let kind = if arg.get_long() == Some("resume") { IdKind::Session } else { kind };
        if is_id(&arg) { arg.add(ArgValueCandidates::new(move || ids(kind))) } else { arg }
    });
    command.mut_subcommands(|below| {
        let kind = match below.get_name() {
            "sessions" => IdKind::Session,
            "jobs" => IdKind::Job,
            _ => kind,
        };
        with_ids(below, kind)
    })
}

fn is_id(arg: &Arg) -> bool {
    // The sessions of a broker are not ours.
    arg.get_value_names().is_some_and(|names| names.iter().any(|name| name == "ID"))
        && arg.get_long() != Some("session")
}

fn ids(kind: IdKind) -> Vec<CompletionCandidate> {
    let Some(base) = base() else { return Vec::new() };
    let candidate = |id: String, help: Option<String>| {
        let help = help.map(|help| caliban_core::inert::line(&help).into_owned().into());
        CompletionCandidate::new(id).help(help)
    };
    let shelves: &[Shelf] = match kind {
        IdKind::Job => {
            let jobs = base.join(detached::DIRECTORY);
            let left = detached::list(&jobs).into_iter();
            let left = left.filter(|record| record.state(&jobs) != DetachedState::Ended);
            return left.map(|record| candidate(record.id, Some(record.command))).collect();
        }
        IdKind::Agent => &[Shelf::Agents],
        IdKind::Session => &[Shelf::Sessions, Shelf::Agents],
    };
    let sessions = Sessions::new(base);
    let found = shelves.iter().flat_map(|shelf| sessions.on(*shelf));
    found.map(|found| candidate(found.id.to_string(), label_of(&found.directory))).collect()
}

/// Everything about the repo that we are in. Starts no daemon.
fn base() -> Option<PathBuf> {
    let here = std::env::current_dir().ok()?;
    let environment = Environment::of_process();
    Some(Fleet::open(&environment, &here).ok()?.places().base().to_owned())
}
