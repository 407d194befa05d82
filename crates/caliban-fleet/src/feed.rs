//! What a daemon tells whoever follows its fleet, folded: all agents first, then what changes, and all of them again after a gap.

use caliban_core::ids::AgentId;

use crate::{
    Client, ClientError, DaemonEvents,
    protocol::{AgentRow, FleetEvent},
};

/// What has happened.
#[derive(Debug, Clone, PartialEq)]
pub enum FleetNews {
    /// All agents, as they are now.
    All(Vec<AgentRow>),
    /// One is new or has changed.
    Changed(Box<AgentRow>),
    /// One is gone from the registry.
    Removed(AgentId),
}

/// How a daemon left that was listened to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DaemonEnd {
    /// It was asked to leave: somebody wants it so.
    Stopped,
    /// It is gone without a word: the next one knows as much.
    Gone,
}

/// The news of one daemon.
#[derive(Debug)]
pub struct FleetFeed {
    events: DaemonEvents,
    fold: Fold,
}

impl FleetFeed {
    /// What the daemon says from now on; else how it left. One that answered a moment ago and does not listen was stopped by
    /// somebody.
    pub async fn open(client: &Client) -> Result<Self, DaemonEnd> {
        client.events().await.map(Self::of).map_err(|error| match error {
            ClientError::NotRunning(_) => DaemonEnd::Stopped,
            _ => DaemonEnd::Gone,
        })
    }

    /// The same of events that are read already.
    #[must_use]
    pub fn of(events: DaemonEvents) -> Self {
        Self { events, fold: Fold::default() }
    }

    /// The next news; else how the daemon left. Safe to drop while it waits.
    pub async fn next(&mut self) -> Result<FleetNews, DaemonEnd> {
        loop {
            let event = self.events.next().await.ok().flatten().ok_or(DaemonEnd::Gone)?;
            if let Some(news) = self.fold.take(event)? {
                return Ok(news);
            }
        }
    }
}

/// Agents that were named since the beginning or a gap; none once all were.
#[derive(Debug)]
struct Fold(Option<Vec<AgentRow>>);

impl Default for Fold {
    fn default() -> Self {
        Self(Some(Vec::new()))
    }
}

impl Fold {
    fn take(&mut self, event: FleetEvent) -> Result<Option<FleetNews>, DaemonEnd> {
        Ok(match (event, &mut self.0) {
            (FleetEvent::Agent(row), None) => Some(FleetNews::Changed(row)),
            (FleetEvent::Agent(row), Some(rows)) => {
                match rows.iter_mut().find(|known| known.id == row.id) {
                    Some(known) => *known = *row,
                    None => rows.push(*row),
                }
                None
            }
            (FleetEvent::Removed { id }, None) => Some(FleetNews::Removed(id)),
            (FleetEvent::Removed { id }, Some(rows)) => {
                rows.retain(|row| row.id != id);
                None
            }
            (FleetEvent::Ready {}, rows) => rows.take().map(FleetNews::All),
            (FleetEvent::Gap { .. }, rows) => {
                *rows = Some(Vec::new());
                None
            }
            (FleetEvent::Bye {}, _) => return Err(DaemonEnd::Stopped),
        })
    }
}

#[cfg(test)]
mod tests {
    use caliban_core::lifecycle::State;

    use super::*;

    #[test]
    fn whoever_follows_sees_whole_lists_and_changes_and_after_a_gap_all_anew() {
        let row = |id: &str, turns| AgentRow { turns, ..AgentRow::new(id.parse().unwrap(), State::Running) };
        let agent = |id, turns| FleetEvent::Agent(Box::new(row(id, turns)));
        let removed = |id: &str| FleetEvent::Removed { id: id.parse().unwrap() };
        let (one, two) = ("a0000001", "a0000002");
        let told = [
            (agent(one, 1), None),
            (agent(two, 1), None),
            (agent(one, 2), None),
            (removed(two), None),
            (FleetEvent::Ready {}, Some(FleetNews::All(vec![row(one, 2)]))),
            (agent(two, 3), Some(FleetNews::Changed(Box::new(row(two, 3))))),
            (removed(one), Some(FleetNews::Removed(one.parse().unwrap()))),
            (FleetEvent::Gap { missed: 4 }, None),
            (agent(one, 5), None),
            (FleetEvent::Ready {}, Some(FleetNews::All(vec![row(one, 5)]))),
            (FleetEvent::Ready {}, None),
        ];
        let mut fold = Fold::default();
        for (event, expected) in told {
            assert_eq!(fold.take(event.clone()), Ok(expected), "{event:?}");
        }
        assert_eq!(fold.take(FleetEvent::Bye {}), Err(DaemonEnd::Stopped));
    }
}
