//! What it means when a command line sets a variable.

/// What setting a variable can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Influence {
    /// Output and logging only.
    None,
    /// Some program may act on it: a rule that names one command exactly does not mean it so.
    Some,
    /// It changes which programs run.
    Strong,
}

pub(crate) fn influence(name: &str) -> Influence {
    let upper = name.to_ascii_uppercase();
    if HARMLESS.contains(&name) {
        Influence::None
    } else if STRONG.contains(&upper.as_str())
        || STRONG_STARTS.iter().any(|start| upper.starts_with(start))
        || STRONG_ENDS.iter().any(|end| upper.ends_with(end))
    {
        Influence::Strong
    } else {
        Influence::Some
    }
}

const HARMLESS: &[&str] = &[
    "CI",
    "NO_COLOR",
    "FORCE_COLOR",
    "CLICOLOR",
    "CLICOLOR_FORCE",
    "COLUMNS",
    "LINES",
    "LANG",
    "LC_ALL",
    "TZ",
    "RUST_BACKTRACE",
    "RUST_LOG",
    "CARGO_TERM_COLOR",
];

const STRONG: &[&str] = &[
    "PATH",
    "IFS",
    "ENV",
    "HOME",
    "SHELL",
    "CDPATH",
    "SHELLOPTS",
    "PS4",
    "PROMPT_COMMAND",
    "EDITOR",
    "VISUAL",
    "BROWSER",
    "RUSTC",
    "RUSTFLAGS",
    "RUSTDOC",
    "CARGO_HOME",
    "CC",
    "CXX",
    "CPP",
    "LD",
    "AR",
    "MAKEFLAGS",
    "PYTHONSTARTUP",
    "PYTHONHOME",
    "RUBYOPT",
    "RUBYLIB",
    "NODE_PATH",
    "XDG_CONFIG_HOME",
    "RIPGREP_CONFIG_PATH",
    "GCONV_PATH",
    "HOSTALIASES",
    "UNZIP",
    // Numbers to bash: what is assigned is arithmetic, and can hold a command.
    "RANDOM",
    "SRANDOM",
    "SECONDS",
    "OPTIND",
    "HISTCMD",
    "LINENO",
    "EPOCHSECONDS",
    "EPOCHREALTIME",
    "UID",
    "EUID",
    "PPID",
    // Bash's own: they change how it reads, or what patterns and translations stand for.
    "POSIXLY_CORRECT",
    "GLOBIGNORE",
    "FUNCNEST",
    "FUNCNAME",
    "DIRSTACK",
    "GROUPS",
    "PIPESTATUS",
    "OLDPWD",
    "PWD",
    "LANGUAGE",
    "NLSPATH",
    "LOCPATH",
];

const STRONG_STARTS: &[&str] = &[
    "LD_",
    "DYLD_",
    "BASH",
    // Where the Bash tool is told what came of a command.
    "__CALIBAN",
    "COMP_",
    "TEXTDOMAIN",
    "LESS",
    "PERL5",
    "READLINE_",
    "GIT_",
    "NPM_CONFIG",
    "CARGO_BUILD_",
    "CARGO_UNSTABLE",
    "SSH_",
    "SUDO_",
    "PIP_",
    "UV_",
];

const STRONG_ENDS: &[&str] = &[
    "_PRELOAD",
    "PAGER",
    "_EDITOR",
    "_COMMAND",
    "_ASKPASS",
    "_WRAPPER",
    "_LINKER",
    "_RUNNER",
    "_OPTIONS",
    "_OPTS",
    "_PROXY",
    "_RUSTFLAGS",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_variable_can_do_is_told_by_its_name() {
        for (name, wanted) in [
            ("CI", Influence::None),
            ("a1_b", Influence::Some),
            ("files", Influence::Some),
            ("_a", Influence::Some),
            ("FOO", Influence::Some),
            ("aB", Influence::Some),
            ("path", Influence::Strong),
            ("GIT_X", Influence::Strong),
            ("ld_x", Influence::Strong),
            ("MANPAGER", Influence::Strong),
        ] {
            assert_eq!(influence(name), wanted, "{name}");
        }
    }
}
