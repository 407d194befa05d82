//! Spawn, list, resume, respawn, rm, hibernate and wake.

use caliban_core::lifecycle::{Ending, State, WaitingFor};
use caliban_core::spec::MAX_PROMPT_BYTES;
use caliban_fleet::protocol::{FleetEvent, RespawnRequest, ResumeRequest, RmRequest};

use caliban_contract::records::WorkerStatus;

use crate::fleet::{Fleet, is_alive, quick, refused, wait_until};

#[tokio::test]
async fn f07_f08_list_shows_every_agent_with_its_state_as_a_word() {
    let fleet = Fleet::new();
    let mut client = fleet.client().await;
    let mut expected = Vec::new();
    for (plan, state) in [
        ("done", State::Done),
        ("fail", State::Failed),
        ("exit:3", State::Failed),
        ("hang", State::Running),
        ("serve", State::Idle),
        ("exit:0", State::Crashed),
    ] {
        let id = fleet.spawn(&mut client, plan).await;
        fleet.until_state(&mut client, id, state).await;
        expected.push((id, state.word().to_owned(), format!("do {plan}")));
    }
    let killed = fleet.spawn_up(&mut client, "hang").await;
    client.kill(&killed.to_string(), &quick()).await.unwrap();
    expected.push((killed, "killed".to_owned(), "do hang".to_owned()));
    let rows = client.list().await.unwrap();
    let shown: Vec<_> = rows.iter().map(|row| (row.id, row.state.to_string(), row.prompt.clone())).collect();
    assert_eq!(shown, expected);
    let endings: Vec<Option<Ending>> = rows.into_iter().map(|row| row.ending).collect();
    let error = |text: &str| Some(Ending::Error { text: text.to_owned() });
    assert_eq!(
        endings,
        [
            Some(Ending::Finished),
            error("the fake failed"),
            error("the worker ended with code 3 and gave no reason; see its worker.log"),
            None,
            None,
            Some(Ending::Unknown),
            Some(Ending::Signal { number: 15 }),
        ]
    );
}

#[tokio::test]
async fn f09_a_label_and_a_unique_prefix_name_an_agent() {
    let fleet = Fleet::new();
    let mut client = fleet.client().await;
    let labelled = |plan: &str, label: &str| {
        let mut request = fleet.request(plan);
        request.spec.label = Some(label.parse().unwrap());
        request
    };
    let id = client.spawn(labelled("hang", "my-agent")).await.unwrap().id;
    assert_eq!(client.show("my-agent").await.unwrap().id, id);
    assert_eq!(client.show(&id.to_string()[..7]).await.unwrap().id, id);
    let (code, message, _) = refused(client.show("nobody/../x").await);
    assert_eq!(
        (code.as_str(), message.as_str()),
        ("not_found", "no agent has the id, id prefix or label 'nobody/../x'")
    );
    // One name, one living agent.
    let (code, message, hint) = refused(client.spawn(labelled("hang", "my-agent")).await);
    let expected = format!("the label my-agent is in use: agent {id} has it and has not ended");
    assert_eq!((code.as_str(), message), ("conflict", expected));
    assert_eq!(hint, "choose another label, or end that agent first");
    let (code, message, _) = refused(client.spawn(labelled("hang", "0badcafe")).await);
    assert_eq!(
        (code.as_str(), message.as_str()),
        ("bad_request", "the label 0badcafe looks like the id of an agent")
    );
    // A child's label was chosen by a model: it gets a free one.
    let mut child = labelled("hang", "my-agent");
    child.spec.parent = Some(id);
    let child = client.spawn(child).await.unwrap().id;
    assert_eq!(client.show(&child.to_string()).await.unwrap().label.as_deref(), Some("my-agent-2"));
    // Of those that have ended and one that lives the living one is meant; else they are told apart by the id.
    client.kill("my-agent", &quick()).await.unwrap();
    let next = client.spawn(labelled("hang", "my-agent")).await.unwrap().id;
    assert_eq!(client.show("my-agent").await.unwrap().id, next);
    client.kill("my-agent", &quick()).await.unwrap();
    let (code, message, _) = refused(client.show("my-agent").await);
    assert_eq!(code, "ambiguous");
    assert_eq!(message, format!("'my-agent' fits several agents: {id} (my-agent), {next} (my-agent)"));
}

