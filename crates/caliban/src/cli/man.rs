//! `caliban man`.

use std::{io::Write as _, path::PathBuf};

use clap::Args;

use crate::{
    report::{Failure, Result},
    settings::file,
};

#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  caliban man | man -l -
  caliban man --dir ~/.local/share/man/man1")]
pub(crate) struct ManArgs {
    /// Write the pages of all commands to this directory
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
}

/// Prints the manual page, or writes all of them.
pub(crate) fn man(args: &ManArgs) -> Result<()> {
    let command = super::whole();
    if let Some(dir) = &args.dir {
        let cannot = |error: std::io::Error| {
            Failure::new(format!(
                "cannot write the manual pages to {}: {}",
                dir.display(),
                file::words(&error)
            ))
        };
        std::fs::create_dir_all(dir).map_err(cannot)?;
        return clap_mangen::generate_to(command, dir).map_err(cannot);
    }
    let mut page = Vec::new();
    clap_mangen::Man::new(command).render(&mut page)?;
    std::io::stdout().lock().write_all(&page)?;
    Ok(())
}
