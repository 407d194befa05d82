//! Pictures: scaled before they are sent, and no session is poisoned by one that the service refuses.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use testkit::{ModelServer, Protocol, StepExt, script, script::StepCondition, status, text, tool};

use crate::place::Place;

fn write_picture(place: &Place, name: &str, width: u32, height: u32) {
    image::DynamicImage::new_rgb8(width, height).save(place.repo.join(name)).unwrap();
}

/// Width and height of each picture of a request, by Anthropic's layout.
fn pictures(body: &Value) -> Vec<(u32, u32)> {
    let mut found = Vec::new();
    let mut look = vec![body];
    while let Some(value) = look.pop() {
        if value["type"] == "image" {
            let bytes = STANDARD.decode(value["source"]["data"].as_str().unwrap()).unwrap();
            let picture = image::load_from_memory(&bytes).unwrap();
            found.push((picture.width(), picture.height()));
        }
        look.extend(value.as_array().into_iter().flatten());
        look.extend(value.as_object().into_iter().flat_map(|fields| fields.values()));
    }
    found
}

#[test]
fn a_large_picture_is_scaled_before_it_is_sent() {
    let place = Place::new(script![tool("Read", json!({"file_path": "large.png"})), text("seen")]);
    write_picture(&place, "large.png", 6_000, 3_000);
    assert_eq!(place.ask("look", []).ok().stdout, "seen\n");
    let requests = place.server.model_requests();
    assert_eq!(pictures(&requests[1].body), [(1_568, 784)]);
}

#[test]
fn a_large_picture_that_a_prompt_names_is_scaled_too() {
    let place = Place::new(script![text("seen")]);
    write_picture(&place, "large.png", 6_000, 3_000);
    assert_eq!(place.ask("what is in @large.png?", []).ok().stdout, "seen\n");
    assert_eq!(pictures(&place.server.model_requests()[0].body), [(1_568, 784)]);
}

#[test]
fn a_picture_that_the_service_refuses_becomes_words_and_the_session_goes_on() {
    let protocol = Protocol::Anthropic;
    let refused =
        protocol.error_body(400, "messages.2.content.0.image.source.base64: image exceeds the maximum");
    let has_picture = || StepCondition {
        tool_result_contains: Some("a picture was here".to_owned()),
        ..StepCondition::default()
    };
    let server = ModelServer::start(script![
        tool("Read", json!({"file_path": "some.png"})).on("look"),
        text("I cannot see it").when(has_picture()),
        status(400).body(refused).forever(),
    ]);
    let place = Place::with(server, protocol);
    write_picture(&place, "some.png", 40, 30);
    assert_eq!(place.ask("look", []).ok().stdout, "I cannot see it\n");
    let sent: Vec<usize> =
        place.server.model_requests().iter().map(|request| pictures(&request.body).len()).collect();
    assert_eq!(sent, [0, 1, 0]);
}