#[tokio::test]
async fn f13_respawn_starts_anew_from_the_spec_with_a_new_id() {
    let fleet = Fleet::new();
    let mut client = fleet.client().await;
    let old = fleet.spawn_up(&mut client, "hang").await;
    let shim = fleet.shim(old);
    let respawned = client.respawn(&old.to_string(), &RespawnRequest::default()).await.unwrap();
    assert_eq!(respawned.old, old);
    assert_ne!(respawned.id, old);
    assert!(!is_alive(shim.pid) && !is_alive(shim.worker_pid.unwrap()));
    let row = fleet.until_row(&mut client, respawned.id, |row| row.turns > 0).await;
    assert_eq!((row.state, row.prompt.as_str()), (State::Running, "do hang"));
    assert_eq!(refused(client.show(&old.to_string()).await).0, "not_found");
    assert!(!fleet.places.agent_dir(old).exists());
    assert_eq!(std::fs::read_to_string(respawned.archived.join("runs")).unwrap().lines().count(), 1);
    // Also to the next daemon the old one is gone.
    fleet.kill_daemon();
    let rows = fleet.client().await.list().await.unwrap();
    assert_eq!(rows.iter().map(|row| row.id).collect::<Vec<_>>(), [respawned.id]);
}

#[tokio::test]
async fn f14_rm_takes_a_stopped_agent_and_force_a_running_one() {
    let fleet = Fleet::new();
    let mut client = fleet.client().await;
    let id = fleet.spawn_up(&mut client, "hang").await;
    let name = id.to_string();
    let (code, message, hint) = refused(client.rm(&name, RmRequest::default()).await);
    assert_eq!(code, "conflict");
    assert_eq!(message, format!("agent {id} is running; only a stopped agent is removed"));
    assert_eq!(hint, format!("`caliban kill {id}` first, or `caliban rm {id} --force`"));
    let pid = fleet.shim(id).worker_pid.unwrap();
    let removed = client.rm(&name, RmRequest { force: true, ..RmRequest::default() }).await.unwrap();
    assert_eq!((removed.id, removed.work), (id, Vec::new()));
    assert!(!is_alive(pid));
    assert_eq!(client.list().await.unwrap(), []);
    assert!(!fleet.places.agent_dir(id).exists());
    let done = fleet.spawn(&mut client, "done").await;
    fleet.until_state(&mut client, done, State::Done).await;
    client.rm(&done.to_string(), RmRequest::default()).await.unwrap();
    assert_eq!(client.list().await.unwrap(), []);
}

#[tokio::test]
async fn resume_goes_on_with_the_same_id_and_tells_the_worker_the_message() {
    let fleet = Fleet::new();
    let mut client = fleet.client().await;
    let id = fleet.spawn_up(&mut client, "serve").await;
    let name = id.to_string();
    let (code, message, _) = refused(client.resume(&name, &ResumeRequest::default()).await);
    assert_eq!(
        (code, message),
        ("conflict".to_owned(), "an agent that is idle cannot be resumed".to_owned())
    );
    client.kill(&name, &quick()).await.unwrap();
    let prompt = Some("also the refresh path".to_owned());
    client
        .resume(&name, &ResumeRequest { prompt: prompt.clone(), ..ResumeRequest::default() })
        .await
        .unwrap();
    let row = fleet.until_row(&mut client, id, |row| row.state == State::Idle && row.pid.is_some()).await;
    assert_eq!((row.last_text, row.runs, row.ending), (prompt, 2, None));
    wait_until("it runs again", || fleet.runs(id) == 2);
}

