//! Bash: a command in a shell, kept by the reaper so that nothing of it outlives the call.

use std::{
    ffi::OsString,
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use caliban_contract::records::ToldBy;
use caliban_core::{
    access::Access,
    message::{ResultPart, ToolSpec},
};
use caliban_fence::Fenced;
use caliban_keeper::{ExitOutcome, Report, Streams};
use caliban_rooted::{Identity, Root};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    BuiltinTool, CallContext, ToolOutput, Workspace,
    bash::{
        job::{Ending, JobRequest},
        jobs::JobState,
    },
    blocking, error_text, full_output, input,
    limits::COMMAND_BYTES,
};

pub(crate) mod bash_input;
mod capture;
pub(crate) mod detach;
mod fence_report;
mod job;
pub(crate) mod jobs;
pub(crate) mod kill;
mod orphans;
pub(crate) mod output;
mod script;
mod strip_escapes;

pub use orphans::MARK as JOB_MARK;

/// How background jobs have ended of whose end the model does not know. All of them together are as long as the output of one
/// call may be: they come as one message.
pub(crate) fn unreported(workspace: &Workspace) -> Vec<String> {
    let ended = workspace.jobs.unreported();
    let chars = workspace.options.limits.output_chars / ended.len().max(1);
    ended
        .iter()
        .map(|(id, job)| output::report_within(workspace, id, job, None, chars).joined_text())
        .collect()
}

/// How long the first output of a command in a terminal is waited for.
const FIRST_WORDS: Duration = Duration::from_secs(3);

/// What outlives its agent runs outside of the fence, and is judged so.
const DETACHED: &str = "it goes on when the agent has ended";

pub(crate) struct Bash(pub(crate) Arc<Workspace>);

#[derive(Deserialize)]
struct BashCommandInput {
    command: String,
    /// In milliseconds.
    #[serde(default, deserialize_with = "input::number")]
    timeout: Option<u64>,
    #[serde(default, deserialize_with = "input::flag")]
    run_in_background: bool,
    #[serde(default, deserialize_with = "input::flag")]
    tty: bool,
    #[serde(default, deserialize_with = "input::flag")]
    detach: bool,
    #[serde(default, deserialize_with = "input::text")]
    description: Option<String>,
    #[serde(default, deserialize_with = "input::flag")]
    outside: bool,
}

impl BuiltinTool for Bash {
    fn spec(&self) -> ToolSpec {
        let limits = &self.0.options.limits;
        ToolSpec {
            name: "Bash".into(),
            description:
                "Run a shell command. The working directory is kept between calls; other shell state is \
                not. No terminal, no input. What the command leaves running is ended with it: use \
                run_in_background for servers and long jobs, which end with the session."
                    .into(),
            input_schema: json!({"type": "object", "properties": {
                "command": {"type": "string"},
                "timeout": {"type": "integer", "description": format!(
                    "milliseconds, default {}, at most {}",
                    limits.command_time.as_millis(),
                    limits.command_time_max.as_millis()
                )},
                "run_in_background": {"type": "boolean", "description": "returns an id for BashOutput and KillShell"},
                "tty": {"type": "boolean", "description": "in the background, in a terminal: BashInput types into it"},
                "detach": {"type": "boolean", "description": "a service that outlives you; the user must allow it"},
                "description": {"type": "string", "description": "what it does, in a few words"},
                "outside": {"type": "boolean", "description": "asks the user to run it outside of the fence, when its \
                    result says that the fence is in the way; say why in description"}
            }, "required": ["command"]}),
        }
    }

    fn access(&self, input: &Value) -> Result<Vec<Access>, String> {
        let input = checked(input)?;
        let cwd = self.0.cwd();
        self.0.judged.note(&words(&input.command), &cwd);
        let outside = match input.description {
            Some(why) if input.outside || input.detach => Some(why),
            None if input.detach => Some(DETACHED.to_owned()),
            None if input.outside => Some(String::new()),
            Some(_) | None => None,
        };
        let detached = input.detach.then(|| Access::Detach { line: input.command.clone() });
        let command = Access::Command { line: input.command, cwd, outside };
        Ok([command].into_iter().chain(detached).collect())
    }

