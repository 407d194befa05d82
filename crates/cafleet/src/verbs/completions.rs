//! `completions`: a shell's completion script, generated from the definition of the command line.

use clap::CommandFactory;
use clap_complete::{Shell, generate};
use serde_json::json;

use crate::answer::VerbAnswer;
use crate::args::{Cli, CompletionShell, CompletionsArgs};

pub(crate) fn run(args: &CompletionsArgs) -> VerbAnswer {
    let shell = match args.shell {
        CompletionShell::Bash => Shell::Bash,
        CompletionShell::Zsh => Shell::Zsh,
        CompletionShell::Fish => Shell::Fish,
    };
    let mut script = Vec::new();
    generate(shell, &mut Cli::command(), "cafleet", &mut script);
    let script = String::from_utf8_lossy(&script).into_owned();
    VerbAnswer::new(script.trim_end(), json!({"script": script}))
}
