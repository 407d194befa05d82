//! What an agent's agent gets of the one above it (a11): depth, budget, rights.
//!
//! Who asks is seen in the processes above the caller, not believed; also when that agent is of another repo's fleet. What an
//! agent itself hands over (its worker asks) was narrowed by it. What one of its commands asks for (`caliban --bg` in a shell)
//! is narrowed here: it spends from the account of the agent above, has no wider mode, no further rules or tools. What the agent really has is
//! its worker's word ([`Rights`]); without it the request counts, in the default mode. The worker's program, its environment
//! and its secrets are those of the agent above: a variable (`LD_PRELOAD`, `PATH`, `HTTPS_PROXY`) or a program of the
//! command's choice would run or mislead the worker outside of every rule. For the same reasons a command that resumes,
//! respawns or wakes an agent changes neither its program nor its variables. Nor does it raise what another agent has.
//! Refuses rather than guesses.

use std::path::{Path, PathBuf};

use caliban_contract::HandedOver;
use caliban_contract::limits::RaisedLimits;
use caliban_contract::member;
use caliban_core::ids::AgentId;
use caliban_core::mode::Mode;
use caliban_core::spec::{SpawnSpec, StartedBy};

use super::Owner;
use super::spawn::bad;
use super::start;
use crate::ancestry::{self, AgentAbove, AgentProcess, Ancestry};
use crate::protocol::{ApiError, ErrorCode, HandedSecrets, ResumeRequest, SpawnRequest};
use crate::records::{self, Rights, ShimRecord};

/// Directories that count as inside the project, in a policy.
const EXTRA_DIRS: &str = "extra_dirs";

impl Owner {
    /// Puts a request below the agent that asks, if one does.
    pub(super) fn place_below(&self, request: &mut SpawnRequest, peer: i32) -> Result<(), ApiError> {
        let spec = &mut request.spec;
        let refused = |text: String| {
            Err(ApiError::new(ErrorCode::Conflict, text).hint("ask again, and wait for the answer"))
        };
        let next = match ancestry::above(peer) {
            Ancestry::Person => return self.place_below_named(spec),
            Ancestry::Member => {
                narrow_below_member(spec)?;
                spec.started_by = Some(StartedBy::Member);
                return self.place_below_named(spec);
            }
            Ancestry::Agents(agents) => agents.into_iter().next(),
            Ancestry::Unknown => {
                return refused(format!("nobody can tell who asks: process {peer} is gone or hidden"));
            }
        };
        // What is in a transcript decides what its agent may do: nobody takes one over that an agent may have written.
        if spec.conversation.is_some() {
            let text = "an agent cannot hand a conversation over: a person does";
            return Err(
                ApiError::new(ErrorCode::Conflict, text).hint("start an agent with a task of its own")
            );
        }
        // Without a record nobody knows what the agent may hand over.
        let account = next.as_ref().and_then(AgentAbove::account);
        let Some(AgentAbove { dir, nonce, which }) = next else {
            let text = format!(
                "process {peer} is a command of an agent that has no record of what it may hand over: it cannot start agents"
            );
            return Err(ApiError::new(ErrorCode::Conflict, text)
                .hint("the agent's own tools start helpers; for more, ask the user"));
        };
        let named = dir.file_name().and_then(|name| name.to_str()?.parse::<AgentId>().ok());
        let id = named.ok_or_else(|| bad(format!("{} is no agent's directory", dir.display())))?;
        let own = self.agents.get(&id).filter(|agent| agent.is_registered() && agent.record.nonce == nonce);
        let parent = parent_in(&dir, &nonce).map_err(|text| {
            ApiError::new(
                ErrorCode::Conflict,
                format!("nobody can tell what agent {id} may hand over: {text}"),
            )
        });
        // No agent starts one that comes before it, at a time of its choice, or in hours that are quiet for itself.
        if spec.start_at_ms.is_some() {
            return Err(ApiError::new(
                ErrorCode::Forbidden,
                format!("agent {id} cannot plan an agent: a person does"),
            )
            .hint("start it without --at"));
        }
        match own {
            Some(agent) => spec.setup.stand_below(&agent.about.standing()),
            None => spec.setup.stand_below(&parent.as_ref().map_err(Clone::clone)?.setup),
        }
        spec.parent = Some(id);
        spec.started_by = None;
        spec.depth = match own {
            Some(agent) => agent.about.depth,
            None => parent.as_ref().map_err(Clone::clone)?.depth,
        } + 1;
        if which == AgentProcess::Worker {
            return Ok(());
        }
        spec.setup.account_above = account;
        let shim: Option<ShimRecord> = records::read(&dir, records::SHIM);
        let above = match own {
            Some(_) => self.handover_of(id)?,
            None => handover_beside(shim.as_ref()),
        };
        request.secrets = handed_down(above, std::mem::take(&mut request.secrets).into()).into();
        request.program = match own {
            Some(agent) => Some(agent.record.program.clone()),
            None => shim.and_then(|shim| shim.program),
        };
        narrow(&format!("agent {id}"), &parent?, spec)
    }