    async fn run(&self, input: &Value, call: &CallContext<'_>) -> Result<ToolOutput, String> {
        match checked(input)? {
            input if input.detach && call.fence.is_some() => {
                Err("internal fault: a detached command cannot be kept in a fence".to_owned())
            }
            input if input.detach => self.detach(input).await,
            input if input.tty => self.terminal(input, call).await,
            input if input.run_in_background => self.background(input, call).await,
            input => self.foreground(input, call).await,
        }
    }
}

impl Bash {
    async fn foreground(
        &self,
        input: BashCommandInput,
        call: &CallContext<'_>,
    ) -> Result<ToolOutput, String> {
        if call.cancel.is_cancelled() {
            return Err(blocking::INTERRUPTED.into());
        }
        let limits = &self.0.options.limits;
        let limit = time(input.timeout).unwrap_or(limits.command_time).min(limits.command_time_max);
        let (began, note) = self.stand_somewhere(&input.command)?;
        let keep = capture::CaptureToFile::WhenLarge;
        let request = self.request(input, &began, Some(limit), keep, call.fence.clone())?;
        let (job, mut live) = self.0.jobs.start(request, call.cancel).await?;
        // However this future ends, the command ends.
        let _end = job.stop.clone().drop_guard();
        let mut state = job.state.clone();
        let ended = async {
            // Closed by the job's task when it is done.
            while let Some(text) = live.recv().await {
                (call.progress)(&text);
            }
            state.wait_for(JobState::is_ended).await.map(|_| ())
        };
        tokio::select! {
            biased;
            ended = ended => ended.map_err(|_| "internal fault: the command was lost".to_owned())?,
            () = call.cancel.cancelled() => {
                let text = job.take();
                let output = job.output(&self.0, &text, "[interrupted: everything it started is being ended]", self.0.options.limits.output_chars);
                return Ok(ToolOutput { is_error: true, summary: "interrupted".into(), ..output });
            }
        }
        let Some(ending) = job.ending() else { return Err("internal fault: the command was lost".into()) };
        Ok(self.told(&job, &ending, &began, limit, note))
    }

    async fn background(
        &self,
        input: BashCommandInput,
        call: &CallContext<'_>,
    ) -> Result<ToolOutput, String> {
        let (stand, note) = self.stand_somewhere(&input.command)?;
        let limit = time(input.timeout);
        let request =
            self.request(input, &stand, limit, capture::CaptureToFile::Always, call.fence.clone())?;
        let (id, job) = self.0.jobs.start_background(request, call.cancel).await?;
        let place = match job.file() {
            Some(path) => format!("; its output goes to {}", path.display()),
            None => String::new(),
        };
        let text = format!(
            "started in the background as {id}{place}. BashOutput shows what is new, KillShell ends it."
        );
        Ok(ToolOutput::text(full_output::joined(&text, &note.unwrap_or_default()), format!("started {id}")))
    }

    /// Starts it in a terminal and shows what it says first.
    async fn terminal(&self, input: BashCommandInput, call: &CallContext<'_>) -> Result<ToolOutput, String> {
        let (stand, note) = self.stand_somewhere(&input.command)?;
        let limit = time(input.timeout);
        let request =
            self.request(input, &stand, limit, capture::CaptureToFile::Always, call.fence.clone())?;
        let (id, job) = self.0.jobs.start_background(request, call.cancel).await?;
        tokio::select! {
            biased;
            () = job.settled(job.said.clone(), FIRST_WORDS) => {}
            () = call.cancel.cancelled() => {}
        }
        let mut output = output::report(&self.0, &id, &job, None);
        let note = note.map(|note| format!("\n{note}")).unwrap_or_default();
        let text = format!("started in a terminal as {id}: BashInput types into it, KillShell ends it{note}");
        output.content.insert(0, ResultPart::Text { text });
        Ok(output)
    }

    fn request(
        &self,
        input: BashCommandInput,
        stand: &Stand,
        limit: Option<Duration>,
        keep: capture::CaptureToFile,
        fence: Option<Fenced>,
    ) -> Result<JobRequest, String> {
        let options = &self.0.options;
        let streams = if input.tty { Streams::Terminal } else { Streams::Shell };
        let (mut launch, mark) = script::launch(&input.command, stand.cwd.clone(), &options.env, streams);
        launch.identity = stand.identity;
        let again = fence.as_ref().and_then(|fence| fence.again.clone());
        let (fence, steps) = fence.map(Fenced::begin).transpose()?.unzip();
        launch.fence = fence;
        launch.limits = options.limits.taken;
        Ok(JobRequest {
            held_together: options.limits.holds_all.then_some(options.limits.taken),
            again,
            helper: options.helper.clone(),
            launch,
            mark,
            capture: capture::Capture::new(self.0.outputs.clone(), keep),
            limit,
            command: input.command,
            description: input.description,
            steps,
        })
    }

