//! The one table of routes: the router, the OpenAPI document and the client's paths come from it.

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Map, Value};

use super::{
    AgentList, AgentRow, Answered, ApprovalList, ApproveRequest, Awake, DaemonStatus, DenyRequest, Diff,
    FleetEvent, History, KeysRequest, KillRequest, LogPart, MergeAnswer, MergeRequest, PauseRequest, Removed,
    RequeueRequest, RespawnRequest, Respawned, ResumeRequest, ScheduleList, ScheduleRequest, ScheduleRow,
    SendRequest, Sent, SpawnRequest, Spawned, Stopping, WakeRequest,
};

/// What a route does; files in `daemon/` are called like this.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// How the daemon is.
    Status,
    /// All agents.
    List,
    /// A new agent.
    Spawn,
    /// One agent.
    Show,
    /// End one.
    Kill,
    /// Start one anew from its spec.
    Respawn,
    /// Let an ended one go on.
    Resume,
    /// Change when a queued one starts.
    Requeue,
    /// Remove one from the registry.
    Rm,
    /// Bring one into memory.
    Wake,
    /// Say something to one.
    Send,
    /// What agents ask.
    Approvals,
    /// Allow a call.
    Approve,
    /// Refuse a call.
    Deny,
    /// What one did.
    Log,
    /// What one changed.
    Diff,
    /// How what one changed stands.
    Review,
    /// Land what one changed.
    Merge,
    /// How agents stood when.
    History,
    /// All schedules.
    Schedules,
    /// A new schedule.
    Schedule,
    /// Remove a schedule.
    Unschedule,
    /// Pause a schedule, or let it go on.
    PauseSchedule,
    /// Start an agent of a schedule now.
    RunSchedule,
    /// Keys for schedules that have lost theirs.
    ScheduleKeys,
    /// What happens.
    Events,
    /// Leave.
    Shutdown,
    /// This table.
    OpenApi,
}

/// Names a type's schema, and puts it among the document's.
pub type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

/// The [`SchemaOf`] of a type.
pub fn schema<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

/// A route.
#[derive(Debug, Clone, Copy)]
pub struct Route {
    /// What it does.
    pub verb: Verb,
    /// The method.
    pub method: &'static str,
    /// The path; `{id}` stands for an id, a unique prefix of one, or a label.
    pub path: &'static str,
    /// In words.
    pub summary: &'static str,
    /// Query parameters that are `true` or `false`: name and meaning.
    pub query: &'static [(&'static str, &'static str)],
    /// Query parameters that are numbers.
    pub numbers: &'static [(&'static str, &'static str)],
    /// The body's schema.
    pub body: Option<SchemaOf>,
    /// The answer's schema.
    pub answer: SchemaOf,
}

/// Method and path of every route.
pub const ROUTES: [Route; 28] = [
    get(Verb::Status, "/v1/status", schema::<DaemonStatus>)
        .says("How the daemon is, and what it found when it started"),
    get(Verb::List, "/v1/agents", schema::<AgentList>).says("All agents, in the order of their spawn"),
    post(Verb::Spawn, "/v1/agents", schema::<Spawned>)
        .takes(schema::<SpawnRequest>)
        .says("Register an agent durably; it starts as soon as there is a place"),
    get(Verb::Show, "/v1/agents/{id}", schema::<AgentRow>).says("One agent"),
    post(Verb::Kill, "/v1/agents/{id}/kill", schema::<AgentRow>)
        .takes(schema::<KillRequest>)
        .says("End an agent; answers when its whole process tree is gone"),
    post(Verb::Respawn, "/v1/agents/{id}/respawn", schema::<Respawned>)
        .takes(schema::<RespawnRequest>)
        .says("Start anew from the original spec, with a new id"),
    post(Verb::Resume, "/v1/agents/{id}/resume", schema::<AgentRow>)
        .takes(schema::<ResumeRequest>)
        .says("Let an ended agent go on in its conversation, same id"),
    post(Verb::Requeue, "/v1/agents/{id}/requeue", schema::<AgentRow>)
        .takes(schema::<RequeueRequest>)
        .says("Change the priority or the time of an agent that has not begun; for a person"),
    delete(Verb::Rm, "/v1/agents/{id}", schema::<Removed>)
        .says("Remove a stopped agent from the registry")
        .flags(&[
            ("force", "kill it first if it is not stopped"),
            ("keep", "leave its worktree where it is"),
            ("purge", "delete its files instead of archiving them"),
        ]),
    post(Verb::Wake, "/v1/agents/{id}/wake", schema::<Awake>)
        .takes(schema::<WakeRequest>)
        .says("Make sure that the agent's worker listens on its socket"),
    post(Verb::Send, "/v1/agents/{id}/send", schema::<Sent>).takes(schema::<SendRequest>).says(
        "Say something to an agent, which is woken if it sleeps; answers when it has the message on its disk",
    ),
    get(Verb::Approvals, "/v1/approvals", schema::<ApprovalList>)
        .says("The calls of all agents that wait for a person"),
    post(Verb::Approve, "/v1/agents/{id}/approve", schema::<Answered>)
        .takes(schema::<ApproveRequest>)
        .says("Allow exactly one call, for a person"),
    post(Verb::Deny, "/v1/agents/{id}/deny", schema::<Answered>)
        .takes(schema::<DenyRequest>)
        .says("Refuse exactly one call, for a person"),
    get(Verb::Log, "/v1/agents/{id}/log", schema::<LogPart>)
        .says("What an agent did: the records of its transcript, a part at a time")
        .flags(&[("raw", "what its process printed instead of its transcript")])
        .numbers(&[("after", "begin behind what was told: the last answer's `next`")]),
    get(Verb::Diff, "/v1/agents/{id}/diff", schema::<Diff>)
        .says("What an agent changed against its recorded base, committed or not")
        .flags(&[("stat", "leave the patch out")]),
    get(Verb::Review, "/v1/agents/{id}/review", schema::<AgentRow>)
        .says("One agent, after a look at how its work stands: to review, merged, or nothing changed"),
    post(Verb::Merge, "/v1/agents/{id}/merge", schema::<MergeAnswer>)
        .takes(schema::<MergeRequest>)
        .says("Land an agent's work, or try to; for a person"),
    get(Verb::History, "/v1/history", schema::<History>)
        .says("The changes of state of all agents, removed ones included")
        .numbers(&[
            ("from", "milliseconds since 1970; how each agent stood then comes first"),
            ("to", "milliseconds since 1970; now when absent"),
        ]),
    get(Verb::Schedules, "/v1/schedules", schema::<ScheduleList>)
        .says("All schedules: when each runs, and what became of its last run"),
    post(Verb::Schedule, "/v1/schedules", schema::<ScheduleRow>)
        .takes(schema::<ScheduleRequest>)
        .says("Make a schedule, durably: it starts an agent each time that it is due; for a person"),
    delete(Verb::Unschedule, "/v1/schedules/{id}", schema::<ScheduleRow>)
        .says("Remove a schedule; the agents that it started stay; for a person"),
    post(Verb::PauseSchedule, "/v1/schedules/{id}/pause", schema::<ScheduleRow>)
        .takes(schema::<PauseRequest>)
        .says("Pause a schedule, or let it go on; for a person"),
    post(Verb::RunSchedule, "/v1/schedules/{id}/run", schema::<Spawned>)
        .says("Start an agent of a schedule now, beside its times; for a person"),
    post(Verb::ScheduleKeys, "/v1/schedules/keys", schema::<ScheduleList>)
        .takes(schema::<KeysRequest>)
        .says("Hand keys to the schedules that have lost theirs, as after a reboot; for a person"),
    get(Verb::Events, "/v1/events", schema::<FleetEvent>)
        .says("What happens, as server-sent events: all agents, then news"),
    post(Verb::Shutdown, "/v1/shutdown", schema::<Stopping>)
        .says("Leave after the requests in flight; agents live on"),
    get(Verb::OpenApi, "/openapi.json", schema::<Map<String, Value>>).says("This document"),
];

