//! `server`: serves the web application (`caliban-web`) until it is stopped.

use std::net::{IpAddr, Ipv4Addr};

use caliban_web::{Code, DEFAULT_PORT, Exposure, Programs, Reach, Ready, ServerOptions};
use serde_json::json;

use crate::answer::{self, VerbAnswer};
use crate::args::ServerArgs;
use crate::context::VerbContext;
use crate::failure::{Failure, shown};
use crate::render::json::{self, Style};

pub(crate) async fn run(context: &mut VerbContext, args: &ServerArgs) -> Result<VerbAnswer, Failure> {
    let (settings, style) = (&context.settings, context.style);
    let host = match (args.host, &settings.server.host) {
        (Some(host), _) => host,
        (None, Some(text)) => parsed("CAFLEET_BROKER_HOST", "an address", text)?,
        (None, None) => IpAddr::V4(Ipv4Addr::LOCALHOST),
    };
    let port = match (args.port, &settings.server.port) {
        (Some(port), _) => port,
        (None, Some(text)) => parsed("CAFLEET_BROKER_PORT", "a port", text)?,
        (None, None) => DEFAULT_PORT,
    };
    let reach = Reach {
        tls_cert: args.tls_cert.clone(),
        tls_key: args.tls_key.clone(),
        behind_proxy: args.behind_proxy.clone(),
        has_token_file: args.token_file.is_some(),
    };
    let refused = |message: String, hint| Failure::refused("server", message).hint(hint);
    let exposure =
        Exposure::choose(host, reach).map_err(|(message, hint)| refused(message.to_owned(), hint))?;
    let sources = settings.server.places.clone().ok_or_else(|| {
        refused("HOME is not set".to_owned(), "set HOME, or XDG_DATA_HOME to an absolute path")
    })?;
    let environment = crate::settings::whole().with(std::mem::take(&mut context.secrets));
    let own = std::env::current_exe()
        .map_err(|error| Failure::internal(format!("cannot tell which program this is: {error}")))?;
    let options = ServerOptions {
        host,
        port,
        exposure,
        sources,
        broker: Some(settings.database()?),
        token_file: args.token_file.clone(),
        programs: Programs::beside(&own, &environment),
        environment,
    };
    caliban_web::serve(options, |ready| tell(ready, style, args.qr))
        .await
        .map_err(|error| refused(shown(&error.to_string()), error.hint().unwrap_or("try again")))?;
    Ok(VerbAnswer::said())
}

fn parsed<T: std::str::FromStr>(name: &str, what: &str, text: &str) -> Result<T, Failure> {
    text.trim()
        .parse()
        .map_err(|_| Failure::refused("settings", format!("{name} must be {what}, not '{}'", shown(text))))
}

fn tell(ready: &Ready, style: Style, qr: bool) {
    match style {
        Style::Text => {
            answer::say(&ready.url);
            let what = if ready.was_running { "it runs already; " } else { "" };
            answer::talk(&format!("note: {what}the link signs one browser in, once, within 10 minutes\n"));
            if qr {
                show_code(&ready.url);
            }
        }
        style => answer::say(&json::write(&json!(ready), style)),
    }
}

/// Prints the QR code of a link on stderr: stdout has the link alone.
fn show_code(link: &str) {
    match Code::of(link) {
        Some(code) => code.lines().iter().for_each(|line| answer::talk(&format!("{line}\n"))),
        None => answer::talk("note: the link is too long for a QR code\n"),
    }
}
