//! `caliban agents rm`

use std::io::Write;

use caliban_core::inert;
use caliban_supervisor::protocol::{Removed, RmRequest};

use super::{Fleet, json_line, worded};
use crate::{
    cli::fleet::RmArgs,
    report::{self, Code, Failure},
    settings::Layer,
};

pub(super) async fn rm(fleet: &Fleet<'_>, args: &RmArgs, out: &mut dyn Write) -> Result<Code, Failure> {
    let mut client = fleet.client().await?;
    // The settings of this moment, which a daemon of yesterday does not know.
    let settings = crate::settings::load(fleet.environment, &fleet.cwd, Layer::default());
    let keep = args.keep || settings.is_ok_and(|loaded| loaded.settings.worktrees.keep);
    let request = RmRequest { force: args.force, keep };
    let mut gone: Vec<Removed> = Vec::new();
    let mut failed = None;
    for id in &args.agents.ids {
        // Who it is is looked up while it is there; its mailbox is closed when it is gone.
        let leaving = client.show(id).await.ok().map(|row| crate::broker::leave_for_good(&row.dir));
        match client.rm(id, request).await {
            Ok(removed) => {
                if let Some(leaving) = leaving
                    && let Err(problem) = leaving.await
                {
                    report::note(&format!("{} is still registered with the broker: {problem}", removed.id));
                }
                if !args.json {
                    writeln!(out, "{} removed", removed.id)?;
                    for line in &removed.work {
                        writeln!(out, "  {}", inert::line(line))?;
                    }
                }
                gone.push(removed);
            }
            Err(error) => {
                if let Some(earlier) = failed.replace(worded(error)) {
                    earlier.show();
                }
            }
        }
    }
    if args.json {
        json_line(&gone, out)?;
    }
    failed.map_or(Ok(Code::Done), Err)
}
