//! `status.json`: how the agent stands, for everybody who does not want to read its transcript.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    time::Duration,
};

use caliban_agent::{
    Kit,
    budget::Purse,
    event::{Ask, Event, Outcome},
    feed::FeedEntry,
};
use caliban_contract::{
    disk_room::{self, WAITS_FOR_ROOM, is_full},
    records::{
        self, AskRecord, EndingKind, LAST_STATUS_ROOM, STATUS, STATUS_ROOM, STATUS_VERSION, Waiting,
        WorkerEnding, WorkerState, WorkerStatus,
    },
};
use caliban_core::{budget::Limits, inert, price::MicroUsd, redact::Redactor, usage::Usage, wait::Wait};
use caliban_tools::JobInfo;

use super::rights_file::RightsFile;
use crate::report::Failure;

/// What is shown of the last text.
const LAST_TEXT_CHARS: usize = 200;
/// So much of all open calls together is in the file, which has a largest size.
const CALLS_BYTES: usize = 32 * 1024;
/// The bytes that an agent needs to come back into memory.
const WAKE_BYTES: usize = 64 * 1024;
/// How often a last word that finds no room is tried again.
const ROOM_LOOK: Duration = Duration::from_millis(500);

/// Keeps the file; written only when it differs.
#[derive(Default)]
pub(super) struct StatusFile {
    directory: PathBuf,
    now: WorkerStatus,
    written: Option<WorkerStatus>,
    /// Takes secrets out of what is written.
    redactor: Redactor,
    /// Knows what was spent.
    purse: Option<Purse>,
    /// Writes down what the agent may hand on.
    rights: Option<RightsFile>,
    /// How the last turn ended; none while one is under way.
    outcome: Option<Outcome>,
    is_disk_full: bool,
    /// Why the transcript takes no more records.
    broken: Option<String>,
    /// The open calls as they were shown.
    listed: Vec<(Ask, AskRecord)>,
    told: BTreeSet<String>,
    untold: Vec<String>,
}

/// Whether an agent gets mail from other agents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mailbox {
    None,
    Open,
}

impl StatusFile {
    /// Begins with what the run before has left: its work stays to be found and its cost to be seen, however early this
    /// run ends.
    pub(super) fn new(directory: &Path, nonce: &str) -> Self {
        let before: WorkerStatus = records::read(directory, STATUS).unwrap_or_default();
        let (usage, micro_usd) = before.spent_when_gone();
        let now = WorkerStatus {
            usage,
            micro_usd,
            in_flight: Usage::default(),
            in_flight_micro_usd: None,
            version: STATUS_VERSION,
            nonce: nonce.to_owned(),
            state: WorkerState::Running,
            activity: None,
            waiting_for: None,
            asks: Vec::new(),
            ending: None,
            turn_limit: None,
            hibernated: false,
            ..before
        };
        Self { directory: directory.to_owned(), now, ..Self::default() }
    }

    /// From now on the status is about this agent. What it did before comes again, record by record.
    pub(super) fn agent(&mut self, kit: &Kit, budget: Limits) {
        (self.now.turns, self.now.usage) = (0, Usage::default());
        self.now.model = Some(kit.model.clone());
        self.redactor = kit.shared.redactor.clone();
        self.purse = Some(kit.purse.clone());
        let limits = (budget, kit.shared.limits.max_turns);
        self.rights = Some(RightsFile::new(&self.directory, &self.now.nonce, limits, kit.policy.clone()));
        self.cost();
    }

    /// What must not be written, as far as it is known before there is an agent.
    pub(super) fn redact(&mut self, redactor: Redactor) {
        self.redactor = redactor;
    }

    /// A line for whoever reads `worker.log`.
    pub(super) fn note(&self, text: &str) {
        crate::report::note(&self.redactor.redact(text));
    }

