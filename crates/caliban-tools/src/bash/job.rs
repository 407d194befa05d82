//! One running command, foreground or background: a task that feeds the command's output to the capture, enforces its time
//! limit, stops it, and reports when nothing of it is left.

use std::{
    io,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicI32, Ordering},
    },
    time::{Duration, Instant},
};

use caliban_contract::tree_limits::{Excess, TreeLimits};
use caliban_core::{
    cap::{self, Cap},
    fence::Profile,
    message::ResultPart,
};
use caliban_fence::{Fenced, Rejudge, Steps};
use caliban_keeper::{KILL_LIMIT, Launch, Report, STOP_GRACE, Streams, start_reaper};
use caliban_process::Patience;
use rustix::process::{Pid, Signal};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    process::{Child, ChildStderr, ChildStdin, ChildStdout},
    sync::{mpsc, watch},
};
use tokio_util::sync::CancellationToken;

use super::{
    bash_input::unfinished,
    capture::{Capture, NewOutput},
    fence_report::Ran,
    jobs::JobState,
    orphans::CommandMark,
    strip_escapes::plain,
};
use crate::{ToolOutput, Workspace, error_text, full_output, limits::PROGRESS_BYTES};

const BLOCK_BYTES: usize = 64 << 10;
/// How long a reaper may take to stop a tree before it counts as lost.
const REAPER_LIMIT: Duration = STOP_GRACE.saturating_add(KILL_LIMIT).saturating_add(Duration::from_secs(3));
/// How long the output is read after the tree is gone: only a process outside of the tree can still hold the pipe.
const DRAIN_LIMIT: Duration = Duration::from_secs(2);
/// How often a command is judged whose fence is not what was judged.
const JUDGED: usize = 3;
/// Bytes of a report.
const REPORT_BYTES: u64 = 1 << 20;
/// Texts that wait to be typed.
const TYPED_TEXTS: usize = 16;
/// Pieces of live output that wait for the observer; more are dropped.
const LIVE_PIECES: usize = 64;

pub(super) struct JobRequest {
    pub(super) helper: PathBuf,
    pub(super) launch: Launch,
    pub(super) mark: CommandMark,
    pub(super) capture: Capture,
    pub(super) limit: Option<Duration>,
    pub(super) command: String,
    pub(super) description: Option<String>,
    /// What is done when nothing of it is left, for one in a fence.
    pub(super) steps: Option<Steps>,
    /// Makes the fence anew, when something was not what had been judged.
    pub(super) again: Option<Rejudge>,
    /// What all commands may take together, where that is held here.
    pub(super) held_together: Option<TreeLimits>,
}

/// A command that was started.
pub(crate) struct RunningCommand {
    pub(super) command: String,
    pub(super) description: Option<String>,
    /// Ends it. Its state follows when nothing is left.
    pub(super) stop: CancellationToken,
    pub(super) state: watch::Receiver<JobState>,
    /// Counts pieces of output.
    pub(super) said: watch::Receiver<u64>,
    /// Whether it runs in a fence.
    pub(super) is_fenced: bool,
    /// Whether it runs in one in which it can change files.
    pub(super) writes: bool,
    /// What is typed into its terminal; none where it has none.
    pub(super) keyboard: Option<mpsc::Sender<Vec<u8>>>,
    typed_line: Mutex<String>,
    capture: Mutex<Capture>,
    ending: Mutex<Option<Ending>>,
    /// Its keeper.
    keeper: AtomicI32,
    /// Why it is ended, when all commands together have taken too much.
    exceeded: Mutex<Option<Excess>>,
    /// Whether the model knows that it has ended.
    is_reported: AtomicBool,
}

#[derive(Debug, Clone)]
pub(super) struct Ending {
    /// What the reaper reported; none when the reaper was killed.
    pub(super) report: Option<Report>,
    /// How many processes had to be found and killed without the reaper.
    pub(super) swept: usize,
    pub(super) timed_out: bool,
    pub(super) took: Duration,
    /// The fence that it ran in, and what the steps after it say.
    pub(super) fenced: Option<Ran>,
}

