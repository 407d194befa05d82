//! The text of a PDF. The parser gets a process of its own with little memory and time: a document may be made to use
//! all of both, and the parser panics on some.

use std::{
    io::{self, Read, Write},
    path::Path,
    process::ExitCode,
    time::Duration,
};

use caliban_contract::modes;
use caliban_keeper::{CommandEnd, KeptOutput, Launch, LaunchEnvironment, Streams, Supervised};
use caliban_rooted::real_path;
use rustix::process::{Resource, Rlimit, setrlimit};
use tokio_util::sync::CancellationToken;

use crate::{Workspace, blocking, error_text, limits::FILE_BYTES};

/// How long the parser may take.
const TIME: Duration = Duration::from_secs(30);
/// Address space of the parser.
const MEMORY: u64 = 2 << 30;
/// Bytes of text that are taken of one document.
const TEXT_BYTES: usize = 8 << 20;

/// The text of the PDF at a real path, page by page.
pub(super) async fn text(
    workspace: &Workspace,
    shown: &str,
    real: &Path,
    cancel: &CancellationToken,
) -> Result<String, String> {
    let launch = Launch {
        program: workspace.helper().into(),
        arguments: vec![modes::PDF.into(), real.into()],
        directory: "/".into(),
        identity: None,
        environment: LaunchEnvironment::Exactly(Vec::new()),
        streams: Streams::Apart { input: "".into() },
        fence: None,
        limits: caliban_contract::tree_limits::TreeLimits::default(),
    };
    let helper = workspace.helper().to_owned();
    let reading = Supervised { helper, launch, limit: TIME, keep: KeptOutput::First(TEXT_BYTES) };
    let ended =
        reading.run(cancel).await.map_err(|error| format!("{shown}: {}", error_text::reason(&error)))?;
    match (ended.why, ended.code) {
        (CommandEnd::Cancelled, _) => Err(blocking::INTERRUPTED.into()),
        (CommandEnd::Itself, Some(0)) => {
            let text = String::from_utf8_lossy(&ended.stdout).into_owned();
            let has_text = text.lines().any(|line| !line.trim().is_empty() && !line.starts_with("[page "));
            if has_text {
                return Ok(text);
            }
            let pages = error_text::counted(text.lines().count() as u64, "page", "pages");
            Err(format!("{shown} is a PDF of {pages} without text: its pages are pictures"))
        }
        (CommandEnd::Timeout, _) => {
            Err(format!("{shown} is a PDF that takes more than {} s to read", TIME.as_secs()))
        }
        (CommandEnd::Itself, _) => {
            let said = String::from_utf8_lossy(&ended.stderr);
            let reason =
                said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("the parser failed");
            Err(format!("{shown} is a PDF that cannot be read: {}", reason.trim()))
        }
    }
}

/// Runs the mode of [`modes::PDF`]: prints the text of a PDF.
pub fn pdf_main(path: &Path) -> ExitCode {
    for (resource, limit) in [(Resource::As, MEMORY), (Resource::Cpu, TIME.as_secs()), (Resource::Core, 0)] {
        // Without the limit the caller's time limit still holds.
        let _best_effort = setrlimit(resource, Rlimit { current: Some(limit), maximum: Some(limit) });
    }
    match pages(path) {
        Ok(pages) => {
            let mut out = io::stdout().lock();
            for (index, page) in pages.iter().enumerate() {
                let text = page.trim_matches('\n');
                let end = if text.is_empty() { "" } else { "\n" };
                // Who does not read it any more needs no error.
                let _best_effort = write!(out, "[page {}]\n{text}{end}", index + 1);
            }
            ExitCode::SUCCESS
        }
        Err(error) => {
            let _best_effort = writeln!(io::stderr(), "{error}");
            ExitCode::FAILURE
        }
    }
}

fn pages(path: &Path) -> Result<Vec<String>, String> {
    let mut bytes = Vec::new();
    let file = real_path::open_file(path).map_err(|error| error_text::reason(&error))?;
    file.take(FILE_BYTES + 1).read_to_end(&mut bytes).map_err(|error| error_text::reason(&error))?;
    if bytes.len() as u64 > FILE_BYTES {
        return Err(format!("it is larger than {}", error_text::bytes(FILE_BYTES)));
    }
    pdf_extract::extract_text_from_mem_by_pages(&bytes).map_err(|error| error.to_string().to_lowercase())
}
