//! Keys, models, the record and the script's bookkeeping.

use std::panic::{AssertUnwindSafe, catch_unwind};

use serde_json::{Value, json};
use testkit::{ModelServer, Protocol, RequestOutcome, StepExt, script, text};

use crate::raw::{get, path, post, post_with, prompt, request};

#[test]
fn a_wrong_key_is_refused_in_the_protocols_own_form() {
    let server = ModelServer::builder(script![text("ok").forever()]).require_key("good").start();
    let ask = |protocol, key| {
        let answer = post_with(&server, path(protocol), key, &request(protocol, "hi"));
        (answer.status, if answer.status == 200 { Value::Null } else { answer.json() })
    };
    let openai = json!({"error": {"message": "Incorrect API key provided: bad. You can find your API key at \
        https://platform.openai.com/account/api-keys.", "type": "invalid_request_error", "param": null,
        "code": "invalid_api_key"}});
    let gemini = json!({"error": {"code": 400, "message": "API key not valid. Please pass a valid API key.",
        "status": "INVALID_ARGUMENT", "details": [{"@type": "type.googleapis.com/google.rpc.ErrorInfo",
            "reason": "API_KEY_INVALID", "domain": "googleapis.com",
            "metadata": {"service": "generativelanguage.googleapis.com"}}]}});
    let anthropic = json!({"type": "error", "error": {"type": "authentication_error",
        "message": "invalid x-api-key"}, "request_id": "req_testkit"});
    assert_eq!(ask(Protocol::Anthropic, "bad"), (401, anthropic));
    assert_eq!(ask(Protocol::Responses, "bad"), (401, openai.clone()));
    assert_eq!(ask(Protocol::Chat, "bad"), (401, openai));
    assert_eq!(ask(Protocol::Gemini, "bad"), (400, gemini));
    for protocol in Protocol::ALL {
        assert_eq!(ask(protocol, "good"), (200, Value::Null));
    }
}

#[test]
fn an_unknown_model_is_refused_in_the_protocols_own_form() {
    let server = ModelServer::builder(script![text("ok").forever()]).known_models(["good"]).start();
    let ask = |protocol: Protocol| {
        let answer = prompt(&server, protocol, "hi");
        (answer.status, answer.json())
    };
    assert_eq!(
        ask(Protocol::Anthropic),
        (
            404,
            json!({"type": "error", "error": {"type": "not_found_error", "message": "model: m"},
            "request_id": "req_testkit"})
        )
    );
    assert_eq!(
        ask(Protocol::Responses),
        (
            400,
            json!({"error": {"message": "The requested model 'm' does not exist.",
            "type": "invalid_request_error", "param": "model", "code": "model_not_found"}})
        )
    );
    assert_eq!(
        ask(Protocol::Chat),
        (
            404,
            json!({"error": {"message": "The model `m` does not exist or you do not have access to it.",
            "type": "invalid_request_error", "param": "model", "code": "model_not_found"}})
        )
    );
    assert_eq!(
        ask(Protocol::Gemini),
        (
            404,
            json!({"error": {"code": 404, "status": "NOT_FOUND", "message": "models/m is not found for API \
            version v1beta, or is not supported for generateContent. Call ListModels to see the list of available \
            models and their supported methods."}})
        )
    );
    let models = |path: &str, header: &str| get(&server, path, header).json();
    assert_eq!(models("/api/tags", "")["models"][0]["name"], "good");
    assert_eq!(models("/v1/models", "")["data"][0]["id"], "good");
    assert_eq!(models("/v1/models", "anthropic-version: 2023-06-01\r\n")["data"][0]["type"], "model");
    assert_eq!(models("/v1beta/models", "")["models"][0]["name"], "models/good");
    assert_eq!(get(&server, "/", "").body, "Ollama is running");
}

