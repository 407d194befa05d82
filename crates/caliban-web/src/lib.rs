//! The fleet's web application: what `caliban dashboard` and `cafleet server` serve.
//!
//! Owns the API (`docs/reference/web-api.md`), sign-in, and the pages' view of the fleets, the broker and their past.
//! It talks to daemons through `caliban-fleet` and to the broker through `caliban-store`, like the command line. The
//! page itself is `assets/`. It makes no decisions about agents: daemons and agents check who asks.

mod addresses;
mod agent;
mod app;
mod assets;
mod auth;
mod broker;
mod devices;
mod error;
mod fleet;
mod guard;
mod half_open;
mod icon;
mod input;
mod once;
mod openapi;
mod options;
mod past;
mod peer;
mod qr;
mod render;
mod running;
mod seen;
mod server;
mod time;
mod transcript;

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::addresses::Site;
use crate::app::App;
use crate::devices::Devices;
use crate::running::RunningRecord;

pub use options::{DEFAULT_PORT, Exposure, Programs, Reach, Scheme, ServerOptions};
pub use qr::Code;

/// A server that listens, for the messages of the command that started it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ready {
    /// A one-time link.
    pub url: String,
    /// The server's origin.
    pub origin: String,
    /// The address it listens on; behind a proxy the origin does not contain it.
    pub address: SocketAddr,
    /// Its process id.
    pub pid: u32,
    /// The file from which scripts read their token.
    pub token_file: PathBuf,
    /// Whether the server was running already.
    pub was_running: bool,
}

/// Why the server did not start, or ended.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// An agent tried to start it.
    #[error("{0} cannot serve the dashboard")]
    Agent(String),
    /// Another program uses the port.
    #[error("port {0} is taken by another program")]
    Taken(u16),
    /// The address cannot be bound.
    #[error("cannot listen on {0}: {1}")]
    Listen(SocketAddr, io::Error),
    /// Its own files cannot be read or written.
    #[error("{path}: {source}", path = path.display())]
    Files {
        /// The path that failed.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The TLS certificate or key cannot be used.
    #[error("TLS cannot be used: {0}")]
    Tls(io::Error),
    /// The server failed while running.
    #[error("the server broke: {0}")]
    Broken(io::Error),
}

impl ServeError {
    /// What the user can do about it.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Agent(_) => Some("a person starts it, in a terminal of their own"),
            Self::Taken(_) => Some("give another one: --port 8001, or --port 0 for any that is free"),
            Self::Listen(..) => Some("--host takes an address of this machine"),
            Self::Files { .. } => Some("they must be yours alone: chmod 600"),
            Self::Tls(_) => Some("--tls-cert and --tls-key take PEM files"),
            Self::Broken(_) => None,
        }
    }
}

/// Serves until SIGINT or SIGTERM. `ready` is called when the server listens, or when another one turns out to be
/// running already.
///
/// # Errors
/// See [`ServeError`].
pub async fn serve(options: ServerOptions, ready: impl FnOnce(&Ready)) -> Result<(), ServeError> {
    // Its first act is to make a sign-in link, which only a person's process does.
    if let Some(who) = caliban_contract::ancestry::own().agent_in_words() {
        return Err(ServeError::Agent(who));
    }
    let dir = options.sources.data.join("web");
    let devices = Devices::open(&dir, options.token_file.as_deref()).map_err(|source| ServeError::Files {
        path: options.token_file.clone().unwrap_or_else(|| dir.clone()),
        source,
    })?;
    let wanted = SocketAddr::new(options.host, options.port);
    let listener = match tokio::net::TcpListener::bind(wanted).await {
        Ok(listener) => listener,
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            let found = running::ask(&dir, wanted, devices.token_file(), devices.bearer()).await;
            ready(&found.ok_or(ServeError::Taken(options.port))?);
            return Ok(());
        }
        Err(error) => return Err(ServeError::Listen(wanted, error)),
    };
    let address = listener.local_addr().map_err(|error| ServeError::Listen(wanted, error))?;
    let tls = match &options.exposure {
        Exposure::Tls { cert, key } => Some(server::acceptor(cert, key).map_err(ServeError::Tls)?),
        Exposure::Loopback | Exposure::Proxy { .. } => None,
    };
    let (tls, cert) = tls.unzip();
    let _record =
        RunningRecord::new(cert.as_ref(), devices.token_file().to_owned()).write(&dir, address.port());
    let site = Site::new(devices.name(), address, &options.exposure, cert);
    let token_file = devices.token_file().to_owned();
    let app = Arc::new(App::new(options, site, devices).map_err(ServeError::Broken)?);
    let url = app.link().map_err(ServeError::Broken)?;
    let origin = app.site.origin();
    ready(&Ready { url, origin, address, pid: std::process::id(), token_file, was_running: false });
    tokio::select! {
        ended = server::run(listener, app::router(Arc::clone(&app)), tls) => ended.map_err(ServeError::Broken),
        () = fleet::follow(Arc::clone(&app)) => Ok(()),
        () = fleet::follow_today(Arc::clone(&app)) => Ok(()),
        () = broker::watch(app) => Ok(()),
    }
}
