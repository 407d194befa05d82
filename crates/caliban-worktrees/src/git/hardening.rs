//! The variables and settings that decide what git may run, read and write. One list of each for the whole program.
//!
//! Measured with traps in every place that git reads: a git with all of these ran nothing of an agent's. A hardened call does
//! not read the repository's configuration at all (`common_directory.rs`); the settings here are a second protection, and choose formats.
//! Two things stay open: `git add -A` and `git stash` run the filters of a nested repository, so neither is used on an
//! agent's files.

/// Variables that change which repository, index or configuration a git works on, or make it run or
/// write something (`git rev-parse --local-env-vars` and the tracing and program ones).
pub(crate) const DROPPED: [&str; 41] = [
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_CONFIG",
    "GIT_CONFIG_PARAMETERS",
    "GIT_CONFIG_COUNT",
    "GIT_OBJECT_DIRECTORY",
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_IMPLICIT_WORK_TREE",
    "GIT_GRAFT_FILE",
    "GIT_INDEX_FILE",
    "GIT_NO_REPLACE_OBJECTS",
    "GIT_REPLACE_REF_BASE",
    "GIT_PREFIX",
    "GIT_SHALLOW_FILE",
    "GIT_COMMON_DIR",
    "GIT_INTERNAL_SUPER_PREFIX",
    "GIT_NAMESPACE",
    "GIT_QUARANTINE_PATH",
    "GIT_EXTERNAL_DIFF",
    "GIT_DIFF_OPTS",
    "GIT_ATTR_SOURCE",
    "GIT_ATTR_NOSYSTEM",
    "GIT_LITERAL_PATHSPECS",
    "GIT_GLOB_PATHSPECS",
    "GIT_NOGLOB_PATHSPECS",
    "GIT_ICASE_PATHSPECS",
    "GIT_TRACE",
    "GIT_TRACE2",
    "GIT_TRACE2_EVENT",
    "GIT_TRACE2_PERF",
    "GIT_TRACE_SETUP",
    "GIT_TRACE_PACKET",
    "GIT_TRACE_PERFORMANCE",
    "GIT_TRACE_CURL",
    "GIT_INDEX_VERSION",
    "GIT_DEFAULT_HASH",
    "GIT_REFLOG_ACTION",
    "GIT_ADVICE",
    "GIT_FLUSH",
    "GIT_REF_PARANOIA",
    "GIT_ALLOW_PROTOCOL",
];

/// The environment of a hardened call, beside the directories and the attribute source.
pub(super) const HARD_ENV: [(&str, &str); 12] = [
    ("GIT_CONFIG_NOSYSTEM", "1"),
    ("GIT_CONFIG_GLOBAL", "/dev/null"),
    ("GIT_OPTIONAL_LOCKS", "0"),
    ("GIT_NO_LAZY_FETCH", "1"),
    ("GIT_NO_REPLACE_OBJECTS", "1"),
    ("GIT_ALLOW_PROTOCOL", ""),
    ("GIT_EDITOR", "false"),
    ("GIT_SEQUENCE_EDITOR", "false"),
    ("GIT_PAGER", "cat"),
    ("GIT_ASKPASS", "false"),
    ("GIT_SSH_COMMAND", "false"),
    ("GIT_ATTR_NOSYSTEM", "1"),
];

/// Those of [`HARD_ENV`] that keep the configuration of the user and of the machine out.
pub(super) const OUTSIDE_ENV: [&str; 2] = ["GIT_CONFIG_NOSYSTEM", "GIT_CONFIG_GLOBAL"];
/// Keeps the user's own ignore file out.
pub(super) const NO_EXCLUDES: &str = "core.excludesFile=/dev/null";

/// The configuration of a hardened call. The second part, from `core.untrackedCache` on, is about settings that could hide
/// a change from `status` or change the format of an answer.
pub(super) const HARD_CONFIG: [&str; 45] = [
    "core.fsmonitor=false",
    "core.hooksPath=/dev/null",
    "core.attributesFile=/dev/null",
    NO_EXCLUDES,
    "core.pager=cat",
    "core.editor=false",
    "sequence.editor=false",
    "core.askPass=",
    "core.sshCommand=false",
    "core.gitProxy=",
    "core.alternateRefsCommand=",
    "diff.external=",
    "diff.submodule=short",
    "diff.ignoreSubmodules=all",
    "submodule.recurse=false",
    "status.submoduleSummary=false",
    "commit.gpgSign=false",
    "tag.gpgSign=false",
    "log.showSignature=false",
    "gpg.program=false",
    "gpg.ssh.program=false",
    "gpg.x509.program=false",
    "credential.helper=",
    "protocol.allow=never",
    "protocol.ext.allow=never",
    "protocol.file.allow=never",
    "gc.auto=0",
    "gc.recentObjectsHook=",
    "maintenance.auto=false",
    "commit.template=",
    "rerere.enabled=false",
    "core.untrackedCache=false",
    "core.sparseCheckout=true",
    "sparse.expectFilesOutsideOfPatterns=false",
    "core.trustctime=true",
    "core.checkStat=default",
    "core.splitIndex=false",
    "color.ui=never",
    "core.quotePath=false",
    "diff.noprefix=false",
    "diff.mnemonicPrefix=false",
    "diff.orderFile=/dev/null",
    "log.showRoot=true",
    "core.commitGraph=false",
    "core.logAllRefUpdates=false",
];

/// What a git that only reads is told in the fence of an agent's commands: nothing of the repository's configuration runs.
/// Filters and textconv programs are named by attributes, which [`crate::git_that_reads`] keeps from being read.
pub(crate) const READING_CONFIG: [(&str, &str); 11] = [
    ("core.fsmonitor", "false"),
    ("core.hooksPath", "/dev/null"),
    ("core.pager", "cat"),
    ("core.askPass", ""),
    ("core.sshCommand", "false"),
    ("core.gitProxy", ""),
    ("core.alternateRefsCommand", ""),
    ("log.showSignature", "false"),
    ("gpg.program", "false"),
    ("gpg.ssh.program", "false"),
    ("gpg.x509.program", "false"),
];
/// In the place of a repository's own external diff: no setting says that there is none.
pub(crate) const PLAIN_DIFF: (&str, &str) =
    ("diff.external", "sh -c 'git diff --no-index --no-ext-diff --no-textconv -- \"$2\" \"$5\"; :' diff");

/// What a trusted call sets: no hook and no file system monitor runs.
pub(super) const TRUSTED_CONFIG: [&str; 6] = [
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "submodule.recurse=false",
    "gc.auto=0",
    "maintenance.auto=false",
    "checkout.workers=0",
];