    /// The directory in which the command runs: the one that the permission rules saw. If it is gone, the root takes its
    /// place and a note says so.
    fn stand_somewhere(&self, command: &str) -> Result<(Stand, Option<String>), String> {
        let target = self.0.judged.claim(&words(command), || Ok(self.0.cwd()))?;
        let (cwd, identity) = (target.path, target.identity);
        let place_of = |path: &Path| {
            let failed = |error: io::Error| {
                let helper = self.0.helper().display();
                format!("the command could not be started ({helper}): {}", error_text::reason(&error))
            };
            self.0.place_in_work(path).map_err(failed)
        };
        if identity.is_some() && place_of(&cwd)?.as_ref() == Some(&cwd) {
            return Ok((Stand { cwd, identity }, None));
        }
        let root = self.0.root();
        if place_of(root)?.is_none() {
            let what =
                if root.is_dir() { "is not the directory that it was" } else { "does not exist any more" };
            return Err(format!("{} {what}: no command can run there", root.display()));
        }
        self.0.set_cwd(root.to_owned());
        let note = gone_note(&cwd.display().to_string(), root);
        Ok((Stand { identity: identity_of(root), cwd: root.to_owned() }, Some(note)))
    }

    fn told(
        &self,
        job: &job::RunningCommand,
        ending: &Ending,
        began: &Stand,
        limit: Duration,
        note: Option<String>,
    ) -> ToolOutput {
        let mut notes: Vec<String> = note.into_iter().collect();
        let seconds = ending.took.as_secs_f64();
        let (code, summary) = match &ending.report {
            Some(report) => {
                let code = exit_code(&report.outcome);
                notes.extend(outcome_note(&report.outcome));
                notes.extend(memory_note(report));
                notes.extend(left_notes(report));
                notes.extend(self.follow(report, began));
                (code, ended_line(&report.outcome))
            }
            None => {
                notes.push(format!(
                    "[the keeper of this command was killed; {} of it ended]",
                    error_text::counted(ending.swept as u64, "process", "processes")
                ));
                (None, "lost".into())
            }
        };
        let summary = if ending.timed_out {
            // First: the exit code below only says how the command reacted to the signal.
            notes.insert(
                0,
                format!("[timed out after {} s: everything it started was ended]", limit.as_secs_f64()),
            );
            format!("timed out after {seconds:.1} s")
        } else {
            format!("{summary} after {seconds:.1} s")
        };
        let text = job.take();
        notes.extend(ending.fence_notes(&text.text, code));
        let stopped = ending.stopped(&text.text, code);
        if text.is_empty() && notes.is_empty() {
            notes.push("(no output)".into());
        }
        let output = job.output(&self.0, &text, &notes.join("\n"), self.0.options.limits.output_chars);
        ToolOutput {
            is_error: ending.timed_out || code != Some(0),
            exit_code: code,
            summary,
            stopped,
            ..output
        }
    }

    /// Changes to the shell's last directory, if the shell changed it: a command without `cd` does not undo the `cd` of
    /// one that ran at the same time. What is reported is a wish: it counts for a directory of the work that no link leads to.
    fn follow(&self, report: &Report, began: &Stand) -> Option<String> {
        use std::os::unix::ffi::OsStringExt;
        let said = report.cwd.as_ref()?;
        let now = PathBuf::from(OsString::from_vec(said.clone()));
        // A shell whose directory was renamed meanwhile has not moved either.
        if now == began.cwd || (began.identity.is_some() && identity_of(&now) == began.identity) {
            return None;
        }
        if let Ok(Some(place)) = self.0.place_in_work(&now) {
            let note = format!("[working directory is now {}]", place.display());
            self.0.set_cwd(place);
            return Some(note);
        }
        let root = self.0.root();
        self.0.set_cwd(root.to_owned());
        Some(if now.is_absolute() {
            format!("[{} is outside of the project: back in {}]", now.display(), root.display())
        } else {
            gone_note("the working directory", root)
        })
    }
}

