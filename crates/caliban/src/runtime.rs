//! The runtimes of our commands. One thread: a turn waits for the model, not for cores.

use std::{io, time::Duration};

use caliban_process::NO_ROOM;
use tokio::{
    fs::File,
    io::AsyncWriteExt as _,
    runtime::{Builder, Runtime},
};

use crate::{
    report::{Failure, Result},
    telemetry,
};

/// How long a thread for blocking work is kept when it has nothing to do, and how often one of them is given something.
const KEPT: Duration = Duration::from_secs(3600);
const KEEPING: Duration = Duration::from_secs(1200);

/// The runtime of a command that needs one.
pub(crate) fn runtime() -> Result<Runtime> {
    built(Builder::new_current_thread().enable_all())
}

/// Runs a command that has agents in this process.
///
/// The runtime panics when it needs a thread for blocking work, has none and gets none. So there is one from the start, and it
/// stays: work that gets no thread of its own waits for it.
pub(crate) fn run_agents<T>(command: impl Future<Output = Result<T>>) -> Result<T> {
    built(Builder::new_current_thread().enable_all().thread_keep_alive(KEPT))?.block_on(async {
        use_blocking_thread().await;
        tokio::spawn(async {
            loop {
                tokio::time::sleep(KEEPING).await;
                use_blocking_thread().await;
            }
        });
        let ended = command.await;
        telemetry::flush().await;
        ended
    })
}

fn built(builder: &mut Builder) -> Result<Runtime> {
    builder.build().map_err(|error| Failure::new(format!("cannot start: {error}")))
}

/// Has a thread for blocking work do something; waits while the system has no room for one.
async fn use_blocking_thread() {
    // A write is the one request for such a thread that ends with an error where there is none.
    let Ok(null) = std::fs::OpenOptions::new().write(true).open("/dev/null") else { return };
    let mut null = File::from_std(null);
    while write(&mut null).await.is_err() {
        tokio::time::sleep(NO_ROOM.1).await;
    }
}

async fn write(file: &mut File) -> io::Result<()> {
    file.write_all(b"\n").await?;
    file.flush().await
}