    /// The same failure without secrets.
    pub(super) fn without_secrets(&self, failure: Failure) -> Failure {
        let clean = |text: String| self.redactor.redact(&text).into_owned();
        Failure { message: clean(failure.message), hint: failure.hint.map(clean), code: failure.code }
    }

    /// What the agent and its sub-agents have spent: tokens and cost are of the same requests.
    fn cost(&mut self) {
        if let Some(purse) = &self.purse {
            self.now.usage = purse.spent().usage;
            self.now.micro_usd = purse.micro_usd().map(MicroUsd);
            let in_flight = self.now.in_flight;
            self.now.in_flight_micro_usd = purse.cost(in_flight);
            self.now.near_limit = purse.near_limit();
        }
    }

    pub(super) fn activity(&mut self, activity: &str) {
        self.now.activity = Some(activity.to_owned());
        self.write();
    }

    pub(super) fn worktree(&mut self, path: &Path, branch: &str, base: &str) {
        self.now.worktree = Some(path.to_owned());
        self.now.branch = Some(branch.to_owned());
        self.now.base_commit = Some(base.to_owned());
    }

    /// There is no room for a worktree. The disk of this file is another one, perhaps.
    pub(super) fn waits_for_room(&mut self, path: &Path) {
        self.activity(&waiting_for_room(path));
    }

    /// There is a worktree now.
    pub(super) fn has_room(&mut self) {
        self.now.activity = None;
    }

    /// Takes in what happened.
    pub(super) fn take(&mut self, entry: &FeedEntry) {
        match entry {
            FeedEntry::Record(record) => {
                self.record(&record.event);
                self.cost();
            }
            FeedEntry::Waiting(Wait::DiskFull { path }) => {
                self.is_disk_full = true;
                self.now.waiting_for = None;
                self.now.activity = Some(waiting_for_room(path));
            }
            FeedEntry::Waiting(wait @ Wait::Ledger { .. }) => {
                self.is_disk_full = true;
                self.now.waiting_for = None;
                self.now.activity = Some(inert::line(&wait.to_string()).into_owned());
            }
            FeedEntry::Waiting(
                wait @ (Wait::RateLimit(pause)
                | Wait::Outage(pause)
                | Wait::Retry(pause)
                | Wait::QuietHours(pause)),
            ) => {
                let until = pause.until_ms;
                self.now.waiting_for = Some(match wait {
                    Wait::RateLimit(_) => Waiting::RateLimit { until },
                    Wait::QuietHours(_) => Waiting::QuietHours { until },
                    _ => Waiting::Model { until },
                });
                self.now.activity = Some(inert::line(&pause.reason).into_owned());
            }
            FeedEntry::Text(_) | FeedEntry::Thinking(_) | FeedEntry::ToolUse { .. } => {
                if matches!(self.now.waiting_for, Some(Waiting::RateLimit { .. } | Waiting::Model { .. })) {
                    self.now.waiting_for = None;
                    self.now.activity = Some("asking the model".to_owned());
                }
            }
            FeedEntry::Waiting(wait @ (Wait::Jobs { .. } | Wait::Budget { .. })) => {
                self.now.activity = Some(inert::line(&wait.to_string()).into_owned());
            }
            FeedEntry::Broken { reason } => self.broken = Some(reason.clone()),
            FeedEntry::Waiting(Wait::Summary)
            | FeedEntry::ToolOutput { .. }
            | FeedEntry::Restart { .. }
            | FeedEntry::SubAsked(_)
            | FeedEntry::SubAnswered { .. } => {}
        }
    }