#[tokio::test]
async fn a_worker_shows_what_it_does_and_what_it_waits_for() {
    let fleet = Fleet::new();
    let mut client = fleet.client().await;
    let id = fleet.spawn_up(&mut client, "serve").await;
    let mut events = client.events().await.unwrap();
    fleet.tell(id, "work");
    let row = fleet.until_state(&mut client, id, State::Running).await;
    assert_eq!(row.activity.as_deref(), Some("Bash true"));
    fleet.tell(id, "ask");
    let row = fleet.until_row(&mut client, id, |row| row.waiting_for.is_some()).await;
    assert_eq!(row.waiting_for, Some(WaitingFor::Approval { call: "Bash rm -r x".to_owned() }));
    assert_eq!(row.asks.len(), 1);
    fleet.tell(id, "end");
    fleet.until_state(&mut client, id, State::Done).await;
    let mut states = Vec::new();
    while let Some(event) = events.next().await.unwrap() {
        let FleetEvent::Agent(row) = event else { continue };
        if states.last() != Some(&row.state) {
            states.push(row.state);
        }
        if row.state.is_ending() {
            break;
        }
    }
    assert_eq!(states, [State::Idle, State::Running, State::Done]);
}

#[tokio::test]
async fn hibernating_agents_cost_no_process_and_wake_with_the_same_id() {
    let fleet = Fleet::new();
    let mut client = fleet.client().await;
    let id = fleet.spawn_up(&mut client, "serve").await;
    let shim = fleet.shim(id);
    assert_eq!(client.wake(&id.to_string()).await.unwrap().socket, fleet.places.agent_socket(id));
    fleet.tell(id, "sleep");
    let row = fleet.until_row(&mut client, id, |row| row.hibernated).await;
    assert_eq!((row.state, row.pid, row.ending), (State::Idle, None, None));
    assert!(!is_alive(shim.pid));
    // It stays so across a daemon.
    fleet.kill_daemon();
    let mut client = fleet.client().await;
    assert!(client.show(&id.to_string()).await.unwrap().hibernated);
    let awake = client.wake(&id.to_string()).await.unwrap();
    assert_eq!((awake.id, awake.socket), (id, fleet.places.agent_socket(id)));
    fleet.tell(id, "work");
    let row = fleet.until_state(&mut client, id, State::Running).await;
    assert_eq!((row.runs, row.hibernated), (2, false));
    wait_until("it runs again", || fleet.runs(id) == 2);
}

#[tokio::test]
async fn whoever_wakes_an_agent_that_is_just_leaving_memory_gets_its_next_run() {
    let fleet = Fleet::new();
    let mut client = fleet.client().await;
    let id = fleet.spawn_up(&mut client, "serve").await;
    let gate = fleet.temp.path().join("gate");
    fleet.tell(id, &format!("linger {}", gate.display()));
    let dir = fleet.places.agent_dir(id);
    let says = || caliban_contract::records::read::<WorkerStatus>(&dir, caliban_contract::records::STATUS);
    wait_until("it says that it leaves", || says().is_some_and(|status| status.hibernated));
    let mut other = fleet.client().await;
    let name = id.to_string();
    let open = async {
        // It still listens, and will hear nothing.
        other.show(&name).await.unwrap();
        crate::fleet::write(&gate, "");
    };
    let (awake, ()) = tokio::join!(client.wake(&name), open);
    assert_eq!(awake.unwrap().id, id);
    let row = client.show(&name).await.unwrap();
    assert_eq!((row.runs, row.hibernated), (2, false));
    assert_eq!(fleet.ask(id, "say 1 hello").as_deref(), Some("has it"));
}

#[tokio::test]
async fn wake_says_why_not() {
    let fleet = Fleet::with(|options| options.max_running = 1);
    let mut client = fleet.client().await;
    let done = fleet.spawn(&mut client, "done").await;
    fleet.until_state(&mut client, done, State::Done).await;
    let (code, message, hint) = refused(client.wake(&done.to_string()).await);
    assert_eq!((code.as_str(), message), ("ended", format!("agent {done} has ended done (finished)")));
    assert_eq!(hint, format!("`caliban resume {done}` lets it go on"));
    fleet.spawn_up(&mut client, "hang").await;
    let queued = fleet.spawn(&mut client, "hang").await;
    let (code, message, _) = refused(client.wake(&queued.to_string()).await);
    assert_eq!((code.as_str(), message), ("queued", format!("agent {queued} waits for a place")));
}

