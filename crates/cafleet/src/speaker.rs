//! Who uses the store through this process: a fleet agent, or a person (a11).

use caliban_contract::ancestry::{self, Ancestry};
use caliban_store::broker::{Owner, Speaker};

/// Who speaks. `marker` is the variable that the fleet's processes carry: it proves nothing for its bearer, but a process that
/// has it is no person's.
pub(crate) fn speaker(marker: Option<&str>) -> Speaker {
    let own = i32::try_from(std::process::id()).unwrap_or_default();
    match ancestry::above(own, &[]) {
        Ancestry::Person if marker.is_none() => Speaker::Anybody,
        Ancestry::Person | Ancestry::Unknown => Speaker::Only(Vec::new()),
        Ancestry::Agents(agents) => {
            Speaker::Only(agents.iter().map(|agent| Owner::of_directory(&agent.dir)).collect())
        }
    }
}