    fn record(&mut self, event: &Event) {
        // It could be written: there is room again.
        if std::mem::take(&mut self.is_disk_full) {
            self.now.activity = None;
        }
        match event {
            Event::Prompt { .. } | Event::Queued { .. } => {
                self.outcome = None;
                self.now.state = WorkerState::Running;
                self.now.ending = None;
                self.now.waiting_for = None;
                self.now.activity = Some("asking the model".to_owned());
            }
            Event::Reply { message, .. } => {
                self.now.turns += 1;
                self.now.in_flight = Usage::default();
                self.now.waiting_for = None;
                let text = message.text();
                if !text.is_empty() {
                    self.now.last_text = Some(inert::line(&text).chars().take(LAST_TEXT_CHARS).collect());
                }
            }
            Event::Asked { estimate, .. } => {
                self.now.in_flight = *estimate;
                self.now.activity = Some("asking the model".to_owned());
                // A request has begun: it is not quiet any more.
                if matches!(self.now.waiting_for, Some(Waiting::QuietHours { .. })) {
                    self.now.waiting_for = None;
                }
            }
            Event::Counted { usage } => self.now.in_flight = *usage,
            Event::Unanswered { .. } => self.now.in_flight = Usage::default(),
            Event::CallStarted { name, input, .. } => {
                let what = format!("{name} {}", caliban_agent::describe(input));
                self.now.activity = Some(inert::line(&what).into_owned());
            }
            Event::CallEnded { .. } | Event::CallRefused { .. } => {
                self.now.activity = Some("asking the model".to_owned());
            }
            Event::Summarised { .. } => self.now.in_flight = Usage::default(),
            Event::TurnEnded { outcome, .. } => {
                self.now.in_flight = Usage::default();
                self.outcome = Some(outcome.clone());
                self.now.activity = None;
            }
            Event::Started(_)
            | Event::Resumed { .. }
            | Event::AskOpened(_)
            | Event::AskAnswered { .. }
            | Event::ResultsCleared { .. }
            | Event::Background { .. }
            | Event::Note { .. } => {}
        }
    }

    /// The calls that wait for a person now.
    pub(super) fn asks(&mut self, open: &[Ask], listed: impl Fn(&Ask) -> AskRecord) {
        let before = std::mem::take(&mut self.now.asks);
        let now = caliban_contract::wall_ms();
        let mut room = CALLS_BYTES;
        let mut shown = Vec::new();
        for ask in open {
            let old = before.iter().find(|old| old.id == ask.id);
            let known = self.listed.iter().find(|(known, _)| known == ask);
            let mut it = known.map_or_else(|| listed(ask), |(_, it)| it.clone());
            shown.push((ask.clone(), it.clone()));
            match room.checked_sub(it.call.len()) {
                Some(left) => room = left,
                // The transcript has it whole.
                None => {
                    let about = it.excerpt().about(&it.what);
                    (it.call, it.hidden) = (about.text, Some(about.hidden));
                }
            }
            // Another call under the same id is another question.
            it.opened_at = old.filter(|old| old.digest == it.digest).map_or(now, |old| old.opened_at);
            self.now.asks.push(it);
        }
        self.listed = shown;
        // Some providers count their calls anew in each answer: an id may come again for another call.
        self.told.retain(|id| open.iter().any(|ask| ask.id == *id));
        for ask in &self.now.asks {
            if self.told.insert(ask.id.clone()) {
                self.untold.push(ask.what.clone());
            }
        }
        if !self.now.asks.is_empty() {
            self.now.waiting_for = Some(Waiting::Approval);
        } else if self.now.waiting_for == Some(Waiting::Approval) {
            self.now.waiting_for = None;
        }
    }

    /// The digests of the asks that the file has.
    pub(super) fn listed_asks(&self) -> BTreeSet<String> {
        self.now.asks.iter().map(|ask| ask.digest.clone()).collect()
    }

    /// The asks that nobody has been told of yet.
    pub(super) fn new_asks(&mut self) -> Vec<String> {
        std::mem::take(&mut self.untold)
    }

    /// Limits that are nearly used up and that nobody has been told of yet.
    pub(super) fn new_notices(&mut self) -> Vec<String> {
        self.purse.as_ref().map(Purse::take_notices).unwrap_or_default()
    }