#[tokio::test]
async fn secrets_reach_the_worker_and_no_file_below_the_base() {
    let fleet = Fleet::new();
    let mut client = fleet.client().await;
    let out = fleet.temp.path().join("out");
    let mut request = fleet.request(&format!("sh:printenv CANARY > {0}.new; mv {0}.new {0}", out.display()));
    request.secrets.secrets.insert("CANARY".to_owned(), "hunter2-canary".to_owned());
    let id = client.spawn(request).await.unwrap().id;
    wait_until("the worker has its secret", || out.exists());
    assert_eq!(std::fs::read_to_string(&out).unwrap(), "hunter2-canary\n");
    let secrets = fleet.places.agent_secrets(id);
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&secrets).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    client.kill(&id.to_string(), &quick()).await.unwrap();
    let found = std::process::Command::new("grep")
        .args(["-rl", "hunter2-canary"])
        .arg(fleet.places.base())
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&found.stdout), "");
    client.rm(&id.to_string(), RmRequest::default()).await.unwrap();
    assert!(!secrets.exists());
}

#[tokio::test]
async fn a_respawned_agent_has_the_secrets_of_the_old_one_or_those_that_are_given() {
    let fleet = Fleet::new();
    let mut client = fleet.client().await;
    let out = fleet.temp.path().join("out");
    let mut request = fleet.request(&format!("sh:printenv CANARY > {0}.new; mv {0}.new {0}", out.display()));
    request.secrets.secrets.insert("CANARY".to_owned(), "old".to_owned());
    let first = client.spawn(request).await.unwrap().id;
    let secret = || {
        wait_until("the worker has its secret", || out.exists());
        let secret = std::fs::read_to_string(&out).unwrap();
        std::fs::remove_file(&out).unwrap();
        secret
    };
    assert_eq!(secret(), "old\n");
    let second = client.respawn(&first.to_string(), &RespawnRequest::default()).await.unwrap().id;
    assert_eq!(secret(), "old\n");
    assert!(!fleet.places.agent_secrets(first).exists());
    let secrets = [("CANARY".to_owned(), "new".to_owned())].into();
    let new = RespawnRequest { secrets, ..RespawnRequest::default() };
    client.respawn(&second.to_string(), &new).await.unwrap();
    assert_eq!(secret(), "new\n");
}

#[tokio::test]
async fn readers_are_told_who_is_removed_and_who_came_instead() {
    let fleet = Fleet::new();
    let mut client = fleet.client().await;
    let id = fleet.spawn_up(&mut client, "hang").await;
    let mut events = client.events().await.unwrap();
    let new = client.respawn(&id.to_string(), &RespawnRequest::default()).await.unwrap().id;
    client.rm(&new.to_string(), RmRequest { force: true, ..RmRequest::default() }).await.unwrap();
    let (mut seen, mut removed) = (Vec::new(), Vec::new());
    while removed.last() != Some(&new) {
        match events.next().await.unwrap().unwrap() {
            FleetEvent::Agent(row) if seen.last() != Some(&row.id) => seen.push(row.id),
            FleetEvent::Removed { id } => removed.push(id),
            _ => {}
        }
    }
    assert_eq!((seen, removed), (vec![id, new], vec![id, new]));
}

