//! Runs the model server by hand: `cargo run -p testkit --example model-server -- script.json [--port N]`.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program for people")]

use std::process::ExitCode;

use testkit::ModelServer;
use testkit::script::Script;

const USAGE: &str = "usage: model-server SCRIPT.json [--port N] [--key KEY] [--model NAME]...";

fn main() -> ExitCode {
    match started() {
        Ok(server) => {
            println!("{}", server.url());
            // Until it is killed.
            loop {
                std::thread::park();
            }
        }
        Err(problem) => {
            eprintln!("{problem}");
            ExitCode::from(2)
        }
    }
}

fn started() -> Result<ModelServer, String> {
    let (mut file, mut port, mut key, mut models) = (None, 0, None, Vec::new());
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or(format!("{arg} needs a value\n{USAGE}"));
        match arg.as_str() {
            "--port" => port = value()?.parse().map_err(|e| format!("--port: {e}\n{USAGE}"))?,
            "--key" => key = Some(value()?),
            "--model" => models.push(value()?),
            _ if arg.starts_with('-') || file.is_some() => return Err(USAGE.to_owned()),
            _ => file = Some(arg),
        }
    }
    let file = file.ok_or(USAGE)?;
    let text = std::fs::read_to_string(&file).map_err(|e| format!("{file}: {e}"))?;
    let script = Script::parse(&text).map_err(|e| format!("{file}: {e}"))?;
    let mut builder = ModelServer::builder(script).port(port).without_record();
    if let Some(key) = key {
        builder = builder.require_key(key);
    }
    if !models.is_empty() {
        builder = builder.known_models(models);
    }
    Ok(builder.start())
}
