//! The stored request.

use caliban_core::mode::Mode;
use caliban_core::names::Slug;
use caliban_core::spec::{Handover, Isolation, SpawnSpec, SpecError, WorktreeSpec};
use serde_json::json;

#[test]
fn a_spec_survives_storing() {
    let mut spec = SpawnSpec::new("fix it", "/repo");
    spec.label = Some(Slug::parse("fixer").unwrap());
    spec.isolation =
        Isolation::Worktree(WorktreeSpec { sparse_paths: vec!["src".into()], ..Default::default() });
    spec.setup.budget.tokens = Some(50_000);
    spec.setup.permission_mode = Some(Mode::AcceptEdits);
    spec.after = vec!["a3f80001".parse().unwrap()];
    let text = serde_json::to_string(&spec).unwrap();
    assert_eq!(SpawnSpec::from_json(&text), Ok(spec));
    assert_eq!(
        serde_json::from_str::<serde_json::Value>(&text).unwrap(),
        json!({
            "version": 1, "prompt": "fix it", "label": "fixer",
            "isolation": {"kind": "worktree", "base_ref": "head", "sparse_paths": ["src"]},
            "budget": {"tokens": 50_000},
            "permission_mode": "accept-edits", "after_turn": "end", "after": ["a3f80001"],
            "depth": 0, "cwd": "/repo"
        })
    );
}

#[test]
fn r22_old_and_newer_specs() {
    let old = SpawnSpec::from_json(r#"{"version":1,"prompt":"x","cwd":"/r"}"#).unwrap();
    assert_eq!(old, SpawnSpec::new("x", "/r"));
    // So is one that there was: a budget of the tree, which was never more than a wish.
    let before = r#"{"version":1,"prompt":"x","cwd":"/r","tree_budget":{"tokens":7}}"#;
    assert_eq!(SpawnSpec::from_json(before).map(|spec| spec.prompt), Ok("x".to_owned()));
    // A field that came later, within the same format, is kept.
    let kept = SpawnSpec::from_json(r#"{"version":1,"prompt":"x","cwd":"/r","colour":"red"}"#).unwrap();
    assert_eq!(serde_json::to_value(&kept).unwrap()["colour"], "red");
    assert_eq!(SpawnSpec::from_json(r#"{"version":2,"prompt":["new","shape"]}"#), Err(SpecError::Newer(2)));
    assert!(matches!(SpawnSpec::from_json(r#"{"prompt":"x"}"#), Err(SpecError::Unreadable(_))));
    assert!(matches!(SpawnSpec::from_json(r#"{"version":1,"label":"../x"}"#), Err(SpecError::Unreadable(_))));
    assert!(matches!(SpawnSpec::from_json("{"), Err(SpecError::Unreadable(_))));
}

#[test]
fn what_cannot_be_carried_out_is_said() {
    let good = SpawnSpec::new("x", "/r");
    assert_eq!(good.check(), Ok(()));
    assert_eq!(SpawnSpec { prompt: " \n".into(), ..good.clone() }.check(), Err(SpecError::EmptyPrompt));
    assert_eq!(SpawnSpec { cwd: "r".into(), ..good.clone() }.check(), Err(SpecError::RelativeCwd));
    assert_eq!(SpawnSpec { depth: 9, ..good.clone() }.check(), Err(SpecError::TooDeep(9)));
    let handed = |session: &str| SpawnSpec {
        conversation: Some(Handover { session: session.into(), records: 0, go_on: None }),
        ..good.clone()
    };
    assert_eq!(handed("/s").check(), Ok(()));
    assert_eq!(handed("s").check(), Err(SpecError::RelativeCwd));
    let long = "x".repeat(1024 * 1024 + 1);
    assert_eq!(SpawnSpec { prompt: long, ..good.clone() }.check(), Err(SpecError::LongPrompt(1_048_577)));
    assert_eq!(SpawnSpec { depth: 8, prompt: "x".repeat(1024 * 1024), ..good.clone() }.check(), Ok(()));
    for (name, value) in [("A=B", "x"), ("A\0", "x"), ("", "x"), ("A", "x\0")] {
        let bad = SpawnSpec { env: [(name.to_owned(), value.to_owned())].into(), ..good.clone() };
        assert_eq!(bad.check(), Err(SpecError::BadVariable(name.to_owned())));
    }
    let fine = SpawnSpec { env: [("A".to_owned(), "=".to_owned())].into(), ..good };
    assert_eq!(fine.check(), Ok(()));
}
