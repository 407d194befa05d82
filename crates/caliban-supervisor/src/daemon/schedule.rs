//! Schedules: each starts a new agent when it is due. They are in the registry, and the daemon stays while there are any.
//!
//! What is due is decided in `caliban_core::recurrence`. The agent of a run and the schedule's next time are one transaction, so
//! every run happens once, whoever is killed. A run that no daemon was there for happens once, late, and says so.

use std::path::PathBuf;
use std::time::Duration;

use caliban_contract::{HandedOver, local_time, secrets_file};
use caliban_core::ids::AgentId;
use caliban_core::lifecycle::State;
use caliban_core::names::Slug;
use caliban_core::recurrence::{Due, LATE_MS};
use caliban_core::spec::{Occurrence, SpawnSpec};
use caliban_store::fleet::{LastRun, Overlap, RegistryChange, ScheduleRecord};
use jiff::Timestamp;

use super::agent::DaemonAgent;
use super::phase::Phase;
use super::spawn::{self, bad};
use super::start::{self, StartError};
use super::store::Then;
use super::{DaemonAnswer, Owner, ReplyTo, VerbResult};
use crate::protocol::{
    ApiError, ErrorCode, KeysRequest, ScheduleList, ScheduleRequest, ScheduleRow, ScheduleRun, SpawnRequest,
};
use crate::row::About;

/// Schedules of one repo, at most.
const MOST: usize = 256;
/// Bytes of a schedule's name: there is room for a number behind it.
const NAME_BYTES: usize = Slug::MAX_BYTES - 12;

/// One schedule in memory.
#[derive(Debug, Clone)]
pub(super) struct Schedule {
    record: ScheduleRecord,
    spec: Box<SpawnSpec>,
}

/// Why a run happens.
enum RunReason {
    /// It is due: when, how many before it were missed, and when the next one is.
    Due { due_at: u64, missed: u64, next_at: u64 },
    /// A person wants one now.
    Asked,
}

impl Schedule {
    pub(super) fn is_paused(&self) -> bool {
        self.record.paused
    }
}

/// Up to when all runs of a schedule have happened or were counted as missed.
fn done_until(record: &ScheduleRecord) -> Option<Timestamp> {
    record.last.as_ref().and_then(|last| moment(last.due_at.max(last.at)))
}

/// How long schedules rest after the registry could not be written.
const TROUBLE_PAUSE: Duration = Duration::from_secs(30);
/// How the keys of their runs begin: nobody else's do.
pub(super) const SCHEDULE_KEY: &str = "schedule ";

impl Owner {
    /// Takes over what the registry has. What cannot be read (a later version's) is left where it is.
    pub(super) fn know_schedules(&mut self, records: Vec<ScheduleRecord>) {
        for record in records {
            let name = record.name.clone();
            match SpawnSpec::from_json(&record.spec) {
                Ok(spec) => drop(self.schedules.insert(name, Schedule { record, spec: Box::new(spec) })),
                Err(error) => tracing::error!("schedule {name} cannot be used: {error}"),
            }
        }
    }

    /// At its start a daemon says what should have begun while none was there.
    pub(super) fn say_what_was_missed(&mut self) {
        let now = crate::wall_ms();
        let mut notes = Vec::new();
        for schedule in self.schedules.values().filter(|schedule| !schedule.record.paused) {
            let by = now.saturating_sub(schedule.record.next_at);
            if by >= LATE_MS {
                notes.push(format!(
                    "schedule {}: a run was due {} ago, while no daemon was there; it runs now",
                    schedule.record.name,
                    ago(by)
                ));
            }
        }
        for agent in self.agents.values().filter(|agent| agent.is_queued()) {
            let by = agent.about.start_at_ms.map_or(0, |at| now.saturating_sub(at));
            if by >= LATE_MS {
                let (id, by) = (agent.record.id, ago(by));
                notes.push(format!(
                    "agent {id} was to start {by} ago, while no daemon was there; it starts now"
                ));
            }
        }
        for note in notes {
            tracing::warn!("{note}");
            self.found.missed.push(note);
        }
    }