    /// The parent that the request itself names.
    fn place_below_named(&self, spec: &mut SpawnSpec) -> Result<(), ApiError> {
        let Some(parent) = spec.parent else { return Ok(()) };
        let above = self.agents.get(&parent).filter(|agent| agent.is_registered());
        let above = above.ok_or_else(|| bad(format!("its parent {parent} is not registered")))?;
        spec.depth = above.about.depth + 1;
        Ok(())
    }
}

/// Limits are raised by persons only; what a command of an agent hands over changes neither program nor variables.
pub(super) fn raise(request: &mut ResumeRequest, peer: i32) -> Result<(), ApiError> {
    let Some(who) = hold(&mut request.secrets, &mut request.program, peer) else { return Ok(()) };
    if let Some(prompt) = &mut request.prompt {
        *prompt = format!("{}\n\n{prompt}", caliban_acp::not_the_users(&who));
    }
    if request.limits.is_none() {
        return Ok(());
    }
    let text = format!("{who} cannot change what an agent may spend: a person does");
    Err(ApiError::new(ErrorCode::Conflict, text)
        .hint("resume it without --max-turns, --budget-tokens, --budget-usd, --timeout and --priority, or ask the person"))
}

/// Takes program and variables out of what a command of an agent hands over; who that is, if one asks.
pub(super) fn hold(secrets: &mut HandedSecrets, program: &mut Option<PathBuf>, peer: i32) -> Option<String> {
    let who = ancestry::above(peer).agent_in_words()?;
    *secrets = handed_down(HandedOver::default(), std::mem::take(secrets).into()).into();
    *program = None;
    Some(who)
}

/// What an agent that a command starts is handed: what the agent above was, and what was taken out of its own texts. The
/// agent above may have been resumed with other settings since: the files of now hold for both.
fn handed_down(above: HandedOver, asked: HandedOver) -> HandedOver {
    HandedOver { settings: None, task: asked.task, resume: asked.resume, ..above }
}

/// What an agent of another repo's fleet was handed; nothing when it is gone or cannot be read.
fn handover_beside(shim: Option<&ShimRecord>) -> HandedOver {
    let socket = shim.and_then(|shim| shim.socket.as_deref());
    let read = |socket| start::read_handover(&caliban_contract::secrets_file(socket)).ok();
    socket.and_then(read).unwrap_or_default()
}

/// The request of an agent, with what it really has in this run.
fn parent_in(dir: &Path, nonce: &str) -> Result<SpawnSpec, String> {
    let bytes = records::read_capped(&dir.join(records::SPEC), records::RECORD_CAP);
    let bytes = bytes.map_err(|error| format!("{}: {error}", records::SPEC))?;
    let mut spec =
        SpawnSpec::from_json(&String::from_utf8_lossy(&bytes)).map_err(|error| error.to_string())?;
    let rights: Option<Rights> = records::read(dir, records::RIGHTS);
    let raised = RaisedLimits::read(dir);
    spec.setup.priority = raised.priority.or(spec.setup.priority);
    match rights.filter(|rights| rights.nonce == nonce) {
        Some(rights) => {
            spec.setup.permission_mode = Some(rights.mode);
            spec.setup.budget = rights.budget;
            spec.setup.max_turns = Some(rights.max_turns);
            spec.setup.inherited_policy = Some(rights.policy);
        }
        // A worker that has not come so far, or is older than the file.
        None => {
            raised.apply(&mut spec.setup.max_turns, &mut spec.setup.budget);
        }
    }
    Ok(spec)
}

