//! A mark that every process beneath an agent has and cannot take off: a hard limit on time under real-time scheduling.
//!
//! The limit is a hundred thousand years, so it limits nothing. It is inherited through forks, programs, `setsid`, a cleared
//! environment and namespaces, and only who has `CAP_SYS_RESOURCE` on the machine itself can raise a hard limit again (root in a
//! user namespace of one's own cannot). It says that an agent may stand above, where the processes above cannot be seen; it does
//! not say which. Systems hardly ever set this limit, but they may: so it proves nothing where the processes can be seen.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Microseconds.
const MARK: u64 = 1 << 62;

/// Marks this process and all that it starts from now on.
///
/// # Errors
/// When the system refuses; then a process beneath is not told from a person's in a pid namespace.
pub fn put() -> std::io::Result<()> {
    if is_there() {
        return Ok(());
    }
    setrlimit(Resource::Rttime, Rlimit { current: Some(MARK), maximum: Some(MARK) })?;
    Ok(())
}

/// Whether this process has the mark.
#[must_use]
pub fn is_there() -> bool {
    getrlimit(Resource::Rttime).maximum.is_some()
}
