//! Environment variables by which our own processes know each other. Settings (`CALIBAN_MODEL` …) are not here: the
//! settings own their names.

/// Every process of a run has it, unless it removed it: `<agent id>:<nonce>`.
pub const AGENT_ID: &str = "CALIBAN_AGENT_ID";
/// Every process of a background shell job has it.
pub const JOB: &str = "CALIBAN_JOB";
/// Names of variables whose values are secret although their names look harmless.
pub const HIDDEN: &str = "CALIBAN_HIDDEN";
/// The secrets that were cut out of an agent's task.
pub const VEILED_TASK: &str = "CALIBAN_VEILED_TASK";
/// The secrets that were cut out of the messages of a resume.
pub const VEILED_RESUME: &str = "CALIBAN_VEILED_RESUME";
/// The settings files as they were when somebody asked for an agent. Anything in them may be a secret, so the copy is among
/// the secrets of the agent. The agent can do without it.
pub const ASKED_SETTINGS: &str = "CALIBAN_ASKED_SETTINGS";

/// Names of the variables that an agent was handed as secrets, with spaces between: a key may have any name.
pub const SECRET_NAMES: &str = "CALIBAN_SECRET_NAMES";

/// The variables of an agent that hold secrets of its caller, whatever those are called.
pub const HANDED_SECRETS: [&str; 4] = [HIDDEN, VEILED_TASK, VEILED_RESUME, ASKED_SETTINGS];

/// Whether a variable may stay where other processes can read it, in `/proc/PID/environ`: our marks, by which the processes of a
/// run are found, and what says nothing. Any other may hold a secret, whatever it is called.
pub fn is_shown(name: &str) -> bool {
    // Preloaded libraries (libfaketime, allocators) keep pointers to their variables.
    let is_of_a_library = ["LD_", "FAKETIME", "MALLOC_"].iter().any(|start| name.starts_with(start));
    is_of_a_library || [AGENT_ID, JOB, "HOME", "PATH"].contains(&name)
}

/// Whether a variable is one that programs need and that is no key: what commands of agents get, and all that a daemon keeps. A
/// list: a key may have any name, so what nobody thought of is not ordinary.
#[must_use]
pub fn is_ordinary(name: &str) -> bool {
    let is_one_of = |names: &str| names.split_whitespace().any(|one| one == name);
    is_one_of(NAMES)
        || is_one_of(GIT_NAMES)
        || PREFIXES.split_whitespace().any(|prefix| name.starts_with(prefix))
}

/// Names that every command may have. Sockets of agents and daemons (ssh, docker, tmux, dbus) are left out on purpose.
const NAMES: &str = "
    PATH HOME USER LOGNAME SHELL PWD LANG LANGUAGE TERM COLORTERM TZ TMPDIR EDITOR PAGER
    NO_COLOR FORCE_COLOR CLICOLOR CI HOSTNAME LD_LIBRARY_PATH LIBRARY_PATH CPATH PKG_CONFIG_PATH MANPATH
    CC CXX CFLAGS CXXFLAGS LDFLAGS MAKEFLAGS RUSTFLAGS RUST_BACKTRACE RUST_LOG RUSTC_WRAPPER
    GOPATH GOROOT GOFLAGS GOPROXY GOCACHE GOMODCACHE GOTOOLCHAIN
    JAVA_HOME MAVEN_HOME GRADLE_HOME GRADLE_USER_HOME ANDROID_HOME
    VIRTUAL_ENV CONDA_PREFIX CONDA_DEFAULT_ENV PIP_INDEX_URL GEM_HOME GEM_PATH DOTNET_ROOT
    PNPM_HOME BUN_INSTALL DENO_DIR NVM_DIR VOLTA_HOME
    HTTP_PROXY HTTPS_PROXY NO_PROXY ALL_PROXY http_proxy https_proxy no_proxy all_proxy
    SSL_CERT_FILE SSL_CERT_DIR NIX_SSL_CERT_FILE REQUESTS_CA_BUNDLE CURL_CA_BUNDLE
    SOURCE_DATE_EPOCH DISPLAY WAYLAND_DISPLAY";

/// Beginnings of such names.
const PREFIXES: &str =
    "LC_ XDG_ CARGO_ RUSTUP_ NODE_ NPM_CONFIG_ npm_config_ PYTHON PYENV_ UV_ RBENV_ CMAKE_ NIX_";

/// Variables of git that name an identity or a configuration file; others could point git elsewhere.
const GIT_NAMES: &str = "
    GIT_AUTHOR_NAME GIT_AUTHOR_EMAIL GIT_COMMITTER_NAME GIT_COMMITTER_EMAIL GIT_CONFIG_GLOBAL
    GIT_CONFIG_NOSYSTEM GIT_CEILING_DIRECTORIES GIT_TERMINAL_PROMPT";