/// The directory in which a command begins, as it was judged.
struct Stand {
    cwd: PathBuf,
    identity: Option<Identity>,
}

/// Which directory it is, which a rename keeps; none behind a link.
fn identity_of(dir: &Path) -> Option<Identity> {
    Root::plain(dir).ok().map(|found| found.identity())
}

/// The key of a command in the list of judged targets; no path looks like that.
fn words(command: &str) -> String {
    format!("$\0{command}")
}

fn gone_note(what: &str, root: &Path) -> String {
    format!("[{what} does not exist any more; back in {}]", root.display())
}

fn checked(input: &Value) -> Result<BashCommandInput, String> {
    let input: BashCommandInput = input::parse("Bash", input)?;
    if input.command.trim().is_empty() {
        return Err("Bash: the command is empty".into());
    }
    if input.command.contains('\0') {
        return Err("Bash: a command cannot contain a NUL character".into());
    }
    if input.detach && (input.tty || input.timeout.is_some()) {
        return Err("Bash: a detached command has no terminal and no timeout".into());
    }
    if input.command.len() > COMMAND_BYTES {
        return Err(format!(
            "Bash: the command has {} bytes, at most {COMMAND_BYTES}: write it to a file and run that",
            input.command.len()
        ));
    }
    Ok(input)
}

fn time(milliseconds: Option<u64>) -> Option<Duration> {
    milliseconds.filter(|milliseconds| *milliseconds > 0).map(Duration::from_millis)
}

pub(crate) fn exit_code(outcome: &ExitOutcome) -> Option<i32> {
    match outcome {
        ExitOutcome::Exited(code) => Some(*code),
        ExitOutcome::Killed(signal) => Some(128 + signal),
        ExitOutcome::NotStarted(_) => None,
    }
}

pub(crate) fn outcome_note(outcome: &ExitOutcome) -> Option<String> {
    match outcome {
        ExitOutcome::Exited(0) => None,
        ExitOutcome::Exited(code) => Some(format!("[exit code {code}]")),
        ExitOutcome::Killed(signal) => {
            Some(format!("[killed by signal {signal}: exit code {}]", 128 + signal))
        }
        ExitOutcome::NotStarted(reason) => Some(format!("[the command could not be started: {reason}]")),
    }
}

/// A note that the command was ended for what it took, or may have ended for want of memory.
pub(crate) fn memory_note(report: &Report) -> Option<String> {
    if let Some(excess) = &report.exceeded {
        return Some(format!("[{excess}]"));
    }
    /// The exit code of a shell whose last command was killed.
    const KILLED: i32 = 128 + SIGKILL;
    const SIGKILL: i32 = rustix::process::Signal::KILL.as_raw();
    let text = match (report.out_of_memory?, &report.outcome) {
        (_, ExitOutcome::Exited(0) | ExitOutcome::NotStarted(_)) => return None,
        (_, ExitOutcome::Killed(SIGKILL) | ExitOutcome::Exited(KILLED)) => {
            "[probably ended by the kernel for want of memory]"
        }
        (ToldBy::Run | ToldBy::Group, _) => {
            "[memory ran out while it ran: the kernel ended a process for that]"
        }
        (ToldBy::System, _) => return None,
    };
    Some(text.to_owned())
}

fn ended_line(outcome: &ExitOutcome) -> String {
    match outcome {
        ExitOutcome::Exited(code) => format!("exit {code}"),
        ExitOutcome::Killed(signal) => format!("killed by signal {signal}"),
        ExitOutcome::NotStarted(_) => "not started".into(),
    }
}

pub(crate) fn left_notes(report: &Report) -> Vec<String> {
    let mut notes = Vec::new();
    if report.left > 0 {
        let (processes, were) = if report.left == 1 { ("process", "was") } else { ("processes", "were") };
        notes.push(format!(
            "[{} {processes} left running {were} ended ({}); use run_in_background for what shall go on]",
            report.left,
            report.names.join(", ")
        ));
    }
    if report.stuck > 0 {
        let processes = error_text::counted(report.stuck as u64, "process", "processes");
        notes.push(format!("[{processes} could not be ended]"));
    }
    notes
}