const fn get(verb: Verb, path: &'static str, answer: SchemaOf) -> Route {
    Route { verb, method: "GET", path, summary: "", query: &[], numbers: &[], body: None, answer }
}

const fn post(verb: Verb, path: &'static str, answer: SchemaOf) -> Route {
    Route { method: "POST", ..get(verb, path, answer) }
}

const fn delete(verb: Verb, path: &'static str, answer: SchemaOf) -> Route {
    Route { method: "DELETE", ..get(verb, path, answer) }
}

impl Route {
    const fn says(self, summary: &'static str) -> Self {
        Self { summary, ..self }
    }

    const fn takes(self, body: SchemaOf) -> Self {
        Self { body: Some(body), ..self }
    }

    const fn flags(self, query: &'static [(&'static str, &'static str)]) -> Self {
        Self { query, ..self }
    }

    const fn numbers(self, numbers: &'static [(&'static str, &'static str)]) -> Self {
        Self { numbers, ..self }
    }
}

/// The route of a request, and what stands for `{id}`, still encoded.
pub fn find<'a>(method: &str, path: &'a str) -> Option<(&'static Route, &'a str)> {
    ROUTES.iter().find_map(|route| Some((route, fits(route.path, path)?)).filter(|_| route.method == method))
}

/// The route of a verb.
#[must_use]
pub fn of(verb: Verb) -> &'static Route {
    // Every verb has a route: a test holds that.
    ROUTES.iter().find(|route| route.verb == verb).unwrap_or(&ROUTES[0])
}

/// The methods that a path has, for an error message.
pub fn methods(path: &str) -> Vec<&'static str> {
    ROUTES.iter().filter(|route| fits(route.path, path).is_some()).map(|route| route.method).collect()
}

fn fits<'a>(pattern: &str, path: &'a str) -> Option<&'a str> {
    let Some((before, after)) = pattern.split_once("{id}") else { return (pattern == path).then_some("") };
    let id = path.strip_prefix(before)?.strip_suffix(after)?;
    (!id.is_empty() && !id.contains('/')).then_some(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_route_is_found_by_its_own_path() {
        for route in &ROUTES {
            let path = route.path.replace("{id}", "a3f8b2c1");
            let (found, id) = find(route.method, &path).unwrap();
            assert_eq!(of(route.verb).path, route.path);
            assert_eq!((found.verb, id.is_empty()), (route.verb, !route.path.contains("{id}")), "{path}");
        }
        assert!(find("GET", "/v1/agents/").is_none());
        assert!(find("GET", "/v1/agents/a/b").is_none());
        assert_eq!(methods("/v1/agents"), ["GET", "POST"]);
        assert_eq!(methods("/v1/nothing"), Vec::<&str>::new());
    }
}