/// Makes a request of a team's member no wider than what members may do. Its variables and its hooks are the request's own: a
/// member is a program that a person started, with that person's environment.
fn narrow_below_member(child: &mut SpawnSpec) -> Result<(), ApiError> {
    let mut parent = SpawnSpec { env: child.env.clone(), ..SpawnSpec::new("", child.cwd.clone()) };
    parent.setup.permission_mode = Some(member::MODE);
    parent.setup.hooks.clone_from(&child.setup.hooks);
    parent.setup.inherited_policy.clone_from(&child.setup.inherited_policy);
    // Not that of members where nobody asks for it: a member may hand over less than it has.
    child.setup.permission_mode = child.setup.permission_mode.or(Some(Mode::Default));
    narrow("a team's member", &parent, child)
}

/// Makes a request no wider than what the one above it has.
fn narrow(who: &str, parent: &SpawnSpec, child: &mut SpawnSpec) -> Result<(), ApiError> {
    let refused = |text: String, hint: &str| Err(ApiError::new(ErrorCode::Conflict, text).hint(hint));
    let mode = parent.setup.permission_mode.unwrap_or(Mode::Default);
    if let Some(asked) = child.setup.permission_mode.filter(|asked| mode.narrower(*asked) != *asked) {
        let text = format!("{who} may not start one in the mode {asked}: its own is {mode}");
        return refused(text, "leave --permission-mode out: it then has the same as its parent");
    }
    child.timeout_ms = least(child.timeout_ms, parent.timeout_ms);
    // The settings must not say another.
    child.setup.permission_mode = child.setup.permission_mode.or(Some(mode));
    child.env.clone_from(&parent.env);
    if let Some(rule) = child.setup.allow.iter().find(|rule| !parent.setup.allow.contains(rule)) {
        let text = format!("{who} may not allow another what it was not allowed itself: {rule}");
        return refused(text, "leave --allow out: the rules of the settings hold for both");
    }
    child.setup.deny.extend(
        parent.setup.deny.iter().filter(|rule| !child.setup.deny.contains(rule)).cloned().collect::<Vec<_>>(),
    );
    if let Some(tools) = &parent.setup.tools {
        if let Some(tool) = child.setup.tools.iter().flatten().find(|tool| !tools.contains(tool)) {
            let text = format!("{who} may not give another the tool {tool}, which it has not itself");
            return refused(text, "leave --tools out: it then has the same as its parent");
        }
        child.setup.tools = child.setup.tools.take().or_else(|| Some(tools.clone()));
    }
    let in_policy =
        parent.setup.inherited_policy.as_ref().and_then(|policy| policy.get(EXTRA_DIRS)?.as_array());
    let in_policy: Vec<&Path> =
        in_policy.into_iter().flatten().filter_map(|dir| dir.as_str().map(Path::new)).collect();
    let has = |dir: &&PathBuf| parent.setup.add_dirs.contains(dir) || in_policy.contains(&dir.as_path());
    if let Some(dir) = child.setup.add_dirs.iter().find(|dir| !has(dir)) {
        let text = format!("{who} may not give another the directory {dir:?}, which it has not itself");
        return refused(text, "leave --add-dir out");
    }
    child.setup.inherited_policy.clone_from(&parent.setup.inherited_policy);
    child.setup.hooks.clone_from(&parent.setup.hooks);
    child.setup.no_sub_agent |= parent.setup.no_sub_agent;
    child.setup.max_turns = least(child.setup.max_turns, parent.setup.max_turns);
    child.setup.budget = child.setup.budget.narrower(parent.setup.budget);
    Ok(())
}

