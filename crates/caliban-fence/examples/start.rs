//! Starts `true` once, for the benchmark: by itself (no argument), or in the edit fence that a given program puts up, with a
//! given project in it.

use std::{
    path::PathBuf,
    process::{Command, ExitCode},
};

use caliban_core::fence::Profile;
use caliban_fence::{Access, Fence, Order, Text};

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let (Some(helper), Some(project)) = (arguments.next(), arguments.next()) else {
        return ended(Command::new("true").status());
    };
    let mut fence = Fence::new(Profile::Edit, "/home/nobody");
    fence.show(&project, Access::ReadWrite);
    fence.show_if_there(&project.join(".git"), Access::ReadOnly);
    let order = Order {
        fence,
        program: Text::from("true"),
        arguments: Vec::new(),
        directory: project.into(),
        environment: vec![(Text::from("PATH"), Text::from("/usr/bin:/bin"))],
        descriptors: Vec::new(),
    };
    ended(order.command(&helper).and_then(|(mut command, _until_it_ended)| command.status()))
}

fn ended(status: std::io::Result<std::process::ExitStatus>) -> ExitCode {
    match status {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}
