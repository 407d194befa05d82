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

/// The variables of an agent that hold secrets of its caller, whatever those are called.
pub const HANDED_SECRETS: [&str; 4] = [HIDDEN, VEILED_TASK, VEILED_RESUME, ASKED_SETTINGS];

/// Whether a variable may stay where other processes can read it, in `/proc/PID/environ`: our marks, by which the processes of a
/// run are found, and what says nothing. Any other may hold a secret, whatever it is called.
pub fn is_shown(name: &str) -> bool {
    // Preloaded libraries (libfaketime, allocators) keep pointers to their variables.
    let is_of_a_library = ["LD_", "FAKETIME", "MALLOC_"].iter().any(|start| name.starts_with(start));
    is_of_a_library || [AGENT_ID, JOB, "HOME", "PATH"].contains(&name)
}