    /// Starts what is due.
    pub(super) fn run_schedules(&mut self) {
        // A run that cannot be written down is tried again, but not at once.
        let is_troubled = self.trouble_since.is_some_and(|since| since.elapsed() < TROUBLE_PAUSE);
        if self.schedules.is_empty() || self.stop.is_cancelled() || is_troubled {
            return;
        }
        let now = local_time::now();
        let names: Vec<Slug> = self.schedules.keys().cloned().collect();
        for name in names {
            let Some(schedule) = self.schedules.get(&name).filter(|schedule| !schedule.record.paused) else {
                continue;
            };
            let record = &schedule.record;
            let Some(next) = moment(record.next_at) else { continue };
            match record.every.due(next, done_until(record), &now) {
                Due::At(at) if at == next => {}
                // The clock was set back.
                Due::At(at) => self.change_schedule(&name, None, |record| record.next_at = ms(at)),
                Due::Now { missed, next: after } => {
                    let why = RunReason::Due { due_at: record.next_at, missed, next_at: ms(after) };
                    if let Err(error) = self.start_one(&name, why) {
                        self.note(&name, &error.message);
                    }
                }
            }
        }
    }

    /// Registers the agent of a run, or leaves the run out.
    fn start_one(&mut self, name: &Slug, why: RunReason) -> Result<Option<AgentId>, ApiError> {
        let Some(schedule) = self.schedules.get(name) else { return Err(unknown(name.as_str())) };
        let (now, record) = (crate::wall_ms(), schedule.record.clone());
        let handover = match start::read_handover(&self.schedule_secrets(name)) {
            Ok(handover) => handover,
            Err(StartError::Later(text)) => return Err(ApiError::new(ErrorCode::Internal, text)),
            Err(_) if !record.has_secrets => Default::default(),
            Err(_) => {
                let text = "its keys are gone, as after a reboot; it waits for them";
                let hint = "`caliban schedule list` hands it those of your shell";
                return Err(ApiError::new(ErrorCode::SecretsGone, text).hint(hint));
            }
        };
        let of_it = |agent: &&DaemonAgent| agent.about.schedule.as_ref().is_some_and(|run| run.name == *name);
        let is_at_work = |agent: &&DaemonAgent| !agent.state().is_ending() && agent.state() != State::Idle;
        let running = self.agents.values().filter(of_it).find(is_at_work);
        if let Some(running) = running.filter(|_| record.overlap == Overlap::Skip) {
            let who = running.about.label.clone().unwrap_or_else(|| running.record.id.to_string());
            let text = format!("left out: {who} had not ended");
            return match why {
                RunReason::Due { due_at, next_at, .. } => {
                    tracing::warn!("schedule {name}: the run due at {} is {text}", time(due_at));
                    let note = format!("the run due at {} was {text}", time(due_at));
                    self.change_schedule(name, None, |record| {
                        (record.next_at, record.note) = (next_at, Some(note));
                    });
                    Ok(None)
                }
                RunReason::Asked => Err(ApiError::new(ErrorCode::Conflict, format!("{who} has not ended"))
                    .hint("wait for it, or make the schedule with --overlap")),
            };
        }
        let number = record.runs + 1;
        let mut spec = (*schedule.spec).clone();
        let (due_at, missed, next_at) = match why {
            RunReason::Due { due_at, missed, next_at } => (due_at, missed, next_at),
            RunReason::Asked => (now, 0, record.next_at),
        };
        spec.schedule = Some(Occurrence { name: name.clone(), number, due_at });
        spec.label = Slug::parse(&format!("{name}-{number}")).ok();
        // Somebody has that label already: the number alone tells it.
        if self.check_label(&mut spec).is_err() {
            spec.label = None;
        }
        let key = format!("{SCHEDULE_KEY}{name} {} {number}", record.created_at);
        let program = spawn::find_program(Some(&record.program), &self.own_program)?;
        let request = SpawnRequest { spec, secrets: handover.into(), program: None, key: Some(key) };
        let (id, insert) = self.register(request, program, Vec::new(), None)?;
        let late = now.saturating_sub(due_at);
        let is_late = late >= LATE_MS;
        let note = is_late.then(|| match missed {
            0 => format!("the run due at {} began {} late", time(due_at), ago(late)),
            more => {
                format!("the run due at {} began {} late; {more} more were missed", time(due_at), ago(late))
            }
        });
        match &note {
            Some(note) => tracing::warn!(%id, "schedule {name}: {note}"),
            None => tracing::info!(%id, "schedule {name}: run {number}"),
        }
        self.batch.add(insert, Then::Spawned(id));
        self.change_schedule(name, None, |record| {
            (record.runs, record.next_at, record.note) = (number, next_at, note);
            // A clock that was set back does not bring back what has happened.
            let at = record.last.as_ref().map_or(now, |last| last.at.max(now));
            record.last = Some(LastRun { agent: id, due_at, at, missed });
        });
        Ok(Some(id))
    }

