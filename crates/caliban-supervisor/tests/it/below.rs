//! Agents that agents start through a shell: what they get of the one above them (a11).

use std::path::{Path, PathBuf};

use caliban_contract::records;
use caliban_core::budget::Limits;
use caliban_core::ids::AgentId;
use caliban_core::lifecycle::State;
use caliban_core::mode::Mode;
use caliban_core::spec::{MAX_DEPTH, SpawnSpec};
use caliban_fleet::Client;
use caliban_fleet::protocol::{ResumeRequest, SpawnRequest};
use serde_json::Value;

use crate::fleet::{Fleet, wait_until, write};

/// A script that asks a fleet for an agent whenever the file `go` appears, and says what it got.
struct Asks {
    dir: PathBuf,
    script: String,
}

impl Asks {
    fn of(fleet: &Fleet, name: &str) -> Self {
        Self::to(fleet, name, "/v1/agents")
    }

    fn to(fleet: &Fleet, name: &str, route: &str) -> Self {
        let dir = fleet.temp.path().join(name);
        std::fs::create_dir(&dir).unwrap();
        let script = format!(
            "cd {} && while :; do while [ ! -e go ]; do sleep 0.01; done; rm go; \
             curl -s --unix-socket {} -H 'content-type: application/json' --data-binary @body http://x{route} > new; \
             mv new answer; done",
            dir.display(),
            fleet.places.socket().display()
        );
        Self { dir, script }
    }

    /// What the agent gets for this request.
    fn answer(&self, request: &impl serde::Serialize) -> Value {
        let answer = self.dir.join("answer");
        let _none = std::fs::remove_file(&answer);
        write(&self.dir.join("body"), &serde_json::to_string(request).unwrap());
        write(&self.dir.join("go"), "");
        wait_until("it has an answer", || answer.exists());
        serde_json::from_str(&std::fs::read_to_string(answer).unwrap()).unwrap()
    }
}

fn spec_in(dir: &Path) -> SpawnSpec {
    SpawnSpec::from_json(&std::fs::read_to_string(dir.join(records::SPEC)).unwrap()).unwrap()
}

/// The request of an agent that was started, as it is on the disk.
fn spec_of(fleet: &Fleet, answer: &Value) -> SpawnSpec {
    let id: AgentId = answer["id"].as_str().unwrap_or_else(|| panic!("{answer}")).parse().unwrap();
    spec_in(&fleet.places.agent_dir(id))
}

async fn up(fleet: &Fleet, client: &mut Client, request: SpawnRequest) -> AgentId {
    let id = client.spawn(request).await.unwrap().id;
    fleet.until_row(client, id, |row| row.pid.is_some() && row.turns > 0).await;
    id
}

#[tokio::test]
async fn a11_an_agent_that_spawns_in_another_repo_is_the_parent_there() {
    let (fleet, other) = (Fleet::new(), Fleet::new());
    let (mut client, mut others) = (fleet.client().await, other.client().await);
    let asks = Asks::of(&other, "asks");
    let mut request = fleet.request(&format!("sh:{}", asks.script));
    request.spec.depth = MAX_DEPTH - 1;
    let parent = up(&fleet, &mut client, request).await;
    // However it calls itself.
    let mut plain = other.request("hang");
    (plain.spec.depth, plain.spec.parent) = (0, None);
    let answer = asks.answer(&plain);
    let child = spec_of(&other, &answer);
    assert_eq!((child.parent, child.depth), (Some(parent), MAX_DEPTH));
    let row = others.show(answer["id"].as_str().unwrap()).await.unwrap();
    assert_eq!(row.parent, Some(parent));
    // Back and forth leads nowhere.
    let deeper = Asks::of(&fleet, "deeper");
    let mut request = other.request(&format!("sh:{}", deeper.script));
    request.spec.depth = MAX_DEPTH;
    up(&other, &mut others, request).await;
    let refused = deeper.answer(&fleet.request("hang"));
    assert_eq!(refused["error"]["code"], "bad_request", "{refused}");
}

#[tokio::test]
async fn a11_what_an_agents_shell_starts_spends_from_the_agents_account_and_may_spend_no_more() {
    let (fleet, other) = (Fleet::new(), Fleet::new());
    let (mut client, _others) = (fleet.client().await, other.client().await);
    let (here, there) = (Asks::of(&fleet, "here"), Asks::of(&other, "there"));
    let mut request = fleet.request(&format!("sh:({}) & ({})", here.script, there.script));
    request.spec.setup.budget = Limits { tokens: Some(3000), ..Limits::NONE };
    let parent = up(&fleet, &mut client, request).await;
    let mut greedy = fleet.request("done");
    greedy.spec.setup.budget.tokens = Some(1_000_000);
    greedy.spec.setup.account_above = Some("somebody else's".to_owned());
    let hash = fleet.places.agent_dir(parent);
    let hash = hash.ancestors().nth(2).and_then(|dir| dir.file_name()).unwrap().to_str().unwrap().to_owned();
    let account = Some(format!("{hash}/{parent}"));
    let of = |fleet: &Fleet, answer: &Value| {
        let setup = spec_of(fleet, answer).setup;
        (setup.budget.tokens, setup.account_above)
    };
    assert_eq!(of(&fleet, &here.answer(&greedy)), (Some(3000), account.clone()));
    // Also in another repo.
    assert_eq!(of(&other, &there.answer(&other.request("done"))), (Some(3000), account.clone()));
    let mut modest = fleet.request("done");
    modest.spec.setup.budget.tokens = Some(10);
    assert_eq!(of(&fleet, &here.answer(&modest)), (Some(10), account));
}