    /// The turns of earlier runs, until the agent takes up its conversation.
    pub(super) fn turns_before(&self) -> u64 {
        self.now.turns
    }

    pub(super) fn is_turn_over(&self) -> bool {
        self.outcome.is_some()
    }

    pub(super) fn outcome(&self) -> Option<Outcome> {
        self.outcome.clone()
    }

    /// It waits for a message; what it started in the background goes on meanwhile. With a mailbox it waits for other agents
    /// as well, so it does not need a person.
    pub(super) fn idle(&mut self, jobs: &[JobInfo], mailbox: Mailbox) {
        self.now.state = WorkerState::Idle;
        self.now.waiting_for = (mailbox == Mailbox::None).then_some(Waiting::Input);
        self.now.activity = match jobs {
            [] if self.is_disk_full => Some("disk full: stays in memory until there is room".to_owned()),
            [] if mailbox == Mailbox::Open => Some("waits for mail".to_owned()),
            [] => None,
            [job] => Some(format!("in the background: {}", inert::line(&job.command))),
            [job, more @ ..] => {
                Some(format!("in the background: {} and {} more", inert::line(&job.command), more.len()))
            }
        };
    }

    /// For good, as the last turn ended.
    pub(super) async fn ended(&mut self) {
        let (state, kind, text) = match self.outcome.take() {
            Some(Outcome::Done) | None => (WorkerState::Done, EndingKind::Finished, None),
            Some(Outcome::TurnLimit { limit }) => {
                let text = format!("the limit of {} is reached", crate::fleet::turns(limit.into()));
                self.now.turn_limit = Some(limit.into());
                (WorkerState::Failed, EndingKind::TurnLimit, Some(text))
            }
            Some(Outcome::Budget { limit }) => (WorkerState::Failed, EndingKind::Budget, Some(limit)),
            Some(Outcome::Cancelled) => (WorkerState::Failed, EndingKind::Cancelled, None),
            Some(Outcome::Failed { error, hint }) => {
                let hint = hint.map(|hint| format!(" ({hint})")).unwrap_or_default();
                (WorkerState::Failed, EndingKind::Error, Some(format!("{error}{hint}")))
            }
        };
        self.end(state, kind, text).await;
    }

    /// It could not even begin.
    pub(super) async fn failed(&mut self, failure: &Failure) {
        let hint = failure.hint.as_deref().map(|hint| format!(" ({hint})")).unwrap_or_default();
        self.end(WorkerState::Failed, EndingKind::Error, Some(format!("{}{hint}", failure.message))).await;
    }

    /// Why the transcript takes no more records, when it does not.
    pub(super) fn broken(&self) -> Option<&str> {
        self.broken.as_deref()
    }

    /// Whether there is room to leave memory. Where there is none it could not come back, either, to hear a message.
    pub(super) fn is_room_to_sleep(&mut self) -> bool {
        self.is_disk_full = disk_room::probe(&self.directory, WAKE_BYTES).is_err_and(|error| is_full(&error));
        !self.is_disk_full
    }

    pub(super) async fn hibernated(&mut self) {
        self.now.hibernated = true;
        self.durably().await;
    }

    /// How it ended, in words.
    pub(super) fn ending_text(&self) -> &str {
        let ending = self.now.ending.as_ref().and_then(|ending| ending.text.as_deref());
        ending.or(self.now.last_text.as_deref()).unwrap_or("done")
    }

    /// Writes the file when it differs from what is there.
    pub(super) fn write(&mut self) {
        if let Some(rights) = &mut self.rights {
            rights.write();
        }
        if self.written.as_ref() == Some(&self.now) {
            return;
        }
        self.stamp();
        let clean = self.clean();
        // That it waits for room has to be seen: the reserved room is for that, and for nothing else.
        let written = match self.is_disk_full {
            true => STATUS_ROOM.write(&self.directory, &clean),
            false => records::write(&self.directory, STATUS, &clean),
        };
        if written.is_ok() && !self.is_disk_full {
            for room in [LAST_STATUS_ROOM, STATUS_ROOM] {
                // Without it a later write waits for room.
                let _best_effort = room.take(&self.directory);
            }
        }
        self.keep(written);
    }

