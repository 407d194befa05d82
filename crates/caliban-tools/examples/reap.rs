//! The reaper of commands for the tests: what the `caliban` binary is in its hidden mode. With
//! `__pdf`, its reader of PDFs. With `hold`, a process that holds
//! a lock as a daemon does.

use std::process::Command;

fn main() -> std::process::ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    match arguments.next() {
        Some(mode) if mode == "hold" => {
            hold(arguments.map(Into::into).collect::<Vec<std::path::PathBuf>>().as_slice())
        }
        Some(mode) if mode == caliban_contract::modes::DETACHED => {
            caliban_keeper::detached_main(arguments.next().unwrap_or_default().as_ref())
        }
        Some(mode) if mode == caliban_contract::modes::PDF => {
            caliban_tools::pdf_main(arguments.next().unwrap_or_default().as_ref())
        }
        Some(mode) if mode == caliban_contract::modes::FENCE => {
            caliban_fence::fence_main(&arguments.collect::<Vec<_>>())
        }
        _ => caliban_keeper::reaper_main(),
    }
}

/// Leads a session, hides, takes the lock of this name in a directory, starts somebody below itself, says who both are, and stays.
fn hold(arguments: &[std::path::PathBuf]) -> std::process::ExitCode {
    let [directory, name, said] = arguments else { return 2.into() };
    let _leader_already = rustix::process::setsid();
    if caliban_fence::hide_memory().is_err() {
        return 1.into();
    }
    let below = caliban_contract::lock::HeldLock::try_keep(&directory.join(name))
        .and_then(|held| held.ok_or_else(|| std::io::Error::other("held")))
        .and_then(|held| Command::new("sleep").arg("1000").spawn().map(|below| (held, below)));
    let Ok((_held, mut below)) = below else { return 1.into() };
    let text = format!("{} {}", std::process::id(), below.id());
    let next = said.with_extension("next");
    #[expect(clippy::disallowed_methods, reason = "a test's own directory")]
    if std::fs::write(&next, text).and_then(|()| std::fs::rename(next, said)).is_err() {
        return 1.into();
    }
    let _ended = below.wait();
    0.into()
}
