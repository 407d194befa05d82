//! For whom a process speaks to the broker (a11): read from the processes above it, its mark and its view of the machine. What
//! its environment says can only take rights away.

use caliban_process::{PidNamespace, ProcView};

use crate::ancestry::{self, AgentAbove, Ancestry};
use crate::process_mark::{self, AgentMark};

/// For whom a process speaks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Acting {
    /// For agents of a fleet, the innermost first.
    Agents(Vec<AgentAbove>),
    /// For a person on the machine.
    Person,
    /// For a person in this pid namespace, who may only speak for what lives in it.
    PersonWithin(PidNamespace),
    /// For a member of a team that has left the tree of its pane: for nobody, unless its pane is known.
    Member,
    /// For nobody who could be told.
    Nobody,
}

/// Of a process with this view of the machine, and this number in it. `marker` is the variable that the fleet's processes carry:
/// it proves nothing for its bearer, but a process that has it is no person's. No more is one with a mark, whatever stands
/// above it. For the broker a command of an agent in the foreground speaks for its person.
#[must_use]
pub fn acting(view: &ProcView, own: Option<i32>, marker: Option<&str>) -> Acting {
    let mark = process_mark::found().filter(|mark| *mark != AgentMark::Command);
    match (ancestry::fleet_above(own.unwrap_or_default()), mark, view) {
        (Ancestry::Agents(agents), ..) => Acting::Agents(agents),
        _ if marker.is_some() => Acting::Nobody,
        (Ancestry::Person, Some(AgentMark::Member), ProcView::Whole | ProcView::Within(_)) => Acting::Member,
        (Ancestry::Person, None, ProcView::Whole) => Acting::Person,
        (Ancestry::Person, None, ProcView::Within(namespace)) => Acting::PersonWithin(namespace.clone()),
        (Ancestry::Person | Ancestry::Member | Ancestry::Unknown, ..) => Acting::Nobody,
    }
}
