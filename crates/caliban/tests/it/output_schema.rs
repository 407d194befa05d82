//! An answer of a form, and another model for when the first does not answer.

use serde_json::{Value, json};
use testkit::{ModelServer, Protocol, StepExt, script, script::StepCondition, status, text};

use crate::place::Place;

const SCHEMA: &str = r#"{"type": "object", "required": ["title", "lines"], "additionalProperties": false,
    "properties": {"title": {"type": "string"}, "lines": {"type": "integer", "minimum": 1}}}"#;

fn with_schema(place: &Place) -> Vec<&'static str> {
    place.env.write(place.repo.join("form.json"), SCHEMA);
    vec!["--output-schema", "form.json"]
}

#[test]
fn an_answer_that_does_not_fit_is_asked_for_again_with_what_is_wrong() {
    let place = Place::new(script![
        text("I think the title is A."),
        text("{\"title\": \"A\", \"lines\": 0}").on("it is not JSON"),
        text("Here it is:\n```json\n{\"title\": \"A\", \"lines\": 3}\n```")
            .on("at /lines: 0 is less than the minimum"),
    ]);
    let mut flags = with_schema(&place);
    let output = place.ask("describe it", flags.clone()).ok();
    assert_eq!(output.stdout, "{\"title\":\"A\",\"lines\":3}\n");
    let system = place.server.model_requests()[0].body["system"].to_string();
    assert!(
        system.contains("this JSON Schema allows") && system.contains("additionalProperties"),
        "{system}"
    );
    place.server.assert_drained();

    let place = Place::new(script![text("{\"title\": \"A\", \"lines\": 3}")]);
    with_schema(&place);
    flags.extend(["--output-format", "json"]);
    let result: Value = place.ask("describe it", flags).ok().json();
    assert_eq!(result["structured_output"], json!({"title": "A", "lines": 3}));
}

#[test]
fn an_answer_that_never_fits_is_a_failure() {
    let place = Place::new(script![text("words").forever()]);
    let output = place.ask("describe it", with_schema(&place)).expect_code(1);
    assert!(
        output.stderr.contains("the answer does not fit the schema, 4 times in a row: it is not JSON"),
        "{}",
        output.stderr
    );
    assert_eq!(place.server.model_requests().len(), 4);
}

#[test]
fn a_schema_that_cannot_be_used_is_said_before_anything_is_sent() {
    let place = Place::new(script![text("never")]);
    place.env.write(place.repo.join("bad.json"), "{\"type\": 7}");
    for name in ["bad.json", "missing.json"] {
        let output = place.ask("describe it", ["--output-schema", name]).expect_code(2);
        assert!(output.stderr.contains(name) && output.stderr.contains("hint: "), "{}", output.stderr);
    }
    assert!(place.server.model_requests().is_empty());
}

#[test]
fn another_model_goes_on_when_the_first_is_overloaded_or_not_there() {
    let protocol = Protocol::Anthropic;
    let is_first = || StepCondition { model: Some("test-model".to_owned()), ..StepCondition::default() };
    let overloaded = protocol.error_body(500, "overloaded");
    let server = ModelServer::start(script![
        status(500).body(overloaded).when(is_first()).forever(),
        text("from the second"),
    ]);
    let place = Place::with(server, protocol);
    let flags = ["--fallback-model", "second-model", "--output-format", "json"];
    let result: Value = place.ask("hello", flags).ok().json();
    assert_eq!(result["result"], "from the second");
    let notes = result["notes"].to_string();
    assert!(notes.contains("going on with second-model"), "{notes}");
    let models: Vec<String> = place
        .server
        .model_requests()
        .iter()
        .map(|request| request.body["model"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(models.last().map(String::as_str), Some("second-model"), "{models:?}");
    let output = place.ask("hello", []).expect_code(1);
    assert!(output.stderr.contains("out of order"), "{}", output.stderr);
}
