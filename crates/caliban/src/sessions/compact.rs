//! `caliban sessions compact`: a summary for the model in place of the older part.

use std::{io::Write, path::Path};

use caliban_agent::{
    Agent, Attendance,
    blueprint::{Kin, Wanted, WorkspaceSource},
    event::Outcome,
};
use caliban_tools::WorkspaceOptions;
use tokio_util::sync::CancellationToken;

use crate::{
    cli::AgentFlags,
    compose::compose,
    place::Found,
    report::{Code, Failure},
    settings::Environment,
};

pub(super) fn compact(
    found: &Found,
    environment: &Environment,
    cwd: &Path,
    out: &mut dyn Write,
) -> Result<Code, Failure> {
    crate::runtime()?.block_on(async {
        let composition = compose(environment, cwd, &AgentFlags::default(), None, Attendance::Nobody).await?;
        let workspace =
            WorkspaceOptions { output_dir: found.directory.join("outputs"), ..composition.workspace };
        let wanted = Wanted {
            session: found.id.to_string(),
            label: None,
            directory: found.directory.clone(),
            workspace: WorkspaceSource::New(workspace),
            kin: Kin::Independent,
            tools: None,
            role: None,
        };
        let failed = |error: &dyn std::error::Error| Failure::new(crate::print::chain(error));
        let kit = composition.blueprint.kit(wanted).map_err(|error| failed(&error))?;
        let mut agent = Agent::resume(kit).await.map_err(|error| failed(&error))?;
        let before = agent.conversation().messages().len();
        let result = agent.compact(&CancellationToken::new()).await;
        let after = agent.conversation().messages().len();
        agent.close().await;
        match result {
            Ok(()) => {
                writeln!(
                    out,
                    "Session {}: {before} messages became {after}; the transcript keeps everything.",
                    found.id
                )?;
                Ok(Code::Done)
            }
            Err(Outcome::Failed { error, hint }) => {
                let failure = Failure::new(error);
                Err(match hint {
                    Some(hint) => failure.hint(hint),
                    None => failure,
                })
            }
            Err(other) => Err(Failure::new(format!("not compacted: {other:?}"))),
        }
    })
}