#[tokio::test]
async fn f20_a_killed_agent_that_is_resumed_under_another_daemon_is_not_killed_again() {
    let fleet = Fleet::new();
    let mut client = fleet.client().await;
    let id = fleet.spawn_up(&mut client, "serve").await;
    let name = id.to_string();
    client.kill(&name, &quick()).await.unwrap();
    fleet.kill_daemon();
    let mut client = fleet.client().await;
    let prompt = Some("go on".to_owned());
    client
        .resume(&name, &ResumeRequest { prompt: prompt.clone(), ..ResumeRequest::default() })
        .await
        .unwrap();
    let row = fleet.until_row(&mut client, id, |row| row.pid.is_some() || row.state.is_ending()).await;
    assert_eq!(row.runs, 2);
    let row = fleet.until_row(&mut client, id, |row| row.state == State::Idle || row.state.is_ending()).await;
    assert_eq!((row.state, row.last_text), (State::Idle, prompt));
    assert_eq!(fleet.ask(id, "say 1 hello").as_deref(), Some("has it"));
    assert_eq!(fleet.log().matches("ending its run").count(), 1, "{}", fleet.log());
}

#[tokio::test]
async fn what_was_said_at_a_resume_is_kept_until_a_run_has_heard_it() {
    let fleet = Fleet::with(|options| options.max_running = 1);
    let mut client = fleet.client().await;
    let id = fleet.spawn_up(&mut client, "serve").await;
    let name = id.to_string();
    client.kill(&name, &quick()).await.unwrap();
    let saying = |text: &str| ResumeRequest { prompt: Some(text.to_owned()), ..ResumeRequest::default() };
    // Its worker ends before it has heard anything.
    let deaf = ResumeRequest { program: Some("/bin/false".into()), ..saying("one") };
    client.resume(&name, &deaf).await.unwrap();
    fleet.until_state(&mut client, id, State::Failed).await;
    // It never begins.
    let hangs = fleet.spawn_up(&mut client, "hang").await;
    client.resume(&name, &saying("two")).await.unwrap();
    assert_eq!(client.kill(&name, &quick()).await.unwrap().state, State::Killed);
    // Another daemon knows of it, too.
    fleet.kill_daemon();
    let mut client = fleet.client().await;
    let hears = ResumeRequest { program: Some(crate::fleet::fake_worker()), ..saying("three") };
    client.resume(&name, &hears).await.unwrap_or_else(|error| panic!("{error:?}\n{}", fleet.log()));
    client.kill(&hangs.to_string(), &quick()).await.unwrap();
    let row = fleet.until_row(&mut client, id, |row| row.state == State::Idle && row.pid.is_some()).await;
    assert_eq!(row.last_text.as_deref(), Some("one\n\ntwo\n\nthree"));
    // What was heard is not said again.
    client.kill(&name, &quick()).await.unwrap();
    client.resume(&name, &ResumeRequest::default()).await.unwrap();
    let row = fleet.until_row(&mut client, id, |row| row.state == State::Idle && row.pid.is_some()).await;
    assert_eq!((row.last_text, row.runs), (None, 5));
}

#[tokio::test]
async fn a_long_message_at_a_resume_arrives_whole_and_too_much_is_refused() {
    let fleet = Fleet::new();
    let mut client = fleet.client().await;
    let id = fleet.spawn_up(&mut client, "serve").await;
    let name = id.to_string();
    client.kill(&name, &quick()).await.unwrap();
    let long = "x".repeat(MAX_PROMPT_BYTES - 10);
    let saying = |text: &str| ResumeRequest { prompt: Some(text.to_owned()), ..ResumeRequest::default() };
    let deaf = ResumeRequest { program: Some("/bin/false".into()), ..saying(&long) };
    client.resume(&name, &deaf).await.unwrap();
    fleet.until_state(&mut client, id, State::Failed).await;
    let (code, message, _) = refused(client.resume(&name, &saying("and this as well")).await);
    assert_eq!(code, "bad_request");
    let expected = "what it was told before has not been heard yet; with this it would be over 1048576 bytes";
    assert_eq!(message, expected);
    let hears = ResumeRequest { program: Some(crate::fleet::fake_worker()), ..ResumeRequest::default() };
    client.resume(&name, &hears).await.unwrap();
    let row = fleet.until_row(&mut client, id, |row| row.state == State::Idle && row.pid.is_some()).await;
    assert!(row.last_text.is_some_and(|text| text == long));
}

