//! `cafleet`: the message broker's command line.
//!
//! Owns the course of one command: read arguments and settings, run the verb, print its answer, exit. The verbs are in
//! [`verbs`], one file each; [`render`] makes what they print; [`pane`] types into tmux panes; everything stored is in
//! `caliban-store`.
//!
//! Refuses: an identity from the environment.

mod answer;
mod args;
mod context;
mod failure;
mod input;
mod pane;
mod prompt;
mod render;
mod settings;
mod setup;
mod speaker;
mod usage;
mod verbs;
mod worktree_hold;

use std::ffi::OsString;
use std::process::ExitCode;

use answer::VerbAnswer;
use context::VerbContext;
use failure::Failure;
use render::json::Style;

fn main() -> ExitCode {
    let argv: Vec<OsString> = std::env::args_os().collect();
    let parsed = match usage::parse(&argv) {
        Ok(cli) => cli,
        Err(early) => return early.finish(),
    };
    let style = parsed.style();
    let secrets = match &parsed.command {
        // It stays for long, and needs a key only for the agents that it starts.
        args::Command::Server(_) => own_secrets(),
        stays if stays.waits() => {
            caliban_fence::drop_secrets(settings::is_ours);
            Vec::new()
        }
        helps if helps.hands_on() => Vec::new(),
        _ => {
            caliban_fence::keep_secrets_back(&caliban_fence::KeyNames::default());
            Vec::new()
        }
    };
    // One thread: a short command has no parallel work.
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return answer::report(&Failure::internal(format!("cannot start: {error}")), style),
    };
    runtime.block_on(run(parsed, style, secrets))
}

/// Takes the secrets out of the environment and hides this process from others of the user.
fn own_secrets() -> Vec<(OsString, OsString)> {
    let secrets = caliban_fence::take_secrets(&caliban_fence::KeyNames::default());
    caliban_fence::hide_environment();
    if let Err(error) = caliban_fence::hide_memory() {
        answer::talk(&format!("note: other programs of yours can look into this one: {error}\n"));
    }
    secrets
}

async fn run(cli: args::Cli, style: Style, secrets: Vec<(OsString, OsString)>) -> ExitCode {
    let outcome = match VerbContext::new(&cli) {
        Ok(mut context) => {
            context.secrets = secrets;
            let outcome = verbs::run(&mut context, cli.command).await;
            let code = finish(outcome, style);
            // The answer is printed; the rest is housekeeping.
            context.leave().await;
            return code;
        }
        Err(failure) => Err(failure),
    };
    finish(outcome, style)
}

fn finish(outcome: Result<VerbAnswer, Failure>, style: Style) -> ExitCode {
    match outcome {
        Ok(answer) => answer.print(style),
        Err(failure) => answer::report(&failure, style),
    }
}
