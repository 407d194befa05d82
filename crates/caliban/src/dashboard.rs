//! `caliban dashboard`: serves the web application (`caliban-web`) and opens it in the browser.

use std::{
    io::Write as _,
    path::Path,
    process::{Command, Stdio},
};

use anstyle::{Ansi256Color, Style};
use caliban_web::{Code as QrCode, Exposure, Programs, Reach, Ready, ServerOptions};

use crate::{
    cli::dashboard::DashboardArgs,
    fleet, report,
    report::{Code, Failure, Result},
    settings::Environment,
};

pub(crate) async fn dashboard(args: &DashboardArgs, environment: &Environment, cwd: &Path) -> Result<Code> {
    let reach = Reach {
        tls_cert: args.tls_cert.clone(),
        tls_key: args.tls_key.clone(),
        behind_proxy: args.behind_proxy.clone(),
        has_token_file: args.token_file.is_some(),
    };
    let exposure =
        Exposure::choose(args.host, reach).map_err(|(message, hint)| Failure::usage(message).hint(hint))?;
    let own = crate::compose::own_program()?;
    let options = ServerOptions {
        host: args.host,
        port: args.port,
        exposure,
        sources: fleet::place_sources(environment)?,
        // Without one there are no broker pages.
        broker: caliban_fleet::mailbox::store_url(environment, cwd).ok(),
        token_file: args.token_file.clone(),
        environment: environment.clone(),
        programs: Programs::beside(&own, environment),
    };
    let can_open = !args.no_open
        && !args.json
        && environment.raw("DISPLAY").or(environment.raw("WAYLAND_DISPLAY")).is_some();
    let told = |ready: &Ready| tell(ready, args, can_open);
    let served = caliban_web::serve(options, told).await;
    served.map_err(|error| Failure::hinted(error.to_string(), error.hint()))?;
    Ok(Code::Done)
}

/// stdout has the link, or all of it as JSON. A reader that is gone keeps nobody from serving.
fn tell(ready: &Ready, args: &DashboardArgs, can_open: bool) {
    let mut out = std::io::stdout().lock();
    let line = match args.json {
        true => serde_json::to_string(ready).unwrap_or_default(),
        false => ready.url.clone(),
    };
    let _gone = writeln!(out, "{line}").and_then(|()| out.flush());
    if args.json {
        return;
    }
    match ready.was_running {
        true => report::note(&format!("it runs already (pid {}); the link signs one browser in", ready.pid)),
        false => {
            report::note("the link signs one browser in, once, within 10 minutes; Ctrl+C ends the server")
        }
    }
    if args.qr {
        show_code(&ready.url);
    }
    if can_open {
        let opened = Command::new("xdg-open")
            .arg(&ready.url)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        if opened.is_err() {
            report::note("no browser could be opened; open the link yourself");
        }
    }
}

/// The code of a link, on stderr. Its own colours where there are colours: cameras want dark modules on light ones.
fn show_code(link: &str) {
    let Some(code) = QrCode::of(link) else {
        return report::note("the link is too long for a QR code");
    };
    let style = Style::new().fg_color(Some(Ansi256Color(231).into())).bg_color(Some(Ansi256Color(16).into()));
    let mut out = anstream::stderr().lock();
    let shown: Result<Vec<()>, _> =
        code.lines().iter().map(|line| writeln!(out, "{style}{line}{style:#}")).collect();
    // A terminal that is gone keeps nobody from serving.
    let _gone = shown;
    drop(out);
    report::note(
        "the phone must reach this address: over TLS (--host), through a proxy, or through a tunnel of its own",
    );
}
