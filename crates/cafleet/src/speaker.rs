//! The identity under which this process uses the store: a fleet agent, a member in its pane, a person, or unknown
//! (a11). Determined from the ancestor processes; the environment can only take rights away.

use caliban_contract::speaks_for::{Acting, acting};
use caliban_process::{ProcView, boot_id, stat, view};
use caliban_store::broker::{Broker, Enclosure, Owner, Speaker};

use crate::failure::Failure;
use crate::pane::own_pane;
use crate::settings::Settings;

/// Maximum number of ancestors that are checked for the first process of a pane. A person's process has fewer.
const DEPTH: usize = 1024;

/// Opens the store as the speaker that this process is.
pub(crate) async fn open(settings: &Settings) -> Result<Broker, Failure> {
    let (view, own) = view();
    let place = match &view {
        ProcView::Whole => Some(Enclosure::NONE),
        ProcView::Within(namespace) => Some(namespace.as_str()),
        ProcView::Unclear => None,
    };
    let (speaker, may_be_member) = speaker(acting(&view, own, settings.fleet_mark.as_deref()));
    let mut broker = Broker::open(&settings.database()?, speaker).await?;
    if let Some(place) = place {
        broker.is_at(place);
    }
    if may_be_member && let Ok(host) = own_pane::host() {
        let member = broker.member_in_pane(&host, &above(own), own_pane::said(settings)).await?;
        if let Some(member) = member {
            broker.speak_as(Speaker::Member(member));
        }
    }
    Ok(broker)
}

/// The speaker, and whether it may turn out to be a member.
fn speaker(acting: Acting) -> (Speaker, bool) {
    match acting {
        Acting::Agents(agents) => {
            (Speaker::Only(agents.iter().map(|agent| Owner::of_directory(&agent.dir)).collect()), false)
        }
        Acting::Person => (Speaker::Anybody, true),
        Acting::PersonWithin(namespace) => (Speaker::Within(Enclosure::of(namespace.as_str())), true),
        Acting::Member => (Speaker::Only(Vec::new()), true),
        Acting::Nobody => (Speaker::Only(Vec::new()), false),
    }
}

/// Our ancestors, the nearest first, in the form that placements record.
fn above(own: Option<i32>) -> Vec<(i64, String)> {
    let Ok(boot) = boot_id() else { return Vec::new() };
    let mut next = own;
    let walk = std::iter::from_fn(|| {
        let pid = next.filter(|pid| *pid > 0)?;
        let found = stat(pid)?;
        next = Some(found.parent);
        Some((i64::from(pid), found.started(&boot)))
    });
    walk.take(DEPTH).collect()
}