impl RunningCommand {
    /// Starts the reaper. The returned future is the job's task: whoever holds it must run it to its end.
    pub(super) async fn start(
        request: JobRequest,
        stop: CancellationToken,
    ) -> io::Result<(Arc<Self>, mpsc::Receiver<String>, impl Future<Output = ()> + Send + 'static)> {
        let launch = request.launch.encode()?;
        let (count, said) = watch::channel(0);
        let (live, seen) = mpsc::channel(LIVE_PIECES);
        let reaper = Reaper::start(&request.helper, request.mark, Live::new(live), count).await?;
        let (tell, state) = watch::channel(JobState::Running);
        let (keyboard, typed) = mpsc::channel(TYPED_TEXTS);
        let job = Arc::new(Self {
            command: request.command,
            description: request.description,
            stop,
            state,
            said,
            is_fenced: request.steps.is_some(),
            writes: request.launch.fence.as_ref().is_some_and(|fence| fence.profile != Profile::Read),
            keyboard: (request.launch.streams == Streams::Terminal).then_some(keyboard),
            typed_line: Mutex::default(),
            capture: Mutex::new(request.capture),
            ending: Mutex::new(None),
            keeper: AtomicI32::new(reaper.pid()),
            exceeded: Mutex::new(None),
            is_reported: AtomicBool::new(false),
        });
        let rejudged = Rejudged { again: request.again, helper: request.helper, launch: request.launch };
        let input = ReaperInput { launch, typed };
        let task = run(job.clone(), reaper, input, request.limit, request.steps, rejudged, tell);
        Ok((job, seen, task))
    }