    /// Says once why nothing comes of a schedule.
    fn note(&mut self, name: &Slug, text: &str) {
        let is_new =
            self.schedules.get(name).is_some_and(|schedule| schedule.record.note.as_deref() != Some(text));
        if is_new {
            tracing::warn!("schedule {name}: {text}");
            self.change_schedule(name, None, |record| record.note = Some(text.to_owned()));
        }
    }

    /// Changes a schedule, here and in the registry; its row is the answer.
    fn change_schedule(
        &mut self,
        name: &Slug,
        reply: Option<ReplyTo>,
        change: impl FnOnce(&mut ScheduleRecord),
    ) {
        let Some(schedule) = self.schedules.get_mut(name) else { return };
        let before = schedule.clone();
        change(&mut schedule.record);
        let put = RegistryChange::Schedule(Box::new(schedule.record.clone()));
        self.batch.add(put, Then::Scheduled { name: name.clone(), before: Some(Box::new(before)), reply });
    }

    /// A change of a schedule is on the disk.
    pub(super) fn schedule_stored(
        &mut self,
        name: &Slug,
        before: Option<Box<Schedule>>,
        reply: Option<ReplyTo>,
    ) {
        let Some(reply) = reply else { return };
        let shown = self.schedules.get(name).or(before.as_deref());
        let row = shown.map(|schedule| DaemonAnswer::Schedule(Box::new(self.schedule_row(schedule))));
        reply.send(row.ok_or_else(|| unknown(name.as_str())));
    }

    /// It is not: everything is as it was.
    pub(super) fn schedule_not_stored(
        &mut self,
        name: Slug,
        before: Option<Box<Schedule>>,
        reply: Option<ReplyTo>,
        refusal: ApiError,
    ) {
        match before {
            Some(before) => drop(self.schedules.insert(name, *before)),
            None => drop(self.schedules.remove(&name)),
        }
        if let Some(reply) = reply {
            reply.send(Err(refusal));
        }
    }

    /// `POST /v1/schedules`.
    pub(super) fn schedule(&mut self, request: ScheduleRequest, reply: &mut ReplyTo) -> VerbResult {
        let schedule = self.new_schedule(request)?;
        let name = schedule.record.name.clone();
        tracing::info!("schedule {name}: every {}", schedule.record.every);
        let put = RegistryChange::Schedule(Box::new(schedule.record.clone()));
        self.schedules.insert(name.clone(), schedule);
        self.batch.add(put, Then::Scheduled { name, before: None, reply: Some(reply.take()) });
        Ok(None)
    }

    fn new_schedule(&self, request: ScheduleRequest) -> Result<Schedule, ApiError> {
        let ScheduleRequest { name, every, overlap, spec, secrets, program } = request;
        if self.schedules.contains_key(&name) {
            let text = format!("there is a schedule {name} already");
            return Err(ApiError::new(ErrorCode::Conflict, text)
                .hint(format!("choose another --label, or `caliban schedule rm {name}` first")));
        }
        if name.as_str().len() > NAME_BYTES {
            return Err(bad(format!("the name of a schedule has at most {NAME_BYTES} bytes")));
        }
        if self.schedules.len() >= MOST {
            return Err(bad(format!("a repo has at most {MOST} schedules")));
        }
        if spec.conversation.is_some() || !spec.after.is_empty() || spec.start_at_ms.is_some() {
            return Err(bad("a schedule starts new agents, at its own times and after nobody".to_owned()));
        }
        spec.check().map_err(|error| bad(error.to_string()))?;
        let json = serde_json::to_string(&spec).map_err(|error| bad(error.to_string()))?;
        let program = spawn::find_program(program.as_deref(), &self.own_program)?;
        let next = every.first(&local_time::now()).ok_or_else(|| bad(format!("{every} never comes")))?;
        let handover = HandedOver::from(secrets);
        handover
            .write(&self.schedule_secrets(&name))
            .map_err(|error| spawn::file_refusal("its keys cannot be written", &error))?;
        let record = ScheduleRecord {
            name,
            every,
            overlap: if overlap { Overlap::Allow } else { Overlap::Skip },
            paused: false,
            next_at: ms(next),
            runs: 0,
            last: None,
            note: None,
            program,
            has_secrets: handover.is_needed(),
            created_at: crate::wall_ms(),
            spec: json,
        };
        Ok(Schedule { record, spec: Box::new(spec) })
    }

    /// `DELETE /v1/schedules/{id}`.
    pub(super) fn unschedule(&mut self, query: &str, reply: &mut ReplyTo) -> VerbResult {
        let name = self.find_schedule(query)?;
        let before = self.schedules.remove(&name).map(Box::new);
        let _was_not_there = std::fs::remove_file(self.schedule_secrets(&name));
        tracing::info!("schedule {name}: removed");
        let gone = RegistryChange::Unschedule(name.clone());
        self.batch.add(gone, Then::Scheduled { name, before, reply: Some(reply.take()) });
        Ok(None)
    }

