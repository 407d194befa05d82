//! `caliban gateway`: serves until it is told to stop, for all who have a token.

use std::{io::Write as _, net::SocketAddr, path::PathBuf};

use caliban_gateway::Keys;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::{Deserialize, Serialize};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::{bind, kept, only_a_person};
use crate::{
    cli::gateway::GatewayArgs,
    report::{self, Code, Failure},
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

    /// The one that runs, as far as can be told without asking it.
    pub(super) fn find(loaded: &Loaded) -> Option<Self> {
        let text = std::fs::read_to_string(Self::file(loaded)).ok()?;
        let running: Self = serde_json::from_str(&text).ok()?;
        std::net::TcpStream::connect(running.address).is_ok().then_some(running)
    }

    /// Best effort: without it `caliban gateway env` does not find the gateway.
    fn write(&self, loaded: &Loaded) -> std::io::Result<()> {
        let file = Self::file(loaded);
        if let Some(dir) = file.parent() {
            std::fs::create_dir_all(dir)?;
        }
        std::fs::write(file, serde_json::to_vec(self)?)
    }
}

pub(super) async fn serve(
    args: &GatewayArgs,
    loaded: &Loaded,
    environment: &Environment,
) -> Result<Code, Failure> {
    only_a_person("serve others")?;
    take_descriptors();
    let gateway = bind(args.port, args.max_wait, Keys::Kept(kept(loaded)), loaded, environment).await?;
    let running = Running { address: gateway.address(), pid: std::process::id() };
    if let Err(error) = running.write(loaded) {
        report::note(&format!("`caliban gateway env` will not find this gateway: {error}"));
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
    // Another one may have taken its place.
    if Running::find(loaded).is_none() {
        let _nobody_finds_it = std::fs::remove_file(Running::file(loaded));
    }
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
