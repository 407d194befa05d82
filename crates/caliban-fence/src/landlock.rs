//! Landlock on top of the mounts: what can be read and what can be changed, once more.
//!
//! It also holds what mounts cannot: abstract sockets and signals to processes outside, where the kernel can (ABI 6). Rules
//! are inherited through mounts, so the limits within a writable directory are the mounts' alone.

use std::{os::fd::OwnedFd, path::Path};

use caliban_rooted::{FoundEntry, open_plain};
use landlock::{
    ABI, Access as _, AccessFs, BitFlags, CompatLevel, Compatible as _, PathBeneath, Ruleset,
    RulesetAttr as _, RulesetCreatedAttr as _, RulesetStatus, Scope,
};
use rustix::fs::{Mode, OFlags};

use crate::{
    fence::{Access, Fence, Network, SYSTEM},
    helper::StepError,
    mounts::PRIVATE,
};

/// From the newest that was tried: each is asked for as a whole.
const KNOWN: [ABI; 7] = [ABI::V7, ABI::V6, ABI::V5, ABI::V4, ABI::V3, ABI::V2, ABI::V1];
/// The first ABI with scopes.
const SCOPES: ABI = ABI::V6;

pub(crate) fn enforce(fence: &Fence) -> Result<(), StepError> {
    let mut last = String::new();
    for abi in KNOWN {
        if fence.network == Network::On && abi < SCOPES {
            return Err(
                "the network is on, and this kernel cannot keep abstract sockets away (Landlock ABI 6)"
                    .into(),
            );
        }
        match ruleset(abi) {
            Ok(ruleset) => return restrict(ruleset, abi, fence),
            Err(error) => last = error.to_string(),
        }
    }
    Err(format!("no Landlock: {last}"))
}

/// All of this ABI, or an error.
fn ruleset(abi: ABI) -> Result<landlock::RulesetCreated, landlock::RulesetError> {
    let ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(abi))?;
    if abi >= SCOPES { ruleset.scope(Scope::from_all(abi))?.create() } else { ruleset.create() }
}

fn restrict(mut ruleset: landlock::RulesetCreated, abi: ABI, fence: &Fence) -> Result<(), StepError> {
    let devices = AccessFs::MakeChar | AccessFs::MakeBlock;
    let read = AccessFs::from_read(abi);
    let write = AccessFs::from_all(abi) & !devices;
    let mut allow_found = |path: &Path, file: OwnedFd, access: BitFlags<AccessFs>| -> Result<(), StepError> {
        let words = |error: &dyn std::fmt::Display| format!("Landlock, {}: {error}", path.display());
        let is_dir = matches!(FoundEntry::of(&file), Ok(FoundEntry::Directory(_)));
        let access = if is_dir { access } else { access & AccessFs::from_file(abi) };
        (&mut ruleset).add_rule(PathBeneath::new(file, access)).map(drop).map_err(|error| words(&error))
    };
    // An agent may have put a link there meanwhile.
    for bind in &fence.binds {
        let access = if bind.access == Access::ReadOnly { read } else { write };
        if let Ok(file) = open_plain(bind.target.path(), OFlags::PATH) {
            allow_found(bind.target.path(), file, access)?;
        }
    }
    let mut allow = |path: &Path, access: BitFlags<AccessFs>| match rustix::fs::open(
        path,
        OFlags::PATH | OFlags::CLOEXEC,
        Mode::empty(),
    ) {
        Ok(file) => allow_found(path, file, access),
        Err(_) => Ok(()),
    };
    // Names of what is shown; there are no others.
    allow(Path::new("/"), AccessFs::ReadDir.into())?;
    for place in SYSTEM.iter().chain(&["/proc"]) {
        allow(Path::new(place), read)?;
    }
    for place in PRIVATE.iter().chain(&["/dev"]) {
        allow(Path::new(place), write)?;
    }
    allow(fence.home.path(), write)?;
    let status = ruleset.restrict_self().map_err(|error| format!("Landlock: {error}"))?;
    match status.ruleset {
        RulesetStatus::FullyEnforced => Ok(()),
        other => Err(format!("Landlock holds only in part ({other:?})")),
    }
}
