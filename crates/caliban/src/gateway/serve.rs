//! `caliban gateway`: serves until it is told to stop, for all who have a token.

use std::{
    fs::File,
    io::{self, Write as _},
    net::SocketAddr,
    path::PathBuf,
};

use caliban_gateway::Keys;
use rustix::{
    fs::{FlockOperation, flock},
    process::{Resource, Rlimit, getrlimit, setrlimit},
};
use serde::{Deserialize, Serialize};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::{bind, kept, only_a_person};
use crate::{
    cli::gateway::GatewayArgs,
    report::{self, Code, Result},
    settings::{Environment, Loaded},
};

/// A gateway that runs, as it says of itself.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Running {
    pub(super) address: SocketAddr,
    pub(super) pid: u32,
}

impl Running {
    pub(super) fn file(loaded: &Loaded) -> PathBuf {
        loaded.paths.data.join("gateway/running.json")
    }

    /// The one that runs. It holds a lock on its file: one that was killed is not found, whoever has its port now.
    pub(super) fn find(loaded: &Loaded) -> Option<Self> {
        let file = File::open(Self::file(loaded)).ok()?;
        flock(&file, FlockOperation::NonBlockingLockShared).is_err().then_some(())?;
        serde_json::from_reader(file).ok()
    }

    /// Says where it runs, until the file is dropped. `None` when another gateway does already.
    fn announce(&self, loaded: &Loaded) -> io::Result<Option<File>> {
        let path = Self::file(loaded);
        if let Some(dir) = path.parent() {
            std::fs::create_dir_all(dir)?;
        }
        let mut file = File::options().create(true).truncate(false).write(true).open(path)?;
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            return Ok(None);
        }
        file.set_len(0)?;
        file.write_all(&serde_json::to_vec(self)?)?;
        Ok(Some(file))
    }
}

pub(super) async fn serve(args: &GatewayArgs, loaded: &Loaded, environment: &Environment) -> Result<Code> {
    only_a_person("serve others")?;
    take_descriptors();
    let gateway = bind(args.port, args.max_wait, Keys::Kept(kept(loaded)), loaded, environment).await?;
    let running = Running { address: gateway.address(), pid: std::process::id() };
    let announced = running.announce(loaded);
    match &announced {
        Ok(Some(_)) => {}
        Ok(None) => report::note("another gateway runs, and `caliban gateway env` leads to that one"),
        Err(error) => report::note(&format!("`caliban gateway env` will not find this gateway: {error}")),
    }
    let stop = CancellationToken::new();
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    tell(&running, args.json);
    let told = async {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        stop.cancel();
    };
    tokio::join!(gateway.serve(stop.clone()), told);
    drop(announced);
    Ok(Code::Done)
}

/// Each request takes two descriptors, and a shell allows few.
fn take_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    let _as_many_as_there_were = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// stdout has the address, or all of it as JSON. A reader that is gone keeps nobody from serving.
fn tell(running: &Running, json: bool) {
    let line = match json {
        true => serde_json::to_string(running).unwrap_or_default(),
        false => format!("http://{}", running.address),
    };
    let mut out = std::io::stdout().lock();
    let _gone = writeln!(out, "{line}").and_then(|()| out.flush());
    if !json {
        report::note(
            "programs need a token: `caliban gateway token create --label NAME`; Ctrl+C ends the gateway",
        );
    }
}