    async fn end(&mut self, state: WorkerState, kind: EndingKind, text: Option<String>) {
        self.now.state = state;
        self.now.activity = None;
        self.now.waiting_for = None;
        self.now.asks.clear();
        self.now.ending = Some(WorkerEnding { kind, text });
        self.durably().await;
    }

    /// The last word of this run: without it nobody would know how it ended. So it waits for room, where there is none.
    async fn durably(&mut self) {
        let written = loop {
            self.stamp();
            let clean = self.clean();
            let written = LAST_STATUS_ROOM.write_durably(&self.directory, &clean);
            match &written {
                Err(error) if is_full(error) => tokio::time::sleep(ROOM_LOOK).await,
                _ => break written,
            }
        };
        self.keep(written);
        for room in [LAST_STATUS_ROOM, STATUS_ROOM] {
            room.give_back(&self.directory);
        }
    }

    /// The status as it may be written: without secrets.
    fn clean(&self) -> WorkerStatus {
        let mut status = self.now.clone();
        let WorkerStatus { activity, last_text, ending, asks, .. } = &mut status;
        let texts =
            activity.iter_mut().chain(last_text).chain(ending.iter_mut().filter_map(|it| it.text.as_mut()));
        let asked = asks.iter_mut().flat_map(|ask| {
            let rules = ask.suggestions.iter_mut().chain(&mut ask.outside);
            [&mut ask.what, &mut ask.call].into_iter().chain(&mut ask.why).chain(rules)
        });
        for text in texts.chain(asked) {
            if let std::borrow::Cow::Owned(clean) = self.redactor.redact(text) {
                *text = clean;
            }
        }
        status
    }

    fn stamp(&mut self) {
        self.now.updated_at = caliban_contract::wall_ms();
    }

    fn keep(&mut self, result: std::io::Result<()>) {
        match result {
            Ok(()) => self.written = Some(self.now.clone()),
            // The transcript is the truth; the next change tries again.
            Err(error) => tracing::warn!(%error, "status.json cannot be written"),
        }
    }
}

fn waiting_for_room(path: &Path) -> String {
    format!("{WAITS_FOR_ROOM} ({})", inert::line(&path.display().to_string()))
}

#[cfg(test)]
mod tests {
    use caliban_core::wait::Pause;

    use caliban_core::call_text::Excerpt;

    use super::*;

    fn ask(id: &str, command: &str) -> Ask {
        Ask {
            id: id.into(),
            agent: None,
            name: "Bash".into(),
            input: serde_json::json!({"command": command}),
            why: "no rule".into(),
            suggestions: Vec::new(),
            outside: Vec::new(),
            preview: None,
            expires_at: None,
        }
    }

    #[test]
    fn a_full_disk_is_called_so_until_something_could_be_written() {
        let place = tempfile::tempdir().unwrap();
        let mut status = StatusFile::new(place.path(), "n");
        status.take(&FeedEntry::Waiting(Wait::DiskFull { path: "/data/transcript.jsonl".into() }));
        assert_eq!(
            (status.now.waiting_for.clone(), status.now.activity.as_deref()),
            (None, Some("disk full: waiting for room (/data/transcript.jsonl)"))
        );
        status.record(&Event::Note { text: "x".into() });
        assert_eq!(status.now.activity, None);
        let pause = Pause { reason: "HTTP 529".into(), ms: 1000, until_ms: 5000 };
        status.take(&FeedEntry::Waiting(Wait::RateLimit(pause)));
        assert_eq!(status.now.waiting_for, Some(Waiting::RateLimit { until: 5000 }));
        assert_eq!(status.now.activity.as_deref(), Some("HTTP 529"));
    }

