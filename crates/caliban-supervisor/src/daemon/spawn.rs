//! `POST /v1/agents`: commit first, answer then, start.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use caliban_contract::HandedOver;
use caliban_core::ids::AgentId;
use caliban_core::lifecycle::{State, Status};
use caliban_core::names::Slug;
use caliban_core::spec::{SpawnSpec, StartedBy};
use caliban_store::fleet::{AgentRecord, RegistryChange, WantedState};

use super::agent::DaemonAgent;
use super::phase::{Phase, Queued, Registering};
use super::schedule::SCHEDULE_KEY;
use super::store::Then;
use super::{
    DaemonAnswer, Owner, ReplyTo, VerbResult, internal, out_of_descriptors, rm, start_time, stopping,
};
use crate::disk_room;
use crate::places::{Places, PlacesError, private_dir};
use crate::protocol::{ApiError, ErrorCode, SpawnRequest, Spawned};
use crate::records::{self, QueuedRecord, STOP_ROOM};
use crate::row::About;

/// The longest key of a request.
const KEY_CAP: usize = 128;
/// Numbers that are tried to make the label of an agent's agent a free one.
const LABELS: std::ops::RangeInclusive<usize> = 2..=66;
/// The bytes that an agent's files and its row take at first.
const ROOM: usize = 128 * 1024;

impl Owner {
    pub(super) fn spawn(&mut self, mut request: SpawnRequest, peer: i32, reply: &mut ReplyTo) -> VerbResult {
        // Whoever asked was told that it failed, or was killed: nobody would know of it.
        if reply.is_closed() {
            tracing::info!("a spawn was dropped: nobody waits for it any more");
            return Ok(None);
        }
        if let Some(known) = self.by_key(request.key.as_deref()) {
            if let Some(Phase::Registering(registering)) =
                self.agents.get_mut(&known).map(|agent| &mut agent.phase)
            {
                registering.replies.push(reply.take());
                return Ok(None);
            }
            return Ok(Some(self.spawned_answer(known)));
        }
        let after = self.check_spawn(&mut request, peer);
        let program =
            after.and_then(|after| Ok((find_program(request.program.as_deref(), &self.own_program)?, after)));
        let registered =
            program.and_then(|(program, after)| self.register(request, program, after, Some(reply)));
        let (id, insert) = registered.inspect_err(|error| tracing::warn!("a spawn was refused: {error}"))?;
        self.batch.add(insert, Then::Spawned(id));
        Ok(None)
    }

    /// It is on the disk.
    pub(super) fn spawned(&mut self, id: AgentId) {
        let Some(agent) = self.agents.get_mut(&id) else { return };
        let Some(Registering { replies, spec, .. }) = agent.register() else { return };
        // One that was to start after another agent may have ended with that one.
        if !agent.state().is_ending() {
            agent.phase = Phase::Queued(Queued { spec: Some(spec), ..Queued::default() });
        }
        write_queued(&self.places.agent_dir(id), &agent.record);
        tracing::info!(%id, "registered{}", agent.about.label.as_ref().map_or(String::new(), |l| format!(" as {l}")));
        for reply in replies {
            reply.send(Ok(self.spawned_answer(id)));
        }
        self.publish(id);
        self.start_ready();
        // The request of one that waits for its turn is read from the registry when it comes.
        if let Some(Phase::Queued(queued)) = self.agents.get_mut(&id).map(|agent| &mut agent.phase) {
            queued.spec = None;
        }
    }

    /// It is not on the disk: there never was one.
    pub(super) fn not_spawned(&mut self, id: AgentId, refusal: &ApiError) {
        let Some(mut agent) = self.agents.remove(&id) else { return };
        forget_files(&self.places, id);
        let Some(Registering { replies, .. }) = agent.register() else { return };
        for reply in replies {
            reply.send(Err(refusal.clone()));
        }
    }

    fn spawned_answer(&self, id: AgentId) -> DaemonAnswer {
        DaemonAnswer::Spawned(Spawned { id, dir: self.places.agent_dir(id) })
    }

    fn by_key(&self, key: Option<&str>) -> Option<AgentId> {
        let key = key?;
        self.agents
            .values()
            .find(|agent| agent.record.key.as_deref() == Some(key))
            .map(|agent| agent.record.id)
    }