#[tokio::test]
async fn a11_what_an_agents_shell_starts_may_do_no_more_than_the_agent() {
    let fleet = Fleet::new();
    let mut client = fleet.client().await;
    let asks = Asks::of(&fleet, "asks");
    let mut request = fleet.request(&format!("sh:{}", asks.script));
    request.spec.setup.permission_mode = Some(Mode::AcceptEdits);
    up(&fleet, &mut client, request).await;
    let mut wide = fleet.request("done");
    wide.spec.setup.permission_mode = Some(Mode::Unattended);
    let refused = asks.answer(&wide);
    assert_eq!(refused["error"]["code"], "conflict", "{refused}");
    assert_eq!(refused["error"]["hint"], "leave --permission-mode out: it then has the same as its parent");
    assert_eq!(client.list().await.unwrap().len(), 1);
    let same = spec_of(&fleet, &asks.answer(&fleet.request("done")));
    assert_eq!(same.setup.permission_mode, Some(Mode::AcceptEdits));
}

#[tokio::test]
async fn a11_what_a_worker_says_that_it_has_is_what_its_shell_hands_on() {
    let fleet = Fleet::new();
    let mut client = fleet.client().await;
    let asks = Asks::of(&fleet, "asks");
    let mut request = fleet.request(&format!("sh:{}", asks.script));
    request.spec.env.insert("XDG_CONFIG_HOME".to_owned(), "/config".to_owned());
    let parent = up(&fleet, &mut client, request).await;
    let dir = fleet.places.agent_dir(parent);
    let mut evil = fleet.request("done");
    for name in ["XDG_CONFIG_HOME", "XDG_DATA_HOME", "HOME"] {
        evil.spec.env.insert(name.to_owned(), "/evil".to_owned());
    }
    evil.spec.env.insert("CALIBAN_PERMISSION_MODE".to_owned(), "unattended".to_owned());
    // Nothing is known: the strictest holds.
    let child = spec_of(&fleet, &asks.answer(&evil));
    let decides = |child: &SpawnSpec| -> Vec<String> {
        let all = child.env.iter().map(|(name, value)| format!("{name}={value}"));
        all.filter(|variable| !variable.starts_with("FAKE=") && !variable.starts_with("PATH=")).collect()
    };
    assert_eq!(child.setup.permission_mode, Some(Mode::Default));
    assert_eq!(decides(&child), ["XDG_CONFIG_HOME=/config"]);
    // Limits that were raised count.
    let limits = serde_json::json!({"budget_tokens": 100_000});
    records::write(&dir, records::LIMITS, &limits).unwrap();
    let child = spec_of(&fleet, &asks.answer(&fleet.request("done")));
    assert_eq!(child.setup.budget.tokens, Some(100_000));
    let shim: records::ShimRecord = records::read(&dir, records::SHIM).unwrap();
    let rights = records::Rights {
        nonce: shim.nonce,
        mode: Mode::AcceptEdits,
        budget: Limits { tokens: Some(60_000), ..Limits::NONE },
        max_turns: 5,
        policy: Value::from("p"),
    };
    records::write(&dir, records::RIGHTS, &rights).unwrap();
    let child = spec_of(&fleet, &asks.answer(&evil));
    assert_eq!(child.setup.permission_mode, Some(Mode::AcceptEdits));
    assert_eq!((child.setup.budget.tokens, child.setup.max_turns), (Some(60_000), Some(5)));
    assert_eq!(child.setup.inherited_policy, Some("p".into()));
    assert_eq!(decides(&child), ["XDG_CONFIG_HOME=/config"]);
}

