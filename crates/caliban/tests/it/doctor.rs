//! `caliban doctor`.

use serde_json::Value;
use testkit::{ClosedPort, Env};

fn checks(env: &Env, code: i32) -> Vec<(String, String, String)> {
    let output = env.run(["doctor", "--json"]).expect_code(code);
    let checks: Vec<Value> = output.json();
    let text = |check: &Value, key: &str| check[key].as_str().unwrap_or_default().to_owned();
    checks
        .iter()
        .map(|check| {
            (text(check, "name"), text(check, "state"), text(check, "found") + " " + &text(check, "advice"))
        })
        .collect()
}

fn states(checks: &[(String, String, String)]) -> Vec<(&str, &str)> {
    checks.iter().map(|(name, state, _)| (name.as_str(), state.as_str())).collect()
}

#[test]
fn everything_in_order() {
    let mut env = Env::new();
    env.set("CALIBAN_PROVIDER", "scripted");
    let checks = checks(&env, 0);
    let names: Vec<_> = checks.iter().map(|(name, ..)| name.as_str()).collect();
    assert_eq!(names, ["git", "bash", "data", "disk", "sandbox", "limits", "settings", "trust", "provider"]);
    assert!(checks.iter().all(|(name, state, _)| state == "ok" || name == "disk"), "{checks:?}");
}

#[test]
fn what_is_wrong_is_said_with_what_to_do() {
    let mut env = Env::new();
    let closed = ClosedPort::new();
    env.set("CALIBAN_PROVIDER", "ollama").set("OLLAMA_HOST", format!("127.0.0.1:{}", closed.port()));
    env.set("HTTP_PROXY", "http://proxy.invalid:3128");
    let seen = checks(&env, 1);
    let provider = seen.last().unwrap();
    assert_eq!((provider.0.as_str(), provider.1.as_str()), ("provider", "fail"));
    assert!(provider.2.contains("nobody listens at 127.0.0.1"), "{provider:?}");
    assert!(provider.2.contains("it is set by: environment OLLAMA_HOST"), "{provider:?}");
    env.set("PATH", "/nonexistent");
    let seen = checks(&env, 1);
    assert_eq!(states(&seen)[..2], [("git", "fail"), ("bash", "fail")]);
}

#[test]
fn settings_that_do_not_parse_are_one_of_the_checks() {
    let env = Env::new();
    env.write(env.config().join("caliban/settings.toml"), "modle = 1\n");
    let output = env.run(["doctor"]).expect_code(1);
    let line = output.stdout.lines().find(|line| line.starts_with("fail  settings")).unwrap();
    assert!(line.ends_with("settings.toml:1:1: unknown key `modle`"), "{line}");
    assert!(output.stdout.contains("-> did you mean `model`?"), "{}", output.stdout);
    assert_eq!(output.stderr, "");
}

#[test]
fn a_key_in_a_file_that_others_can_read_is_a_warning() {
    let mut env = Env::new();
    env.set("CALIBAN_PROVIDER", "scripted");
    env.write(env.config().join("caliban/settings.toml"), "providers.openai.api_key = 'canary'\n");
    let checks = checks(&env, 0);
    let settings = checks.iter().find(|(name, ..)| name == "settings").unwrap();
    assert_eq!(settings.1, "warn");
    assert!(settings.2.contains("chmod 600") && !settings.2.contains("canary"), "{settings:?}");
}