    /// Whether the request can be carried out; those whom it must still wait for.
    fn check_spawn(&self, request: &mut SpawnRequest, peer: i32) -> Result<Vec<AgentId>, ApiError> {
        if self.stop.is_cancelled() {
            return Err(stopping());
        }
        if request.key.as_ref().is_some_and(|key| key.is_empty() || key.len() > KEY_CAP) {
            return Err(bad(format!("a key has 1 to {KEY_CAP} bytes")));
        }
        // Which runs are a schedule's is the daemon's own word.
        if request.key.as_ref().is_some_and(|key| key.starts_with(SCHEDULE_KEY)) {
            return Err(bad(format!("a key that begins with {SCHEDULE_KEY:?} is the daemon's own")));
        }
        request.spec.schedule = None;
        self.place_below(request, peer)?;
        self.check_number(&request.spec)?;
        request.spec.check().map_err(|error| bad(error.to_string()))?;
        self.check_label(&mut request.spec)?;
        let mut after = Vec::new();
        for id in &request.spec.after {
            let Some(other) = self.agents.get(id).filter(|agent| agent.is_registered()) else {
                return Err(ApiError::new(
                    ErrorCode::NotFound,
                    format!("it is to start after {id}, which is not registered"),
                ));
            };
            match other.state() {
                // An interactive agent that waits for a message has done its task.
                State::Done | State::Idle => {}
                State::Spawning | State::Running => after.push(*id),
                ended @ (State::Killed | State::Failed | State::Crashed) => {
                    let text = format!("it is to start after {id}, which has ended {ended}");
                    return Err(
                        ApiError::new(ErrorCode::Conflict, text).hint(format!("`caliban resume {id}` first"))
                    );
                }
            }
        }
        Ok(after)
    }

    /// Whether a model may start one more: an agent of the fleet, a session in the foreground, or the members of teams together
    /// (a19). What a person starts is not counted.
    fn check_number(&self, spec: &SpawnSpec) -> Result<(), ApiError> {
        let most = self.options.max_by_model;
        let full = |counts: &dyn Fn(&About) -> bool, who: String| {
            let living = |agent: &&DaemonAgent| !agent.state().is_ending() && counts(&agent.about);
            match u32::try_from(self.agents.values().filter(living).count()) {
                Ok(count) if count >= most => {
                    let text = format!("{who} (fleet.max_by_model)");
                    Err(ApiError::new(ErrorCode::Conflict, text).hint("wait until some have ended"))
                }
                _ => Ok(()),
            }
        };
        if let Some(parent) = spec.parent {
            let who = format!("agent {parent} has {most} living agents, which is all that one may have");
            full(&|about| about.parent == Some(parent), who)?;
        }
        let who = match spec.started_by {
            None => return Ok(()),
            Some(StartedBy::Session(_)) => "this session has",
            Some(StartedBy::Member) => "the members of teams have",
        };
        let who = format!("{who} started {most} agents that have not ended, which is all that there may be");
        full(&|about| about.started_by == spec.started_by, who)
    }

    /// A label is that of one living agent, and no id. The label of an agent's agent was chosen by a model, which
    /// cannot know all others: that one gets a number.
    pub(super) fn check_label(&self, spec: &mut SpawnSpec) -> Result<(), ApiError> {
        let Some(label) = spec.label.clone() else { return Ok(()) };
        if label.as_str().parse::<AgentId>().is_ok() {
            return Err(bad(format!("the label {label} looks like the id of an agent"))
                .hint("choose one that is not 8 characters of 0-9 and a-f"));
        }
        let Some(holder) = self.living_with(label.as_str()) else { return Ok(()) };
        if spec.parent.is_some() {
            let numbered = LABELS.filter_map(|n| Slug::parse(&format!("{label}-{n}")).ok());
            if let Some(free) = { numbered }.find(|label| self.living_with(label.as_str()).is_none()) {
                spec.label = Some(free);
                return Ok(());
            }
        }
        Err(in_use(label.as_str(), holder).hint("choose another label, or end that agent first"))
    }

    /// Whether an agent that has ended may live again under its label.
    pub(super) fn check_own_label(&self, id: AgentId) -> Result<(), ApiError> {
        let Some(label) = self.agents.get(&id).and_then(|agent| agent.about.label.as_deref()) else {
            return Ok(());
        };
        match self.living_with(label).filter(|holder| *holder != id) {
            Some(holder) => Err(in_use(label, holder).hint(format!("`caliban kill {holder}` first"))),
            None => Ok(()),
        }
    }

    fn living_with(&self, label: &str) -> Option<AgentId> {
        let has =
            |agent: &&DaemonAgent| agent.about.label.as_deref() == Some(label) && !agent.state().is_ending();
        self.agents.values().find(has).map(|agent| agent.record.id)
    }

    /// Writes the files of a new agent and keeps it in memory, to be registered by the change that is returned. Takes the reply
    /// unless that fails.
    pub(super) fn register(
        &mut self,
        request: SpawnRequest,
        program: PathBuf,
        after: Vec<AgentId>,
        reply: Option<&mut ReplyTo>,
    ) -> Result<(AgentId, RegistryChange), ApiError> {
        let SpawnRequest { spec, secrets, key, .. } = request;
        let handover = HandedOver::from(secrets);
        let json = serde_json::to_string(&spec).map_err(|error| bad(error.to_string()))?;
        let id = self.new_id()?;
        let now = crate::wall_ms();
        let record = AgentRecord {
            seq: self.next_seq,
            id,
            key,
            status: Status::default(),
            wanted: WantedState::Run,
            nonce: new_nonce()?,
            runs: 1,
            after,
            program,
            has_secrets: handover.is_needed(),
            resume_prompt: None,
            note: None,
            created_at: now,
            updated_at: now,
        };
        if let Err(error) = write_files(&self.places, id, &spec, &handover) {
            forget_files(&self.places, id);
            return Err(file_refusal("the agent's directory cannot be written", &error));
        }
        self.next_seq += 1;
        let (mut about, replies) = (About::of(&spec), reply.map(ReplyTo::take).into_iter().collect());
        start_time::note(&self.places.agent_dir(id), &mut about, spec.start_in_ms);
        let phase = Phase::Registering(Registering { replies, spec: Box::new(spec) });
        self.agents.insert(id, DaemonAgent::new(record.clone(), about, phase));
        Ok((id, RegistryChange::Insert(Box::new(record), json)))
    }

