//! `man`: the manual page, or the pages of all commands, generated from the definition of the command line.

use clap::CommandFactory;
use serde_json::json;

use crate::answer::VerbAnswer;
use crate::args::{Cli, ManArgs};
use crate::failure::{Failure, shown};

pub(crate) fn run(args: &ManArgs) -> Result<VerbAnswer, Failure> {
    let failed = |error: std::io::Error| {
        let place = args.dir.as_deref().map(|dir| dir.display().to_string()).unwrap_or_default();
        Failure::internal(format!("cannot write the manual pages to {}: {error}", shown(&place)))
    };
    let command = Cli::command();
    if let Some(dir) = &args.dir {
        std::fs::create_dir_all(dir).map_err(failed)?;
        clap_mangen::generate_to(command, dir).map_err(failed)?;
        let place = dir.display().to_string();
        return Ok(VerbAnswer::new(
            format!("Manual pages are in {}", shown(&place)),
            json!({"directory": place}),
        ));
    }
    let mut page = Vec::new();
    clap_mangen::Man::new(command).render(&mut page).map_err(failed)?;
    let page = String::from_utf8_lossy(&page).into_owned();
    Ok(VerbAnswer::new(page.trim_end(), json!({"page": page})))
}
