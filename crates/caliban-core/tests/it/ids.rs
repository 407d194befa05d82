//! Ids, and finding one by a person's words.

use caliban_core::fleet::AgentId;
use caliban_core::ids::{Candidate, ResolveError, SessionId, resolve};

fn candidate(id: &str, label: Option<&str>) -> Candidate<AgentId> {
    Candidate { id: id.parse().unwrap(), label: label.map(str::to_owned) }
}

fn fleet() -> Vec<Candidate<AgentId>> {
    vec![
        candidate("a3f80001", Some("auth")),
        candidate("a3f90002", Some("twin")),
        candidate("b0000003", Some("twin")),
        candidate("cafe0004", Some("a3f80001")),
        candidate("dddd0005", Some("b0")),
    ]
}

#[test]
fn agent_ids_are_eight_lowercase_hex() {
    let id = AgentId::from_random([0xa3, 0xf8, 0x00, 0x0b]);
    assert_eq!(id.to_string(), "a3f8000b");
    assert_eq!("a3f8000b".parse(), Ok(id));
    assert_eq!(serde_json::to_string(&id).unwrap(), "\"a3f8000b\"");
    assert_eq!(serde_json::from_str::<AgentId>("\"a3f8000b\"").unwrap(), id);
    assert_eq!(format!("{id:>10}|{id:?}"), "  a3f8000b|AgentId(a3f8000b)");
    for wrong in ["", "a3f8000", "a3f8000bb", "A3F8000B", "a3f8000g", "a3f8 00b", "é3f8000"] {
        assert!(wrong.parse::<AgentId>().is_err(), "{wrong}");
        assert!(serde_json::from_value::<AgentId>(wrong.into()).is_err(), "{wrong}");
    }
}

#[test]
fn session_ids_look_like_uuids() {
    let bytes =
        [0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef, 0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef];
    let id = SessionId::from_bytes(bytes);
    assert_eq!(id.to_string(), "01234567-89ab-cdef-0123-456789abcdef");
    assert_eq!("01234567-89ab-cdef-0123-456789abcdef".parse(), Ok(id));
    assert_eq!("0123456789abcdef0123456789abcdef".parse(), Ok(id));
    assert_eq!(format!("{id:?}"), "SessionId(01234567-89ab-cdef-0123-456789abcdef)");
    assert_eq!(serde_json::to_string(&id).unwrap(), "\"01234567-89ab-cdef-0123-456789abcdef\"");
    assert_eq!(serde_json::from_str::<SessionId>("\"0123456789abcdef0123456789abcdef\"").unwrap(), id);
    for wrong in
        ["", "0123456789abcdef", "01234567-89ab-cdef-0123456789abcdef", "0-123456789abcdef0123456789abcdef"]
    {
        assert!(wrong.parse::<SessionId>().is_err(), "{wrong}");
    }
}

#[test]
fn an_id_wins_over_a_label_and_a_label_over_a_prefix() {
    let id = |text: &str| Ok(text.parse::<AgentId>().unwrap());
    assert_eq!(resolve("a3f80001", fleet()), id("a3f80001"));
    assert_eq!(resolve("auth", fleet()), id("a3f80001"));
    assert_eq!(resolve("b0", fleet()), id("dddd0005"));
    assert_eq!(resolve("b00", fleet()), id("b0000003"));
    assert_eq!(resolve("CAFE", fleet()), id("cafe0004"));
}

#[test]
fn an_ambiguous_query_lists_the_candidates() {
    let wanted = vec![candidate("a3f80001", Some("auth")), candidate("a3f90002", Some("twin"))];
    let error = resolve("a3f", fleet()).unwrap_err();
    assert_eq!(error, ResolveError::Ambiguous { query: "a3f".into(), candidates: wanted });
    assert_eq!(error.to_string(), "'a3f' fits several agents: a3f80001 (auth), a3f90002 (twin)");
    assert_eq!(
        resolve("twin", fleet()).unwrap_err().to_string(),
        "'twin' fits several agents: a3f90002 (twin), b0000003 (twin)"
    );
}

#[test]
fn an_unknown_query_says_so_without_harm() {
    assert_eq!(resolve("", fleet()).unwrap_err(), ResolveError::Unknown { query: String::new() });
    assert_eq!(
        resolve("\x1b[2Jx", fleet()).unwrap_err().to_string(),
        "no agent has the id, id prefix or label '␛[2Jx'"
    );
}
