//! Runs our sibling programs for what only they can do: a new agent takes the settings, trust and environment of its
//! repo.

use std::ffi::OsString;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use http::StatusCode;
use serde_json::Value;
use tokio::process::Command;

use crate::error::Problem;
use crate::options::Programs;

/// Time limit of a program. A resume waits for a worker, a respawn for the end of a process tree.
const LIMIT: Duration = Duration::from_secs(120);
/// Maximum size of the output.
const CAP: usize = 16 * 1024 * 1024;

/// Runs `caliban` and parses its JSON. Its stderr becomes the error.
pub(crate) async fn caliban(programs: &Programs, args: &[String]) -> Result<Value, Problem> {
    json(&programs.caliban, args, &programs.secrets).await
}

/// Runs a program with further environment variables.
pub(crate) async fn json(
    program: &Path,
    args: &[String],
    variables: &[(OsString, OsString)],
) -> Result<Value, Problem> {
    let name = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let failed = |why: String| Problem::internal(format!("{name} cannot be run: {why}"));
    let child = Command::new(program)
        .args(args)
        .envs(variables.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| failed(error.to_string()))?;
    let output = tokio::time::timeout(LIMIT, child.wait_with_output())
        .await
        .map_err(|_| Problem::new(StatusCode::GATEWAY_TIMEOUT, "timeout", format!("{name} takes too long")))?
        .map_err(|error| failed(error.to_string()))?;
    if !output.status.success() || output.stdout.len() > CAP {
        return Err(refusal(&name, output.status.code(), &output.stderr));
    }
    serde_json::from_slice(&output.stdout).map_err(|error| failed(error.to_string()))
}

/// The `error: …` and `hint: …` lines of one of our programs.
fn refusal(name: &str, code: Option<i32>, stderr: &[u8]) -> Problem {
    let text = caliban_core::inert::block(&String::from_utf8_lossy(stderr)).into_owned();
    let find =
        |word: &str| text.lines().find_map(|line| line.strip_prefix(word)).map(|said| said.trim().to_owned());
    let message = find("error:").or_else(|| find("Error:"));
    let message = message.unwrap_or_else(|| match text.lines().next_back() {
        Some(last) => last.to_owned(),
        None => format!("{name} ended with {code:?}"),
    });
    let (status, word) = if code == Some(2) {
        (StatusCode::BAD_REQUEST, "bad_request")
    } else {
        (StatusCode::CONFLICT, "conflict")
    };
    Problem { hint: find("hint:"), ..Problem::new(status, word, message) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_program_says_is_the_error() {
        let said = b"note: x\nerror: there is no agent type \"x\"\nhint: known: review\n";
        let problem = refusal("caliban", Some(2), said);
        assert_eq!(
            (problem.status, problem.message.as_str()),
            (StatusCode::BAD_REQUEST, "there is no agent type \"x\"")
        );
        assert_eq!(problem.hint.as_deref(), Some("known: review"));
        assert_eq!(refusal("caliban", Some(1), b"").message, "caliban ended with Some(1)");
    }
}
