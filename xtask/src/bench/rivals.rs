//! Other coding agents on this machine, configured to talk to a local model server only.
//!
//! They are looked up and never installed. A proxy address without a listener keeps them from any other host.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use super::Bed;
use super::measure::Subject;
use crate::run;

/// Where to look besides `PATH`: the directory of the tests with real clients.
const ELSEWHERE: &str = "/tmp/tk-clients/node_modules/.bin";

/// No process listens there.
const NOWHERE: &str = "http://127.0.0.1:9";

/// Another agent.
pub(super) struct Rival {
    /// Its name for people.
    pub(super) name: &'static str,
    /// The command.
    pub(super) subject: Subject,
}

/// Those that are installed, with a prompt to say hello to the server at `url`.
pub(super) fn here(bed: &Bed, url: &str, dir: &Path) -> Result<Vec<Rival>> {
    let mut rivals = Vec::new();
    if let Some(program) = found("codex") {
        rivals.push(Rival { name: "codex exec", subject: codex(bed, &program, url, dir)? });
    }
    if let Some(program) = found("claude") {
        rivals.push(Rival { name: "claude -p", subject: claude(bed, &program, url, dir)? });
    }
    Ok(rivals)
}

fn codex(bed: &Bed, program: &Path, url: &str, dir: &Path) -> Result<Subject> {
    let home = bed.dir("codex-home")?;
    let config = format!(
        "model_provider = \"local\"\nmodel = \"gpt-5.5\"\ncheck_for_update_on_startup = false\n\n\
         [model_providers.local]\nname = \"local\"\nbase_url = \"{url}/v1\"\nwire_api = \"responses\"\n\
         env_key = \"LOCAL_KEY\"\nrequest_max_retries = 0\nstream_max_retries = 0\n\n\
         [features]\nplugins = false\napps = false\n\n[projects.\"{}\"]\ntrust_level = \"trusted\"\n",
        dir.display()
    );
    let place = home.join(".codex");
    std::fs::create_dir_all(&place).context("cannot create .codex")?;
    std::fs::write(place.join("config.toml"), config).context("cannot write codex's config")?;
    let flags =
        ["exec", "--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "hello"];
    Ok(alone(program, &home, dir).env("LOCAL_KEY", "none").args(flags))
}

fn claude(bed: &Bed, program: &Path, url: &str, dir: &Path) -> Result<Subject> {
    let home = bed.dir("claude-home")?;
    let mut subject = alone(program, &home, dir)
        .env("ANTHROPIC_BASE_URL", url)
        .env("ANTHROPIC_API_KEY", "sk-ant-dummy-0123456789012345");
    for name in [
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC",
        "DISABLE_AUTOUPDATER",
        "DISABLE_TELEMETRY",
        "DISABLE_ERROR_REPORTING",
        "IS_SANDBOX",
    ] {
        subject = subject.env(name, "1");
    }
    Ok(subject.args(["-p", "hello"]))
}

/// A program that can reach this machine only.
fn alone(program: &Path, home: &Path, dir: &Path) -> Subject {
    let mut subject = Subject::new(program, home).dir(dir).path(program.parent().unwrap_or(Path::new("/")));
    for name in ["HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"] {
        subject = subject.env(name, NOWHERE);
    }
    subject.env("NO_PROXY", "127.0.0.1,localhost").env("no_proxy", "127.0.0.1,localhost")
}

pub(super) fn found(name: &str) -> Option<PathBuf> {
    let elsewhere = Path::new(ELSEWHERE).join(name);
    let on_path = run::output(run::command("sh").args(["-c", &format!("command -v {name}")])).ok();
    on_path
        .map(|path| PathBuf::from(path.trim()))
        .filter(|path| path.is_file())
        .or_else(|| elsewhere.is_file().then_some(elsewhere))
}