#[tokio::test]
async fn secrets_that_were_taken_out_of_what_nobody_heard_yet_are_kept_with_it() {
    let fleet = Fleet::new();
    let mut client = fleet.client().await;
    let out = fleet.temp.path().join("out");
    let script = format!(
        "sh:echo $CALIBAN_VEILED_TASK$CALIBAN_VEILED_RESUME $KEY > {0}.new; mv {0}.new {0}",
        out.display()
    );
    let mut request = fleet.request(&script);
    request.program = Some("/bin/false".into());
    request.secrets.secrets.insert("CALIBAN_VEILED_TASK".to_owned(), "[\"task\"]".to_owned());
    let id = client.spawn(request).await.unwrap().id;
    let name = id.to_string();
    fleet.until_state(&mut client, id, State::Failed).await;
    let saying = |text: &str, program: std::path::PathBuf| ResumeRequest {
        prompt: Some(format!("{text} [redacted:KEY]")),
        program: Some(program),
        secrets: [("CALIBAN_VEILED_RESUME", format!("[\"{text}\"]")), ("KEY", text.to_owned())]
            .map(|(name, value)| (name.to_owned(), value))
            .into(),
        ..ResumeRequest::default()
    };
    client.resume(&name, &saying("one", "/bin/false".into())).await.unwrap();
    fleet.until_state(&mut client, id, State::Failed).await;
    client.resume(&name, &saying("two", crate::fleet::fake_worker())).await.unwrap();
    wait_until("the worker has its secrets", || out.exists());
    assert_eq!(std::fs::read_to_string(&out).unwrap(), "two\n", "the gaps are in the record alone");
    let handed = caliban_contract::HandedOver::read(&fleet.places.agent_secrets(id)).unwrap();
    assert_eq!(
        (handed.task, handed.resume),
        (vec!["task".to_owned()], vec!["one".to_owned(), "two".to_owned()])
    );
}

#[tokio::test]
async fn limits_are_those_of_the_resume_that_was_accepted() {
    let fleet = Fleet::new();
    let mut client = fleet.client().await;
    let id = fleet.spawn(&mut client, "done").await;
    fleet.until_state(&mut client, id, State::Done).await;
    let name = id.to_string();
    let resume = |limits: serde_json::Value| ResumeRequest {
        limits: serde_json::from_value(limits).unwrap(),
        ..ResumeRequest::default()
    };
    let limits = || {
        caliban_contract::records::read::<serde_json::Value>(
            &fleet.places.agent_dir(id),
            caliban_contract::records::LIMITS,
        )
    };
    client
        .resume(&name, &resume(serde_json::json!({"max_turns": 5, "budget_micro_usd": null})))
        .await
        .unwrap();
    assert_eq!(limits(), Some(serde_json::json!({"max_turns": 5})));
    fleet.until_row(&mut client, id, |row| row.state == State::Done && row.runs == 2).await;
    // What one has raised the next does not forget.
    let more = resume(serde_json::json!({"budget_tokens": 7}));
    let other = resume(serde_json::json!({"max_turns": 1}));
    let mut second = fleet.client().await;
    let (one, two) = tokio::join!(client.resume(&name, &more), second.resume(&name, &other));
    let mut expected = serde_json::json!({"max_turns": 5});
    if one.is_ok() {
        expected["budget_tokens"] = 7.into();
    }
    if two.is_ok() {
        expected["max_turns"] = 1.into();
    }
    assert!(one.is_ok() || two.is_ok());
    assert_eq!(limits(), Some(expected));
    let hangs = fleet.spawn_up(&mut client, "hang").await;
    let (code, ..) = refused(client.resume(&hangs.to_string(), &other).await);
    assert_eq!(code.as_str(), "conflict");
    assert!(!fleet.places.agent_dir(hangs).join(caliban_contract::records::LIMITS).exists());
}