    #[tokio::test]
    async fn r11_room_for_a_status_is_taken_while_there_is_some_and_given_back_at_the_end() {
        let place = tempfile::tempdir().unwrap();
        let rooms = || [".status.reserved", ".status.last"].map(|name| place.path().join(name).exists());
        let mut status = StatusFile::new(place.path(), "n");
        status.write();
        assert_eq!(rooms(), [true, true]);
        status.ended().await;
        assert_eq!(rooms(), [false, false]);
    }

    #[test]
    fn every_ask_is_told_once_also_when_several_come_at_once_or_an_id_comes_again() {
        let place = tempfile::tempdir().unwrap();
        let mut status = StatusFile::new(place.path(), "n");
        let listed = |ask: &Ask| {
            let command = ask.input["command"].as_str().unwrap();
            let (id, what) = (ask.id.clone(), format!("Bash {command}"));
            AskRecord { id, what, digest: command.into(), ..AskRecord::default() }
        };
        status.asks(&[ask("1", "ls"), ask("2", "pwd")], listed);
        assert_eq!(status.new_asks(), ["Bash ls", "Bash pwd"]);
        status.asks(&[ask("1", "ls")], listed);
        assert_eq!(status.new_asks(), Vec::<String>::new());
        status.asks(&[], listed);
        status.asks(&[ask("1", "date")], listed);
        assert_eq!(status.new_asks(), ["Bash date"]);
    }

    #[test]
    fn many_long_calls_do_not_outgrow_the_file() {
        let place = tempfile::tempdir().unwrap();
        let mut status = StatusFile::new(place.path(), "n");
        let open: Vec<Ask> = (0..64).map(|id| ask(&id.to_string(), "ls")).collect();
        let call = "é".repeat(2000);
        let listed = Excerpt::whole(call.clone());
        let record = AskRecord {
            what: "Bash".into(),
            call: call.clone(),
            hidden: Some(0),
            digest: "d".into(),
            ..AskRecord::default()
        };
        status.asks(&open, |ask| AskRecord { id: ask.id.clone(), ..record.clone() });
        status.write();
        let written: WorkerStatus = records::read(place.path(), STATUS).unwrap();
        let whole = written.asks.iter().filter(|ask| ask.excerpt() == listed).count();
        let cut = written.asks.iter().filter(|ask| ask.excerpt().hidden == 2000).count();
        assert_eq!((whole, cut), (8, 56));
    }

    #[tokio::test]
    async fn the_limit_of_turns_is_told_and_not_the_turns_of_the_whole_session() {
        let place = tempfile::tempdir().unwrap();
        let mut status = StatusFile::new(place.path(), "one");
        status.now.turns = 17;
        status.outcome = Some(Outcome::TurnLimit { limit: 3 });
        status.ended().await;
        let written: WorkerStatus = records::read(place.path(), STATUS).unwrap();
        let limit = caliban_core::lifecycle::Outcome::TurnLimit { limit: 3 };
        assert_eq!(written.outcome(), Some(limit));
        assert_eq!(StatusFile::new(place.path(), "two").now.turn_limit, None);
    }

    #[tokio::test]
    async fn a_run_that_ends_early_keeps_what_is_known_of_the_work() {
        let place = tempfile::tempdir().unwrap();
        let mut status = StatusFile::new(place.path(), "one");
        status.worktree(Path::new("/w"), "caliban/x", "base");
        (status.now.turns, status.now.micro_usd) = (3, Some(MicroUsd(7)));
        status.ended().await;
        let mut next = StatusFile::new(place.path(), "two");
        next.write();
        let written: WorkerStatus = records::read(place.path(), STATUS).unwrap();
        let expected = WorkerStatus {
            nonce: "two".into(),
            state: WorkerState::Running,
            ending: None,
            updated_at: written.updated_at,
            ..status.now
        };
        assert_eq!(written, expected);
    }
}