#[tokio::test]
async fn a11_no_agents_shell_raises_a_limit_or_changes_settings() {
    let fleet = Fleet::new();
    let mut client = fleet.client().await;
    let asks = Asks::to(&fleet, "asks", "/v1/agents/its-own/resume");
    let parent = up(&fleet, &mut client, fleet.request(&format!("sh:{}", asks.script))).await;
    let mut own = fleet.request("done");
    (own.spec.parent, own.spec.label) = (Some(parent), Some(caliban_core::names::Slug::slugify("its-own")));
    let ended = client.spawn(own).await.unwrap().id;
    fleet.until_row(&mut client, ended, |row| row.state.is_ending()).await;
    let refused = asks.answer(&serde_json::json!({"limits": {"budget_tokens": 99_000_000}}));
    let words = format!("a process of agent {parent} cannot change what an agent may spend: a person does");
    assert_eq!(
        (&refused["error"]["code"], &refused["error"]["message"]),
        (&"conflict".into(), &words.into())
    );
    assert!(!fleet.places.agent_dir(ended).join(records::LIMITS).exists());
    // A plain one is as it was: neither its variables nor its program are changed.
    let evil = fleet.temp.path().join("evil");
    let ran = fleet.temp.path().join("ran");
    write(&evil, &format!("#!/bin/sh\necho \"$@\" >> {}\n", ran.display()));
    std::fs::set_permissions(&evil, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let secrets =
        serde_json::json!({"CALIBAN_PERMISSION_MODE": "unattended", "LD_PRELOAD": "/evil.so", "KEY": "k"});
    let resumed = asks.answer(&serde_json::json!({"secrets": secrets, "program": evil}));
    assert_eq!(resumed["id"], ended.to_string(), "{resumed}");
    fleet.until_row(&mut client, ended, |row| row.state.is_ending()).await;
    assert_eq!(fleet.lines(ended, "runs").len(), 2);
    assert!(!ran.exists() && !fleet.places.agent_secrets(ended).exists());
    // A person raises what they like.
    let limits = caliban_contract::limits::RaisedLimits { budget_tokens: Some(7), ..Default::default() };
    let request = ResumeRequest { limits, ..ResumeRequest::default() };
    client.resume(&ended.to_string(), &request).await.unwrap();
    let limits: Value = records::read(&fleet.places.agent_dir(ended), records::LIMITS).unwrap();
    assert_eq!(limits, serde_json::json!({"budget_tokens": 7}));
}

#[tokio::test]
async fn a11_an_agents_shell_that_wakes_another_agent_hands_it_no_settings() {
    let fleet = Fleet::new();
    let mut client = fleet.client().await;
    let asks = Asks::to(&fleet, "asks", "/v1/agents/own/wake");
    let strangers = Asks::to(&fleet, "strangers", "/v1/agents/own/wake");
    let parent = up(&fleet, &mut client, fleet.request(&format!("sh:{}", asks.script))).await;
    up(&fleet, &mut client, fleet.request(&format!("sh:{}", strangers.script))).await;
    let mut request = fleet.request("serve");
    request.secrets = [("KEY".to_owned(), "first".to_owned())].into();
    (request.spec.parent, request.spec.label) =
        (Some(parent), Some(caliban_core::names::Slug::parse("own").unwrap()));
    let asleep = client.spawn(request).await.unwrap().id;
    fleet.until_state(&mut client, asleep, State::Idle).await;
    fleet.tell(asleep, "sleep");
    fleet.until_row(&mut client, asleep, |row| row.hibernated).await;
    // Its secrets are gone, as after a reboot: those of a person who wakes it would be taken, an agent's are not.
    std::fs::remove_file(fleet.places.agent_secrets(asleep)).unwrap();
    let secrets = serde_json::json!({"CALIBAN_PERMISSION_MODE": "unattended", "HOME": "/evil", "KEY": "k"});
    // Only what has started it reaches it at all.
    let woken = strangers.answer(&serde_json::json!({"secrets": secrets}));
    assert_eq!(woken["error"]["code"], "forbidden", "{woken}");
    let woken = asks.answer(&serde_json::json!({"secrets": secrets}));
    assert_eq!(woken["error"]["code"], "secrets_gone", "{woken}");
    assert!(!fleet.places.agent_secrets(asleep).exists());
}

#[tokio::test]
async fn a11_what_an_agents_shell_starts_runs_the_program_and_the_variables_of_the_agent() {
    let (fleet, other) = (Fleet::new(), Fleet::new());
    let (mut client, _others) = (fleet.client().await, other.client().await);
    let (here, there) = (Asks::of(&fleet, "here"), Asks::of(&other, "there"));
    let mut request = fleet.request(&format!("sh:({}) & ({})", here.script, there.script));
    request.secrets = [("KEY".to_owned(), "k".to_owned())].into();
    let env = request.spec.env.clone();
    up(&fleet, &mut client, request).await;
    for (fleet, asks) in [(&fleet, &here), (&other, &there)] {
        let mut evil = fleet.request("hang");
        evil.program = Some("/bin/false".into());
        evil.spec.env.insert("PATH".to_owned(), "/evil".to_owned());
        evil.secrets =
            [("LD_PRELOAD", "/evil.so"), ("KEY", "other")].map(|(n, v)| (n.into(), v.into())).into();
        let answer = asks.answer(&evil);
        assert_eq!(spec_of(fleet, &answer).env, env);
        let id: AgentId = answer["id"].as_str().unwrap().parse().unwrap();
        let handed = caliban_contract::HandedOver::read(&fleet.places.agent_secrets(id)).unwrap();
        let variables = [("KEY".to_owned(), "k".to_owned())].into();
        assert_eq!(handed, caliban_contract::HandedOver { variables, ..Default::default() });
        let mut client = fleet.client().await;
        fleet.until_row(&mut client, id, |row| row.turns > 0).await;
    }
}
