//! `caliban dashboard`: the arguments.

use std::{net::IpAddr, path::PathBuf};

use clap::Args;

#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Prints a link that signs one browser in, once, and serves until Ctrl+C. Where it runs already, it prints another link.

Examples:
  caliban dashboard
  caliban dashboard --no-open --port 0 --json | jq -r .url
  caliban dashboard --qr --host 0.0.0.0 --tls-cert cert.pem --tls-key key.pem --token-file ~/.caliban-token
  ssh -L 8000:127.0.0.1:8000 HOST caliban dashboard --no-open")]
pub(crate) struct DashboardArgs {
    /// The address to listen on; one that other machines reach needs TLS and a token file
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    pub host: IpAddr,
    /// The port; 0 takes any that is free
    #[arg(long, value_name = "PORT", default_value_t = caliban_web::DEFAULT_PORT)]
    pub port: u16,
    /// Do not open the browser
    #[arg(long)]
    pub no_open: bool,
    /// Show the link as a QR code, too, for the camera of a phone
    #[arg(long, conflicts_with = "json")]
    pub qr: bool,
    /// Print one line of JSON when it listens
    #[arg(long)]
    pub json: bool,
    /// A file, readable by you alone, with the token of scripts
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// The certificates for TLS (PEM)
    #[arg(long, value_name = "FILE")]
    pub tls_cert: Option<PathBuf>,
    /// The key for TLS (PEM)
    #[arg(long, value_name = "FILE")]
    pub tls_key: Option<PathBuf>,
    /// A proxy in front does TLS: the address that browsers use
    #[arg(long, value_name = "URL")]
    pub behind_proxy: Option<String>,
}
