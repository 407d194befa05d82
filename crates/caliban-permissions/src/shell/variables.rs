//! Which variables a command line may set without changing which programs run, or how.

/// Upper-case names that only steer output or logging.
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
    "DEBUG",
    "VERBOSE",
    "RUST_BACKTRACE",
    "RUST_LOG",
    "CARGO_TERM_COLOR",
    "NODE_ENV",
    "PYTHONUNBUFFERED",
    "PYTHONDONTWRITEBYTECODE",
];

/// Any other upper-case name may be read by some program (`PATH`, `LD_PRELOAD`, `GIT_SSH_COMMAND`, `CC`).
pub(crate) fn harmless(name: &str) -> bool {
    HARMLESS.contains(&name)
        || (!name.contains("proxy")
            && !name.starts_with("npm_")
            && !name.starts_with('_')
            && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_'))
}
