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
pub const ROUTES: [Route; 27] = [
    route(
        Verb::Status,
        "GET",
        "/v1/status",
        "How the daemon is, and what it found when it started",
        None,
        schema::<DaemonStatus>,
    ),
    route(
        Verb::List,
        "GET",
        "/v1/agents",
        "All agents, in the order of their spawn",
        None,
        schema::<AgentList>,
    ),
    route(
        Verb::Spawn,
        "POST",
        "/v1/agents",
        "Register an agent durably; it starts as soon as there is a place",
        Some(schema::<SpawnRequest>),
        schema::<Spawned>,
    ),
    route(Verb::Show, "GET", "/v1/agents/{id}", "One agent", None, schema::<AgentRow>),
    route(
        Verb::Kill,
        "POST",
        "/v1/agents/{id}/kill",
        "End an agent; answers when its whole process tree is gone",
        Some(schema::<KillRequest>),
        schema::<AgentRow>,
    ),
    route(
        Verb::Respawn,
        "POST",
        "/v1/agents/{id}/respawn",
        "Start anew from the original spec, with a new id",
        Some(schema::<RespawnRequest>),
        schema::<Respawned>,
    ),
    route(
        Verb::Resume,
        "POST",
        "/v1/agents/{id}/resume",
        "Let an ended agent go on in its conversation, same id",
        Some(schema::<ResumeRequest>),
        schema::<AgentRow>,
    ),
    route(
        Verb::Requeue,
        "POST",
        "/v1/agents/{id}/requeue",
        "Change the priority or the time of an agent that has not begun; for a person",
        Some(schema::<RequeueRequest>),
        schema::<AgentRow>,
    ),
    Route {
        query: &[
            ("force", "kill it first if it is not stopped"),
            ("keep", "leave its worktree where it is"),
            ("purge", "delete its files instead of archiving them"),
        ],
        ..route(
            Verb::Rm,
            "DELETE",
            "/v1/agents/{id}",
            "Remove a stopped agent from the registry",
            None,
            schema::<Removed>,
        )
    },
    route(
        Verb::Wake,
        "POST",
        "/v1/agents/{id}/wake",
        "Make sure that the agent's worker listens on its socket",
        Some(schema::<WakeRequest>),
        schema::<Awake>,
    ),
    route(
        Verb::Send,
        "POST",
        "/v1/agents/{id}/send",
        "Say something to an agent, which is woken if it sleeps; answers when it has the message on its disk",
        Some(schema::<SendRequest>),
        schema::<Sent>,
    ),
    route(
        Verb::Approvals,
        "GET",
        "/v1/approvals",
        "The calls of all agents that wait for a person",
        None,
        schema::<ApprovalList>,
    ),
    route(
        Verb::Approve,
        "POST",
        "/v1/agents/{id}/approve",
        "Allow exactly one call, for a person",
        Some(schema::<ApproveRequest>),
        schema::<Answered>,
    ),
    route(
        Verb::Deny,
        "POST",
        "/v1/agents/{id}/deny",
        "Refuse exactly one call, for a person",
        Some(schema::<DenyRequest>),
        schema::<Answered>,
    ),
    Route {
        query: &[("raw", "what its process printed instead of its transcript")],
        numbers: &[("after", "begin behind what was told: the last answer's `next`")],
        ..route(
            Verb::Log,
            "GET",
            "/v1/agents/{id}/log",
            "What an agent did: the records of its transcript, a part at a time",
            None,
            schema::<LogPart>,
        )
    },
    Route {
        query: &[("stat", "leave the patch out")],
        ..route(
            Verb::Diff,
            "GET",
            "/v1/agents/{id}/diff",
            "What an agent changed against its recorded base, committed or not",
            None,
            schema::<Diff>,
        )
    },
    route(
        Verb::Merge,
        "POST",
        "/v1/agents/{id}/merge",
        "Land an agent's work, or try to; for a person",
        Some(schema::<MergeRequest>),
        schema::<MergeAnswer>,
    ),
    Route {
        numbers: &[
            ("from", "milliseconds since 1970; how each agent stood then comes first"),
            ("to", "milliseconds since 1970; now when absent"),
        ],
        ..route(
            Verb::History,
            "GET",
            "/v1/history",
            "The changes of state of all agents, removed ones included",
            None,
            schema::<History>,
        )
    },
    route(
        Verb::Schedules,
        "GET",
        "/v1/schedules",
        "All schedules: when each runs, and what became of its last run",
        None,
        schema::<ScheduleList>,
    ),
    route(
        Verb::Schedule,
        "POST",
        "/v1/schedules",
        "Make a schedule, durably: it starts an agent each time that it is due; for a person",
        Some(schema::<ScheduleRequest>),
        schema::<ScheduleRow>,
    ),
    route(
        Verb::Unschedule,
        "DELETE",
        "/v1/schedules/{id}",
        "Remove a schedule; the agents that it started stay; for a person",
        None,
        schema::<ScheduleRow>,
    ),
    route(
        Verb::PauseSchedule,
        "POST",
        "/v1/schedules/{id}/pause",
        "Pause a schedule, or let it go on; for a person",
        Some(schema::<PauseRequest>),
        schema::<ScheduleRow>,
    ),
    route(
        Verb::RunSchedule,
        "POST",
        "/v1/schedules/{id}/run",
        "Start an agent of a schedule now, beside its times; for a person",
        None,
        schema::<Spawned>,
    ),
    route(
        Verb::ScheduleKeys,
        "POST",
        "/v1/schedules/keys",
        "Hand keys to the schedules that have lost theirs, as after a reboot; for a person",
        Some(schema::<KeysRequest>),
        schema::<ScheduleList>,
    ),
    route(
        Verb::Events,
        "GET",
        "/v1/events",
        "What happens, as server-sent events: all agents, then news",
        None,
        schema::<FleetEvent>,
    ),
    route(
        Verb::Shutdown,
        "POST",
        "/v1/shutdown",
        "Leave after the requests in flight; agents live on",
        None,
        schema::<Stopping>,
    ),
    route(Verb::OpenApi, "GET", "/openapi.json", "This document", None, schema::<Map<String, Value>>),
];

const fn route(
    verb: Verb,
    method: &'static str,
    path: &'static str,
    summary: &'static str,
    body: Option<SchemaOf>,
    answer: SchemaOf,
) -> Route {
    Route { verb, method, path, summary, query: &[], numbers: &[], body, answer }
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
