//! `caliban agents rm`

use std::io::Write;

use caliban_core::inert;
use caliban_supervisor::protocol::{Removed, RmRequest};

use super::{Fleet, json_line, worded};
use crate::{
    cli::fleet::RmArgs,
    report::{Code, Failure},
};

pub(super) async fn rm(fleet: &Fleet<'_>, args: &RmArgs, out: &mut dyn Write) -> Result<Code, Failure> {
    let mut client = fleet.client().await?;
    let request = RmRequest { force: args.force, keep: args.keep };
    let mut gone: Vec<Removed> = Vec::new();
    let mut failed = None;
    for id in &args.agents.ids {
        match client.rm(id, request).await {
            Ok(removed) => {
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
