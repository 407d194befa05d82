//! `caliban gateway env`: shell commands that lead the programs of a shell through the gateway.

use std::{
    io::Write as _,
    net::{Ipv4Addr, SocketAddr},
};

use caliban_gateway::DEFAULT_PORT;

use super::{kept, new_token, only_a_person, programs::Lead, serve::Running};
use crate::{
    cli::gateway::EnvArgs,
    report::{self, Code, Result},
    settings::Loaded,
};

pub(super) fn env(args: &EnvArgs, loaded: &Loaded) -> Result<Code> {
    only_a_person("make a token")?;
    let address = match Running::find(loaded) {
        Some(running) => running.address,
        None => {
            report::note("no gateway runs: start one with `caliban gateway`");
            SocketAddr::from((Ipv4Addr::LOCALHOST, DEFAULT_PORT))
        }
    };
    let (token, text) = kept(loaded).create(new_token(&args.label, &args.budget, None, loaded))?;
    let lead = Lead::usual(address, &text);
    let mut out = std::io::stdout().lock();
    if args.json {
        let all: serde_json::Map<String, serde_json::Value> =
            lead.set.into_iter().map(|(name, value)| (name.to_owned(), value.into())).collect();
        crate::fleet::json_line(&all, &mut out)?;
    } else {
        // Addresses and tokens have no character that a shell reads as anything else.
        for (name, value) in lead.set {
            writeln!(out, "export {name}={value}")?;
        }
        for name in lead.unset {
            writeln!(out, "unset {name}")?;
        }
    }
    report::note(&format!("`caliban gateway token rm {}` makes this token void", token.id));
    Ok(Code::Done)
}