#[test]
fn every_request_is_recorded_whole() {
    let server = ModelServer::start(script![text("one"), text("two")]);
    get(&server, "/api/tags", "x-mark: yes\r\n");
    let body = request(Protocol::Anthropic, "hi");
    post(&server, "/v1/messages?beta=true", &body);
    prompt(&server, Protocol::Chat, "hello");
    assert_eq!(server.wait_for_requests(2).len(), 2);
    let requests = server.requests();
    let shown: Vec<_> =
        requests.iter().map(|r| (r.method.as_str(), r.path.as_str(), r.query.as_str())).collect();
    assert_eq!(
        shown,
        [
            ("GET", "/api/tags", ""),
            ("POST", "/v1/messages", "beta=true"),
            ("POST", "/v1/chat/completions", "")
        ]
    );
    assert_eq!(requests[0].header("x-mark"), Some("yes"));
    assert_eq!((&requests[0].outcome, requests[0].protocol), (&RequestOutcome::Other, None));
    assert_eq!((&requests[1].body, &requests[1].raw[..]), (&body, body.to_string().as_bytes()));
    assert_eq!(
        (&requests[1].outcome, requests[1].protocol),
        (&RequestOutcome::Answered, Some(Protocol::Anthropic))
    );
    assert!(requests[0].at <= requests[1].at && requests[1].at <= requests[2].at);
}

#[test]
fn a_request_without_a_step_is_a_500_and_not_drained() {
    for protocol in Protocol::ALL {
        let server = ModelServer::start(script![]);
        let answer = prompt(&server, protocol, "hi there");
        assert_eq!((answer.status, answer.header("x-should-retry")), (500, Some("false")));
        let reason = "script has no step left for \"hi there\" (turn 0)";
        let message = &answer.json()["error"]["message"];
        assert_eq!(message, &format!("testkit: {reason}"));
        assert_eq!(server.requests()[0].outcome, RequestOutcome::Unmatched(reason.to_owned()));
        let panic = catch_unwind(AssertUnwindSafe(|| server.assert_drained())).unwrap_err();
        let panic = panic.downcast_ref::<String>().unwrap();
        assert!(panic.contains(reason), "{panic}");
    }
}

#[test]
fn a_step_that_nobody_reached_is_not_drained() {
    let server = ModelServer::start(script![text("same"), text("same"), text("never").on("x").forever()]);
    prompt(&server, Protocol::Anthropic, "hi");
    let panic = catch_unwind(AssertUnwindSafe(|| server.assert_drained())).unwrap_err();
    assert!(panic.downcast_ref::<String>().unwrap().contains("step 2: "));
    prompt(&server, Protocol::Anthropic, "hi");
    server.assert_drained();
}

#[test]
fn held_requests_are_answered_when_released() {
    let server = ModelServer::start(script![text("ok")]);
    server.hold();
    std::thread::scope(|scope| {
        let asked: Vec<_> = ["a", "b", "c"]
            .map(|name| scope.spawn(|| prompt(&server, Protocol::Chat, name)))
            .into_iter()
            .collect();
        server.wait_for_requests(3);
        assert!(asked.iter().all(|thread| !thread.is_finished()));
        server.release();
        for thread in asked {
            assert_eq!(thread.join().unwrap().status, 200);
        }
    });
}

#[test]
fn the_variables_and_arguments_point_at_the_server() {
    let server = ModelServer::builder(script![]).require_key("k").known_models(["m1", "m2"]).start();
    let (url, v1) = (server.url(), format!("{}/v1", server.url()));
    let key = |name| (name, "k".to_owned());
    assert_eq!(
        server.envs(Protocol::Anthropic),
        [("ANTHROPIC_BASE_URL", url.clone()), key("ANTHROPIC_API_KEY")]
    );
    assert_eq!(server.envs(Protocol::Responses), [("OPENAI_BASE_URL", v1.clone()), key("OPENAI_API_KEY")]);
    assert_eq!(server.envs(Protocol::Chat), [("OPENAI_BASE_URL", v1), key("OPENAI_API_KEY")]);
    assert_eq!(
        server.envs(Protocol::Gemini),
        [("GOOGLE_GEMINI_BASE_URL", url.clone()), key("GEMINI_API_KEY")]
    );
    assert_eq!(server.envs(Protocol::Ollama), [("OLLAMA_HOST", url)]);
    assert_eq!(server.args(Protocol::Chat), ["--provider", "openai-chat", "--model", "m1"]);
}