    /// `POST /v1/schedules/{id}/pause`.
    pub(super) fn pause_schedule(&mut self, query: &str, paused: bool, reply: &mut ReplyTo) -> VerbResult {
        let name = self.find_schedule(query)?;
        let now = local_time::now();
        self.change_schedule(&name, Some(reply.take()), |record| {
            // What was due while it was paused is not missed.
            if record.paused
                && !paused
                && let Some(next) = moment(record.next_at)
                && let Due::Now { next, .. } = record.every.due(next, done_until(record), &now)
            {
                record.next_at = ms(next);
            }
            (record.paused, record.note) = (paused, None);
        });
        Ok(None)
    }

    /// `POST /v1/schedules/{id}/run`.
    pub(super) fn run_schedule(&mut self, query: &str, reply: &mut ReplyTo) -> VerbResult {
        let name = self.find_schedule(query)?;
        let id = self.start_one(&name, RunReason::Asked)?;
        let agent = id.and_then(|id| self.agents.get_mut(&id));
        // It is answered when it is on the disk.
        if let Some(Phase::Registering(registering)) = agent.map(|agent| &mut agent.phase) {
            registering.replies.push(reply.take());
        }
        Ok(None)
    }

    /// `GET /v1/schedules`.
    pub(super) fn schedules(&self) -> ScheduleList {
        ScheduleList { schedules: self.schedules.values().map(|one| self.schedule_row(one)).collect() }
    }

    /// `POST /v1/schedules/keys`: for those that have lost theirs.
    pub(super) fn schedule_keys(&mut self, request: &KeysRequest) -> Result<ScheduleList, ApiError> {
        let handover = HandedOver::from(request.secrets.clone());
        for schedule in self.schedules.values() {
            if self.needs_keys(&schedule.record) && handover.is_needed() {
                handover
                    .write(&self.schedule_secrets(&schedule.record.name))
                    .map_err(|error| spawn::file_refusal("the keys cannot be written", &error))?;
            }
        }
        self.run_schedules();
        Ok(self.schedules())
    }

    fn find_schedule(&self, query: &str) -> Result<Slug, ApiError> {
        let found = self.schedules.keys().find(|name| name.as_str() == query);
        found.cloned().ok_or_else(|| unknown(query))
    }

    fn needs_keys(&self, record: &ScheduleRecord) -> bool {
        record.has_secrets && !self.schedule_secrets(&record.name).exists()
    }

    /// Its keys: beside the agents' sockets, on no disk. No agent has such a name.
    fn schedule_secrets(&self, name: &Slug) -> PathBuf {
        secrets_file(&self.places.sockets_dir().join(format!("schedule-{name}.sock")))
    }

    fn schedule_row(&self, schedule: &Schedule) -> ScheduleRow {
        let (record, about) = (&schedule.record, About::of(&schedule.spec));
        ScheduleRow {
            name: record.name.clone(),
            every: record.every.clone(),
            overlap: record.overlap == Overlap::Allow,
            paused: record.paused,
            next_at: record.next_at,
            runs: record.runs,
            last: record.last.as_ref().map(|last| ScheduleRun {
                agent: last.agent,
                due_at: last.due_at,
                late_ms: last.at.saturating_sub(last.due_at),
                missed: last.missed,
            }),
            note: record.note.clone(),
            needs_keys: self.needs_keys(record),
            prompt: about.prompt,
            cwd: about.cwd,
            priority: about.priority,
            created_at: record.created_at,
        }
    }
}

fn unknown(name: &str) -> ApiError {
    let text = format!("there is no schedule {}", caliban_core::inert::quoted(name));
    ApiError::new(ErrorCode::NotFound, text).hint("`caliban schedule list` shows all")
}

/// A length of time, in short words.
fn ago(ms: u64) -> String {
    caliban_fleet::words::time(std::time::Duration::from_millis(ms))
}

fn moment(ms: u64) -> Option<Timestamp> {
    i64::try_from(ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok())
}

fn ms(at: Timestamp) -> u64 {
    u64::try_from(at.as_millisecond()).unwrap_or_default()
}

/// A moment on the machine's clock, for the log and the list.
fn time(at_ms: u64) -> String {
    moment(at_ms).map_or_else(String::new, |at| {
        at.to_zoned(local_time::time_zone()).strftime("%Y-%m-%d %H:%M").to_string()
    })
}
