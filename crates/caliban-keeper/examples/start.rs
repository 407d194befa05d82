//! Runs `true` once under the reaper that a given program is, for the benchmark: as the user (one argument), or in the edit fence
//! with a given project in it (two arguments).

use std::{
    io::Write as _,
    path::PathBuf,
    process::{Command, ExitCode, Stdio},
};

use caliban_contract::modes;
use caliban_core::fence::Profile;
use caliban_fence::{Access, Fence};
use caliban_keeper::{Launch, Streams};

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let Some(reaper) = arguments.next() else { return ExitCode::FAILURE };
    let project = arguments.next();
    let environment = vec![("PATH".into(), "/usr/bin:/bin".into())];
    let directory = project.clone().unwrap_or_else(|| "/".into());
    let mut launch = Launch::shell("true", directory, environment, Streams::Joined);
    (launch.program, launch.arguments) = ("true".into(), Vec::new());
    launch.fence = project.map(|project| {
        let mut fence = Fence::new(Profile::Edit, "/home/nobody");
        for (place, access) in
            [(project.clone(), Access::ReadWrite), (project.join(".git"), Access::ReadOnly)]
        {
            if let Ok(root) = caliban_rooted::Root::pin(&place) {
                fence.show(&root, access);
            }
        }
        fence
    });
    let ended = launch.encode().and_then(|launch| {
        let mut reaper = Command::new(reaper).arg(modes::REAP).env_clear().stdin(Stdio::piped()).spawn()?;
        // Open until the end: its end is the wish that the command ends.
        let mut stdin = reaper.stdin.take();
        if let Some(stdin) = &mut stdin {
            stdin.write_all(&launch)?;
        }
        reaper.wait()
    });
    match ended {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}
