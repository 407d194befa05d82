//! `caliban completions SHELL`.

use std::io::Write as _;

use clap::Args;
use clap_complete::Shell;

use crate::report::Result;

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

/// What bash runs for a word. `=` and `:` do not split words here.
const BASH: &str = r#"_caliban() {
    local cur prev words cword line
    if declare -F _get_comp_words_by_ref >/dev/null; then
        _get_comp_words_by_ref -n =: cur prev words cword
    else
        words=("${COMP_WORDS[@]}") cword=$COMP_CWORD
    fi
    COMPREPLY=()
    while IFS= read -r line; do
        COMPREPLY+=("${line%%$'\t'*}")
    done < <("${words[0]}" __complete "$cword" -- "${words[@]}" 2>/dev/null)
    declare -F __ltrim_colon_completions >/dev/null && __ltrim_colon_completions "$cur"
    return 0
}
complete -o nosort -F _caliban caliban
"#;

/// The same for zsh, as a file of `fpath` and to be sourced.
const ZSH: &str = r#"#compdef caliban
_caliban() {
    local -a found
    local line
    while IFS= read -r line; do
        found+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}")
    done < <("${words[1]}" __complete "$((CURRENT - 1))" -- "${words[@]}" 2>/dev/null)
    _describe -V 'caliban' found
}
if [ "$funcstack[1]" = "_caliban" ]; then
    _caliban "$@"
else
    compdef _caliban caliban
fi
"#;

/// The same for fish.
const FISH: &str = r#"function __caliban_complete
    set -l before (commandline -opc)
    caliban __complete (count $before) -- $before (commandline -ct) 2>/dev/null
end
complete -c caliban -f -k -a '(__caliban_complete)'
"#;

/// Prints the completions. In bash, zsh and fish they ask the program itself (`complete.rs`); for the others all that does
/// not change is written out.
pub(crate) fn completions(args: &CompletionsArgs) -> Result<()> {
    let mut script = Vec::new();
    match args.shell {
        Shell::Bash => script.extend_from_slice(BASH.as_bytes()),
        Shell::Zsh => script.extend_from_slice(ZSH.as_bytes()),
        Shell::Fish => script.extend_from_slice(FISH.as_bytes()),
        other => clap_complete::generate(other, &mut super::with_short_verbs(), "caliban", &mut script),
    }
    std::io::stdout().lock().write_all(&script)?;
    Ok(())
}