fn least(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

#[cfg(test)]
mod tests {
    use caliban_core::budget::Limits;
    use caliban_core::price::MicroUsd;
    use serde_json::Value;

    use std::collections::BTreeMap;

    use super::*;

    fn spec(change: impl FnOnce(&mut SpawnSpec)) -> SpawnSpec {
        let mut spec = SpawnSpec::new("task", "/work");
        change(&mut spec);
        spec
    }

    fn narrowed(parent: &SpawnSpec, mut child: SpawnSpec) -> Result<SpawnSpec, String> {
        narrow("it", parent, &mut child).map(|()| child).map_err(|error| error.message)
    }

    #[test]
    fn a11_no_limit_is_wider_than_that_of_the_agent_above_whose_account_pays() {
        let limits = |tokens, usd| Limits { tokens: Some(tokens), usd: Some(MicroUsd(usd)), ..Limits::NONE };
        let parent = spec(|spec| spec.setup.budget = limits(3000, 100));
        let asks = |tokens| spec(move |spec| spec.setup.budget.tokens = Some(tokens));
        assert_eq!(narrowed(&parent, spec(|_| {})).unwrap().setup.budget, limits(3000, 100));
        assert_eq!(narrowed(&parent, asks(7)).unwrap().setup.budget, limits(7, 100));
        assert_eq!(narrowed(&parent, asks(1_000_000)).unwrap().setup.budget, limits(3000, 100));
        assert_eq!(narrowed(&spec(|_| {}), asks(9)).unwrap().setup.budget.tokens, Some(9));
    }

    #[test]
    fn a11_rights_are_never_wider_than_those_above() {
        let plan = spec(|spec| {
            spec.setup.permission_mode = Some(Mode::Plan);
            spec.setup.deny = vec!["Bash(rm *)".into()];
            spec.setup.allow = vec!["Read".into()];
            spec.setup.tools = Some(vec!["Read".into(), "Bash".into()]);
            spec.setup.max_turns = Some(9);
            spec.setup.inherited_policy = Some(Value::from("p"));
        });
        let child = narrowed(&plan, spec(|spec| spec.setup.deny = vec!["Edit".into()])).unwrap();
        let expected = spec(|spec| {
            spec.setup.permission_mode = Some(Mode::Plan);
            spec.setup.deny = vec!["Edit".into(), "Bash(rm *)".into()];
            spec.setup.tools = Some(vec!["Read".into(), "Bash".into()]);
            spec.setup.max_turns = Some(9);
            spec.setup.inherited_policy = Some(Value::from("p"));
        });
        assert_eq!(child, expected);
        let asks = |mode| spec(move |spec| spec.setup.permission_mode = Some(mode));
        let refused = narrowed(&plan, asks(Mode::Default)).unwrap_err();
        assert_eq!(refused, "it may not start one in the mode default: its own is plan");
        // A mode that is not known counts as the default one, and the settings of the child do not change it.
        let plain = spec(|_| {});
        assert!(narrowed(&plain, asks(Mode::Unattended)).is_err());
        assert_eq!(narrowed(&plain, asks(Mode::Plan)).unwrap(), asks(Mode::Plan));
        assert_eq!(narrowed(&plain, plain.clone()).unwrap(), asks(Mode::Default));
        let allows = spec(|spec| spec.setup.allow = vec!["Bash(*)".into()]);
        assert!(narrowed(&plain, allows).is_err());
        let takes = spec(|spec| spec.setup.tools = Some(vec!["Write".into()]));
        assert!(narrowed(&plan, takes).is_err());
        let adds = |dir: &str| spec(|spec| spec.setup.add_dirs = vec![dir.into()]);
        let refused = narrowed(&plain, adds("/")).unwrap_err();
        assert_eq!(refused, r#"it may not give another the directory "/", which it has not itself"#);
        let has = spec(|spec| {
            spec.setup.inherited_policy = Some(serde_json::json!({"extra_dirs": ["/srv"]}));
        });
        for parent in [adds("/srv"), has] {
            assert!(narrowed(&parent, adds("/srv")).is_ok());
            assert!(narrowed(&parent, adds("/")).is_err());
        }
        // Nobody gets rid of the settings' hooks by naming others.
        let hooked = spec(|spec| spec.setup.hooks = Some(Vec::new()));
        assert_eq!(narrowed(&plain, hooked).unwrap(), asks(Mode::Default));
    }

    #[test]
    fn a11_an_agent_that_a_shell_starts_has_the_variables_of_the_agent_above() {
        let variables = |all: &[(&str, &str)]| -> BTreeMap<String, String> {
            all.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        let of = |all: &[(&str, &str)]| spec(|spec| spec.env = variables(all));
        let parent = of(&[("HOME", "/h"), ("CALIBAN_MODEL", "m"), ("PATH", "/bin")]);
        let child = of(&[
            ("HOME", "/evil"),
            ("XDG_DATA_HOME", "/evil"),
            ("CALIBAN_PERMISSION_MODE", "unattended"),
            ("LD_PRELOAD", "/evil.so"),
            ("PATH", "/evil"),
        ]);
        let child = narrowed(&parent, child).unwrap();
        assert_eq!(child.env, parent.env);
        let handed = |all: &[(&str, &str)]| HandedOver::from(variables(all));
        let above = handed(&[
            ("KEY", "k"),
            ("CALIBAN_HIDDEN", "[[\"N\",\"v\"]]"),
            ("CALIBAN_VEILED_TASK", "[\"old\"]"),
            ("CALIBAN_ASKED_SETTINGS", "old"),
        ]);
        let asked = handed(&[
            ("LD_PRELOAD", "/evil.so"),
            ("HTTPS_PROXY", "http://evil"),
            ("KEY", "other"),
            ("CALIBAN_VEILED_TASK", "[\"new\"]"),
            ("CALIBAN_HIDDEN", "[[\"EVIL\",\"v\"]]"),
            ("CALIBAN_ASKED_SETTINGS", "evil"),
        ]);
        let expected = handed(&[
            ("KEY", "k"),
            ("CALIBAN_HIDDEN", "[[\"N\",\"v\"]]"),
            ("CALIBAN_VEILED_TASK", "[\"new\"]"),
        ]);
        assert_eq!(handed_down(above, asked), expected);
    }

    #[test]
    fn a19_below_a_member_an_agent_has_at_most_what_members_have() {
        let below = |change: fn(&mut SpawnSpec)| {
            let mut child = spec(change);
            narrow_below_member(&mut child).map(|()| child).map_err(|error| error.message)
        };
        let mode = |mode| move |spec: SpawnSpec| assert_eq!(spec.setup.permission_mode, Some(mode));
        below(|_| {}).map(mode(Mode::Default)).unwrap();
        below(|spec| spec.setup.permission_mode = Some(Mode::Plan)).map(mode(Mode::Plan)).unwrap();
        below(|spec| spec.setup.permission_mode = Some(Mode::AcceptEdits))
            .map(mode(Mode::AcceptEdits))
            .unwrap();
        let refused = below(|spec| spec.setup.permission_mode = Some(Mode::Unattended)).unwrap_err();
        assert_eq!(
            refused,
            "a team's member may not start one in the mode unattended: its own is accept-edits"
        );
        assert!(below(|spec| spec.setup.allow = vec!["Bash(*)".into()]).is_err());
        assert!(below(|spec| spec.setup.add_dirs = vec!["/".into()]).is_err());
        let kept = below(|spec| {
            spec.env.insert("HOME".into(), "/h".into());
            spec.setup.inherited_policy = Some(Value::from("p"));
        });
        let kept = kept.unwrap();
        assert_eq!((kept.env.len(), kept.setup.inherited_policy), (1, Some(Value::from("p"))));
    }

    #[test]
    fn a11_no_sub_agent_holds_below() {
        let parent = spec(|spec| spec.setup.no_sub_agent = true);
        assert!(narrowed(&parent, spec(|_| {})).unwrap().setup.no_sub_agent);
    }

    #[test]
    fn a11_what_the_worker_says_that_it_has_counts_for_its_own_run() {
        let dir = tempfile::tempdir().unwrap();
        let asked = spec(|spec| spec.setup.budget.tokens = Some(6000));
        records::write(dir.path(), records::SPEC, &asked).unwrap();
        let limits =
            serde_json::json!({"max_turns": 9, "budget_tokens": 100_000, "budget_micro_usd": 1_500_000});
        records::write(dir.path(), records::LIMITS, &limits).unwrap();
        let raised = spec(|spec| {
            spec.setup.budget =
                Limits { tokens: Some(100_000), usd: Some(MicroUsd(1_500_000)), ..Limits::NONE };
            spec.setup.max_turns = Some(9);
        });
        assert_eq!(parent_in(dir.path(), "2"), Ok(raised.clone()));
        let rights = Rights {
            nonce: "1".into(),
            mode: Mode::AcceptEdits,
            budget: Limits { tokens: Some(70), ..Limits::NONE },
            max_turns: 5,
            policy: Value::from("p"),
        };
        records::write(dir.path(), records::RIGHTS, &rights).unwrap();
        assert_eq!(parent_in(dir.path(), "2"), Ok(raised));
        let has = spec(|spec| {
            spec.setup.budget = rights.budget;
            spec.setup.permission_mode = Some(Mode::AcceptEdits);
            spec.setup.max_turns = Some(5);
            spec.setup.inherited_policy = Some(Value::from("p"));
        });
        assert_eq!(parent_in(dir.path(), "1"), Ok(has));
    }
}
