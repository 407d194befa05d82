//! No request ever breaks a pair of call and result, whatever happened before: random histories of prompts, calls,
//! kills, resumes and compactions, told to a server that holds the real services' rules.

use caliban_agent::{Agent, Kit, event::Outcome};
use caliban_providers::{Config, ProviderKind, RetryPolicy, build};
use serde_json::json;
use testkit::{ModelServer, StepExt, script::Script, script::ScriptStep, text, tools};
use tokio_util::sync::CancellationToken;

use crate::world::{World, prompt};

/// Histories in one run of the tests, with the same seeds each time.
const HISTORIES: u64 = 24;
/// What happens in one history.
const STEPS: u64 = 10;
const WINDOW: u64 = 4_000;
const SHORTENED: &str = "The conversation is about to be shortened";

/// A small generator, so that a seed is the whole story.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }

    /// Mostly short, sometimes a good part of the window.
    fn words(&mut self, what: &str) -> String {
        let length = [0, 40, 500, 3_000, 9_000][usize::try_from(self.roll(5)).unwrap()];
        format!("{what} {}", "w".repeat(length))
    }
}

/// The model: says something or calls one to three tools, often with ids that were there before.
fn model(dice: &mut Dice) -> Script {
    let mut steps = vec![text("the summary").on(SHORTENED).forever()];
    for number in 0..STEPS * 8 {
        let used = 200 + dice.roll(WINDOW);
        let step = if dice.roll(3) == 0 {
            text(dice.words("said"))
        } else {
            let calls = 1 + dice.roll(3);
            let mut step: ScriptStep = tools([] as [(&str, serde_json::Value); 0]);
            for call in 0..calls {
                let name = if dice.roll(6) == 0 { "held".to_owned() } else { format!("{number}-{call}") };
                step = step.and_tool("Staged", json!({"name": name, "says": dice.words("result")}));
                if dice.roll(2) == 0 {
                    step = step.call_id(format!("id{}", dice.roll(3)));
                }
            }
            step
        };
        steps.push(step.costs(used, 10));
    }
    Script { steps }
}

fn kit(world: &World, server: &ModelServer, kind: ProviderKind) -> Kit {
    let base = match kind {
        ProviderKind::OpenAi | ProviderKind::OpenAiChat => format!("{}/v1", server.url()),
        _ => server.url(),
    };
    let retry = RetryPolicy { attempts: 1, ..RetryPolicy::default() };
    let config = Config { base_url: Some(base), api_key: Some("key".into()), retry, ..Config::new(kind) };
    Kit { provider: build(config).unwrap(), window: Some(WINDOW), model: "test-model".into(), ..world.kit() }
}

/// Drives the agent until it is done, or kills it in a call that does not end.
async fn turn(world: &World, agent: &mut Agent, what: Option<&str>) -> Option<Outcome> {
    let cancel = CancellationToken::new();
    let before = held(world);
    let work = async {
        match what {
            Some(text) => prompt(agent, text).await.outcome,
            None => agent.go_on(&cancel).await.outcome,
        }
    };
    tokio::select! {
        outcome = work => Some(outcome),
        () = world.stage.reached_times("held begins", before + 1) => None,
    }
}

fn held(world: &World) -> usize {
    world.stage.log().iter().filter(|line| *line == "held begins").count()
}

async fn history(seed: u64, kind: ProviderKind) {
    let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let world = World::new(json!({"steps": []}));
    world.stage.hold("held");
    let server = ModelServer::start(model(&mut dice));
    let story = format!("history {seed} with {kind:?}");
    let mut agent = Agent::new(kit(&world, &server, kind)).await.unwrap();
    let mut is_killed = turn(&world, &mut agent, Some("the task")).await.is_none();
    for number in 0..STEPS {
        if is_killed || dice.roll(4) == 0 {
            agent.close().await;
            agent = Agent::resume(kit(&world, &server, kind)).await.unwrap();
        }
        is_killed = match dice.roll(4) {
            0 => {
                // A full script or window is no matter here; what was sent is.
                let _made = agent.compact(&CancellationToken::new()).await;
                false
            }
            1 => turn(&world, &mut agent, None).await.is_none(),
            _ => {
                let before = server.model_requests().len();
                let words = dice.words(&format!("prompt-{number}"));
                let ended = turn(&world, &mut agent, Some(&words)).await;
                let sent = server.model_requests().split_off(before);
                let answering =
                    sent.iter().find(|request| !String::from_utf8_lossy(&request.raw).contains(SHORTENED));
                if let Some(answering) = answering {
                    let body = String::from_utf8_lossy(&answering.raw);
                    assert!(body.contains(&words), "{story}: the prompt {number} is not in its request");
                }
                ended.is_none()
            }
        };
    }
    agent.close().await;
    for (number, request) in server.model_requests().iter().enumerate() {
        if let testkit::RequestOutcome::Rejected(why) = &request.outcome {
            panic!("{story}: request {number}: {why}");
        }
    }
    assert!(!server.model_requests().is_empty());
}

#[tokio::test]
async fn r17_no_history_breaks_a_pair_of_call_and_result() {
    let kinds =
        [ProviderKind::Anthropic, ProviderKind::OpenAi, ProviderKind::OpenAiChat, ProviderKind::Gemini];
    for seed in 0..HISTORIES {
        history(seed, kinds[usize::try_from(seed).unwrap() % kinds.len()]).await;
    }
}