    /// How it ended, once it has.
    pub(super) fn ending(&self) -> Option<Ending> {
        self.ending.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Its keeper, while it runs.
    pub(super) fn keeper(&self) -> Option<i32> {
        (!self.state.borrow().is_ended()).then(|| self.keeper.load(Ordering::Relaxed))
    }

    /// Ends it: all commands together have taken too much, and it the most.
    pub(super) fn end_for(&self, excess: Excess) {
        *self.exceeded.lock().unwrap_or_else(PoisonError::into_inner) = Some(excess);
        self.stop.cancel();
    }

    pub(super) fn set_reported(&self) {
        self.is_reported.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_reported(&self) -> bool {
        self.is_reported.load(Ordering::Relaxed)
    }

    /// Hears what the command says from now on.
    pub(super) fn listen(&self) -> watch::Receiver<u64> {
        let mut said = self.said.clone();
        said.mark_unchanged();
        said
    }

    /// The line that was typed and not ended.
    pub(super) fn typed_line(&self) -> String {
        self.typed_line.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn note_typed(&self, text: &str) {
        let mut line = self.typed_line.lock().unwrap_or_else(PoisonError::into_inner);
        *line = unfinished(&line, text);
    }

    /// Waits until the command has said something and then nothing for a moment, has ended, or the time is over.
    pub(super) async fn settled(&self, mut said: watch::Receiver<u64>, limit: Duration) {
        /// A program that says nothing for so long waits for an answer, or for something else.
        const QUIET: Duration = Duration::from_millis(400);
        let mut state = self.state.clone();
        let settled = async {
            if said.changed().await.is_ok() {
                while let Ok(Ok(())) = tokio::time::timeout(QUIET, said.changed()).await {}
            }
        };
        let mut patience = Patience::new(limit);
        tokio::select! {
            () = settled => {}
            _ended = state.wait_for(JobState::is_ended) => {}
            () = patience.over() => {}
        }
    }

    /// The file with all of its output, when there is one.
    pub(super) fn file(&self) -> Option<PathBuf> {
        self.capture().path().map(ToOwned::to_owned)
    }

    /// The output since the last time.
    pub(super) fn take(&self) -> NewOutput {
        self.capture().take()
    }

    /// An output of this text of at most as many characters, naming the file with all of it.
    pub(super) fn output(
        &self,
        workspace: &Workspace,
        taken: &NewOutput,
        notes: &str,
        chars: usize,
    ) -> ToolOutput {
        let (path, note) = {
            let capture = self.capture();
            (capture.path().map(ToOwned::to_owned), capture.note())
        };
        let text = plain(&taken.text);
        let Some(path) = path else {
            let notes = full_output::joined(notes, &note.unwrap_or_default());
            return workspace.outputs.output("bash", &text, &notes, chars);
        };
        let shown = cap::middle(&text, Cap::Chars(chars));
        let is_part = taken.left_out.is_some() || shown.len() != text.len();
        let mut notes = notes.to_owned();
        if is_part {
            notes = full_output::joined(&notes, &full_output::place_note(&path));
        }
        notes = full_output::joined(&notes, &note.unwrap_or_default());
        ToolOutput {
            content: vec![ResultPart::Text { text: full_output::joined(&shown, &notes) }],
            whole: is_part.then_some(path),
            ..ToolOutput::default()
        }
    }

    fn capture(&self) -> MutexGuard<'_, Capture> {
        self.capture.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Reaper {
    child: Child,
    control: Option<ChildStdin>,
    output: ChildStdout,
    report: ChildStderr,
    mark: CommandMark,
    live: Live,
    count: watch::Sender<u64>,
}

/// What goes to the reaper.
struct ReaperInput {
    launch: Vec<u8>,
    typed: mpsc::Receiver<Vec<u8>>,
}

/// How a command is started again that never ran: something in its fence was not what had been judged (an editor's save is a
/// rename).
struct Rejudged {
    again: Option<Rejudge>,
    helper: PathBuf,
    launch: Launch,
}

impl Rejudged {
    /// Judges again, and takes the steps before the command again.
    async fn next(&self) -> Option<(Launch, Steps)> {
        let (again, mut launch) = (self.again.clone()?, self.launch.clone());
        let made = tokio::task::spawn_blocking(move || again().and_then(Fenced::begin)).await;
        let (fence, steps) = made.ok()?.ok()?;
        launch.fence = Some(fence);
        Some((launch, steps))
    }
}

async fn run(
    job: Arc<RunningCommand>,
    mut reaper: Reaper,
    input: ReaperInput,
    limit: Option<Duration>,
    mut steps: Option<Steps>,
    rejudged: Rejudged,
    tell: watch::Sender<JobState>,
) {
    let began = Instant::now();
    let ReaperInput { mut launch, mut typed } = input;
    let mut tries = 1;
    let (timed_out, report) = loop {
        let timed_out = reaper.follow(&job, launch, &mut typed, limit).await;
        let mut report = reaper.report().await;
        if let Some(report) = &mut report {
            let told = *job.exceeded.lock().unwrap_or_else(PoisonError::into_inner);
            report.exceeded = report.exceeded.or(told);
        }
        let is_changed = report.as_ref().is_some_and(|report| report.is_changed);
        if !is_changed || tries == JUDGED || job.stop.is_cancelled() {
            break (timed_out, report);
        }
        tries += 1;
        reaper.drain(&job).await;
        // What the fence said is no word of the command's.
        drop(job.capture().take());
        // The steps of the fence that was not put up end first.
        drop(steps.take());
        let Some((next, begun)) = rejudged.next().await else { break (timed_out, report) };
        let (Ok(encoded), Ok(())) = (next.encode(), reaper.restart(&rejudged.helper).await) else {
            break (timed_out, report);
        };
        job.keeper.store(reaper.pid(), Ordering::Relaxed);
        (launch, steps) = (encoded, Some(begun));
    };
    let swept = match &report {
        Some(_) => 0,
        None => {
            let mark = reaper.mark.clone();
            tokio::task::spawn_blocking(move || mark.sweep()).await.unwrap_or(0)
        }
    };
    reaper.drain(&job).await;
    job.capture().finish();
    let code = report.as_ref().and_then(|report| super::exit_code(&report.outcome));
    let fenced = match steps {
        Some(steps) => {
            let fence = steps.fence().clone();
            // It may have to wait for a git of the user's.
            let notes = tokio::task::spawn_blocking(move || steps.finish()).await.unwrap_or_default();
            Some(Ran { fence, notes })
        }
        None => None,
    };
    let ending = Ending { report, swept, timed_out, took: began.elapsed(), fenced };
    *job.ending.lock().unwrap_or_else(PoisonError::into_inner) = Some(ending);
    let _nobody_asks = tell.send(JobState::Ended(code));
}

impl Reaper {
    async fn start(
        helper: &Path,
        mark: CommandMark,
        live: Live,
        count: watch::Sender<u64>,
    ) -> io::Result<Self> {
        let (child, control, output, report) = reaper(helper).await?;
        Ok(Self { child, control: Some(control), output, report, mark, live, count })
    }

    fn pid(&self) -> i32 {
        self.child.id().and_then(|id| i32::try_from(id).ok()).unwrap_or_default()
    }

    /// Starts another one for the same command.
    async fn restart(&mut self, helper: &Path) -> io::Result<()> {
        let (child, control, output, report) = reaper(helper).await?;
        (self.child, self.control, self.output, self.report) = (child, Some(control), output, report);
        Ok(())
    }

    /// Follows the command until the reaper is gone; returns whether time ran out.
    async fn follow(
        &mut self,
        job: &RunningCommand,
        launch: Vec<u8>,
        typed: &mut mpsc::Receiver<Vec<u8>>,
        limit: Option<Duration>,
    ) -> bool {
        let mut block = vec![0; BLOCK_BYTES];
        let mut open = true;
        let timed_out = {
            let control = self.control.take();
            // Holds the control open for as long as the command may run.
            let sending = async move {
                let Some(mut control) = control else { return };
                // A reaper that is gone already says why in its report.
                let mut sent = control.write_all(&launch).await;
                while let (Ok(()), Some(text)) = (&sent, typed.recv().await) {
                    sent = control.write_all(&text).await;
                }
                std::future::pending().await
            };
            let out_of_time = sleep_for(limit);
            tokio::pin!(sending, out_of_time);
            loop {
                tokio::select! {
                    _ = self.child.wait() => return false,
                    () = &mut sending => {}
                    got = self.output.read(&mut block), if open => match got {
                        Ok(0) | Err(_) => open = false,
                        Ok(got) => self.heard(job, &block[..got]),
                    },
                    () = job.stop.cancelled() => break false,
                    () = &mut out_of_time => break true,
                }
            }
        };
        self.stop(job, &mut block, open).await;
        timed_out
    }

    /// Tells the reaper to stop the tree and waits for it. Reads on, so that nobody blocks on a full pipe.
    async fn stop(&mut self, job: &RunningCommand, block: &mut [u8], mut open: bool) {
        self.control = None;
        // The command may have sent its reaper a STOP.
        self.signal(Signal::CONT);
        let mut lost = Patience::new(REAPER_LIMIT);
        loop {
            tokio::select! {
                _ = self.child.wait() => return,
                got = self.output.read(block), if open => match got {
                    Ok(0) | Err(_) => open = false,
                    Ok(got) => self.heard(job, &block[..got]),
                },
                () = lost.over() => break,
            }
        }
        self.signal(Signal::KILL);
        let _ = self.child.wait().await;
    }

    fn signal(&self, signal: Signal) {
        let pid = self.child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        if let Some(pid) = pid {
            let _gone_already = rustix::process::kill_process(pid, signal);
        }
    }

    /// What the reaper reported at its end.
    async fn report(&mut self) -> Option<Report> {
        let mut said = Vec::new();
        let mut limited = (&mut self.report).take(REPORT_BYTES);
        let _ = tokio::time::timeout(DRAIN_LIMIT, limited.read_to_end(&mut said)).await;
        Report::decode(&said)
    }

    /// The rest of the output.
    async fn drain(&mut self, job: &RunningCommand) {
        let mut block = vec![0; BLOCK_BYTES];
        let deadline = tokio::time::Instant::now() + DRAIN_LIMIT;
        while let Ok(Ok(got)) = tokio::time::timeout_at(deadline, self.output.read(&mut block)).await {
            if got == 0 {
                break;
            }
            self.heard(job, &block[..got]);
        }
    }

    fn heard(&mut self, job: &RunningCommand, bytes: &[u8]) {
        job.capture().push(bytes);
        self.count.send_modify(|count| *count += 1);
        self.live.send(bytes);
    }
}

/// A reaper with its pipes.
async fn reaper(helper: &Path) -> io::Result<(Child, ChildStdin, ChildStdout, ChildStderr)> {
    let mut child = start_reaper(helper).await?;
    match (child.stdin.take(), child.stdout.take(), child.stderr.take()) {
        (Some(control), Some(output), Some(report)) => Ok((child, control, output, report)),
        _ => Err(io::Error::other("no pipes to the reaper")),
    }
}

async fn sleep_for(limit: Option<Duration>) {
    match limit {
        // Time in which we were stopped together with the command does not count.
        Some(limit) => Patience::new(limit).over().await,
        None => std::future::pending().await,
    }
}

/// Live output on its way to whoever watches.
struct Live {
    sender: mpsc::Sender<String>,
    room: usize,
    /// The start of a character whose end has not come yet.
    cut: Vec<u8>,
}

impl Live {
    fn new(sender: mpsc::Sender<String>) -> Self {
        Self { sender, room: PROGRESS_BYTES, cut: Vec::new() }
    }

    fn send(&mut self, bytes: &[u8]) {
        if self.room == 0 {
            return;
        }
        self.cut.extend_from_slice(bytes);
        let whole = match std::str::from_utf8(&self.cut) {
            Err(error) if error.error_len().is_none() => error.valid_up_to(),
            Ok(_) | Err(_) => self.cut.len(),
        };
        let rest = self.cut.split_off(whole);
        let text = String::from_utf8_lossy(&std::mem::replace(&mut self.cut, rest)).into_owned();
        if text.is_empty() {
            return;
        }
        self.room = self.room.saturating_sub(text.len());
        let _observer_is_slow_or_gone = self.sender.try_send(text);
        if self.room == 0 {
            let limit = error_text::bytes(PROGRESS_BYTES as u64);
            let _observer_is_slow_or_gone =
                self.sender.try_send(format!("\n[more than {limit}: not shown]\n"));
        }
    }
}