    /// An id that nobody has or had a directory under.
    pub(super) fn new_id(&self) -> Result<AgentId, ApiError> {
        loop {
            let id = AgentId::from_random(caliban_contract::random().map_err(internal)?);
            let archived = caliban_contract::archive::place(self.places.base(), id);
            let is_known = self.agents.contains_key(&id) || rm::leaving(&self.places, id).exists();
            if !is_known && !self.places.agent_dir(id).exists() && !archived.exists() {
                return Ok(id);
            }
        }
    }
}

/// A run's name.
pub(super) fn new_nonce() -> Result<String, ApiError> {
    caliban_contract::random_hex::<16>().map_err(|error| internal(format!("no random numbers: {error}")))
}

/// The directory of an agent with its request, and its secrets in the runtime directory. Not synced: the registry
/// has the request, and secrets need not outlive the machine.
pub(super) fn write_files(
    places: &Places,
    id: AgentId,
    spec: &SpawnSpec,
    handover: &HandedOver,
) -> io::Result<()> {
    let dir = places.agent_dir(id);
    make_dir(&dir)?;
    records::write(&dir, records::SPEC, spec)?;
    STOP_ROOM.take(&dir)?;
    if !handover.is_empty() {
        handover.write(&places.agent_secrets(id))?;
    }
    Ok(())
}

/// Writes down what only the registry has of an agent that waits for its start. Best effort: it is for the day on which the
/// registry is lost.
pub(super) fn write_queued(dir: &Path, record: &AgentRecord) {
    let queued = QueuedRecord {
        nonce: record.nonce.clone(),
        seq: record.seq,
        runs: record.runs,
        key: record.key.clone(),
        after: record.after.clone(),
        program: record.program.clone(),
        resume_prompt: record.resume_prompt.clone(),
        created_at: record.created_at,
    };
    if let Err(error) = records::write(dir, records::QUEUED, &queued) {
        tracing::warn!(id = %record.id, "queued.json cannot be written: {error}");
    }
}

/// Makes a directory that is ours alone.
pub(super) fn make_dir(dir: &Path) -> io::Result<()> {
    private_dir(dir).map_err(|error| match error {
        PlacesError::Make { source, .. } => source,
        other => io::Error::other(other.to_string()),
    })
}

/// Whether there is room for one more agent. If that is unknown, assume so; the write itself reports a full disk.
pub(super) fn has_room(base: &Path) -> bool {
    !disk_room::probe(base, ROOM).is_err_and(|error| disk_room::is_full(&error))
}

/// Removes what was written for an agent that was not registered. Best effort: the next daemon does it again.
pub(super) fn forget_files(places: &Places, id: AgentId) {
    let _none = fs::remove_dir_all(places.agent_dir(id));
    let _none = fs::remove_file(places.agent_secrets(id));
}

/// A failed write of an agent's files, for whoever asked.
pub(super) fn file_refusal(what: &str, error: &io::Error) -> ApiError {
    if disk_room::is_full(error) {
        return ApiError::new(ErrorCode::DiskFull, "the disk is full; nothing was started")
            .hint("make room and try again; running agents are not touched");
    }
    match out_of_descriptors(error) {
        Some(refusal) => refusal,
        None => internal(format!("{what}: {error}")),
    }
}

/// The program of the worker: the one that was asked for, else `caliban` beside us.
pub(super) fn find_program(asked: Option<&Path>, own: &Path) -> Result<PathBuf, ApiError> {
    let program = match asked {
        Some(program) => program.to_owned(),
        None => own.with_file_name("caliban"),
    };
    if !program.is_absolute() {
        return Err(bad(format!("the program {} is not absolute", program.display())));
    }
    if !program.is_file() {
        return Err(bad(format!("there is no program {}", program.display()))
            .hint("is caliban installed beside caliband?"));
    }
    Ok(program)
}

fn in_use(label: &str, holder: AgentId) -> ApiError {
    let text = format!("the label {label} is in use: agent {holder} has it and has not ended");
    ApiError::new(ErrorCode::Conflict, text)
}

pub(super) fn bad(text: String) -> ApiError {
    ApiError::new(ErrorCode::BadRequest, text)
}
