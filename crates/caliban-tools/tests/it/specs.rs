//! What the model is told, and what the permission rules are told.

use caliban_core::access::Access;
use serde_json::{Value, json};

use crate::bench::Bench;

/// What all specs together may cost in every request.
const SPECS_BYTES: usize = 5 << 10;

#[test]
fn all_specs_together_are_small() {
    let bench = Bench::new();
    let specs: Vec<Value> = bench
        .tools()
        .iter()
        .map(|tool| {
            let spec = tool.spec();
            json!({"name": spec.name, "description": spec.description, "input_schema": spec.input_schema})
        })
        .collect();
    let bytes = serde_json::to_vec(&specs).unwrap().len();
    assert!(bytes <= SPECS_BYTES, "{bytes} bytes of specs, at most {SPECS_BYTES}");
}

#[test]
fn every_required_field_is_described_and_missed() {
    let bench = Bench::new();
    for tool in bench.tools() {
        let schema = &tool.spec().input_schema;
        for field in schema["required"].as_array().unwrap() {
            let field = field.as_str().unwrap();
            assert!(schema["properties"][field].is_object(), "{}: {field}", tool.spec().name);
        }
        let error = tool.access(&json!({})).unwrap_err();
        assert!(error.contains("missing field"), "{error}");
        let error = tool.access(&json!("{\"broken")).unwrap_err();
        assert!(error.contains("not valid JSON"), "{error}");
    }
}

#[test]
fn file_tools_say_which_path_they_touch() {
    let bench = Bench::new();
    let root = bench.root.clone();
    let read = |path| Ok(vec![Access::Read(path)]);
    let write = |path| Ok(vec![Access::Write(path)]);
    assert_eq!(bench.access("Read", json!({"file_path": "a/../b"})), read(root.join("a/../b")));
    assert_eq!(bench.access("Read", json!({"file_path": "/etc/hosts"})), read("/etc/hosts".into()));
    assert_eq!(bench.access("Write", json!({"file_path": "a", "content": ""})), write(root.join("a")));
    assert_eq!(
        bench.access("Edit", json!({"file_path": "a", "old_string": "x", "new_string": "y"})),
        write(root.join("a"))
    );
    assert_eq!(bench.access("Glob", json!({"pattern": "*.rs"})), read(root.clone()));
    assert_eq!(bench.access("Glob", json!({"pattern": "/etc/ssh/**/*.pub"})), read("/etc/ssh".into()));
    assert_eq!(bench.access("Glob", json!({"pattern": "../x/*", "path": "a"})), read(root.join("a/../x")));
    assert_eq!(bench.access("Grep", json!({"pattern": "x", "path": "src"})), read(root.join("src")));
    assert_eq!(bench.access("TodoWrite", json!({"todos": []})), Ok(vec![Access::Nothing]));
    assert_eq!(
        bench.access("Read", json!({"file_path": "~/.ssh/id"})),
        Err("~/.ssh/id: `~` is not expanded here; give the absolute path".into())
    );
}
