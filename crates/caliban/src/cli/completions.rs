//! `caliban completions SHELL`.

use std::io::Write as _;

use clap::Args;
use clap_complete::Shell;

use crate::report::Failure;

// For which shell.
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  caliban completions bash > ~/.local/share/bash-completion/completions/caliban
  caliban completions zsh > \"${fpath[1]}/_caliban\"
  caliban completions fish > ~/.config/fish/completions/caliban.fish")]
pub(crate) struct CompletionsArgs {
    /// The shell
    pub shell: Shell,
}

/// Prints the completions.
pub(crate) fn completions(args: &CompletionsArgs) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut super::with_short_verbs(), "caliban", &mut script);
    std::io::stdout().lock().write_all(&script)?;
    Ok(())
}
