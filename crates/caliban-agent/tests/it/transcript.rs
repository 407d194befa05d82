//! The transcript on disk (r16, a14): cut at every byte, garbled at every byte, never a panic and never a lie.

use std::{fs, path::Path};

use caliban_agent::{
    conversation::Conversation,
    event::{Author, Event, Header, Outcome, Record, TRANSCRIPT_VERSION},
    feed::Feed,
    transcript::{self, Durability, FILE_NAME, Transcript, TranscriptError},
};
use caliban_core::{
    message::{Message, StopReason},
    redact::Redactor,
    usage::Usage,
};
use serde_json::Value;

fn events() -> Vec<Event> {
    let header = Header {
        version: TRANSCRIPT_VERSION,
        session: "s".into(),
        cwd: "/w".into(),
        provider: "p".into(),
        model: "m".into(),
        label: None,
        parent: None,
    };
    let message = Message::user("hä?\n\"quoted\"");
    let reply = Message { role: caliban_core::message::Role::Assistant, ..Message::user("so") };
    vec![
        Event::Started(header),
        Event::Prompt { message, author: Author::User, context: 0, queued: None },
        Event::Reply {
            message: reply,
            usage: Usage::default(),
            stop: StopReason::EndTurn,
            model: "m".into(),
            ms: 1,
        },
        Event::TurnEnded { outcome: Outcome::Done, usage: Usage::default(), micro_usd: None, turns: 1 },
    ]
}

/// A directory with a transcript of these events.
async fn written(events: &[Event]) -> tempfile::TempDir {
    let temp = tempfile::tempdir().unwrap();
    let transcript = Transcript::create(temp.path(), Redactor::default(), Feed::default()).unwrap();
    for event in events {
        transcript.append(event.clone(), Durability::Written).await.unwrap();
    }
    temp
}

/// Takes a transcript up again. The lock of the one before goes with its thread, a moment after its last handle.
fn resume(directory: &Path) -> Result<(Transcript, Vec<Record>), TranscriptError> {
    loop {
        match Transcript::resume(directory, Redactor::default(), Feed::default()) {
            Err(TranscriptError::Busy(_)) => std::thread::yield_now(),
            other => return other,
        }
    }
}

fn plain(records: &[Record]) -> Vec<Event> {
    records.iter().map(|record| record.event.clone()).collect()
}

#[tokio::test]
async fn r16_cut_at_every_byte_the_whole_records_stay_and_the_next_one_fits() {
    let all = events();
    let temp = written(&all).await;
    let path = temp.path().join(FILE_NAME);
    let bytes = fs::read(&path).unwrap();
    for cut in 0..=bytes.len() {
        let whole = bytes[..cut].iter().filter(|byte| **byte == b'\n').count();
        // A new file each time: the writer before may still hold the old one's lock.
        fs::remove_file(&path).unwrap();
        fs::write(&path, &bytes[..cut]).unwrap();
        assert_eq!(plain(&transcript::read(temp.path()).unwrap()), all[..whole], "read, cut at {cut}");
        let (transcript, records) = resume(temp.path()).unwrap();
        assert_eq!(plain(&records), all[..whole], "resumed, cut at {cut}");
        let note = Event::Note { text: "more".into() };
        transcript.append(note.clone(), Durability::Written).await.unwrap();
        let after = transcript::read(temp.path()).unwrap();
        let expected: Vec<Event> = all[..whole].iter().cloned().chain([note]).collect();
        assert_eq!(plain(&after), expected, "cut at {cut}");
        assert!(fs::read(&path).unwrap().ends_with(b"\n"), "nothing of the torn one is left, cut at {cut}");
        assert_eq!(
            after.iter().map(|record| record.seq).collect::<Vec<_>>(),
            (0..=whole as u64).collect::<Vec<_>>()
        );
    }
}

#[tokio::test]
async fn a14_garbled_at_every_byte_nothing_panics_and_records_before_it_are_never_changed() {
    let all = events();
    let temp = written(&all).await;
    let path = temp.path().join(FILE_NAME);
    let bytes = fs::read(&path).unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let target = elsewhere.path().join(FILE_NAME);
    for at in 0..bytes.len() {
        for byte in [0, b'\n', b'"', b'{', b'9', 0xff] {
            let mut garbled = bytes.clone();
            garbled[at] = byte;
            fs::write(&target, &garbled).unwrap();
            let before = bytes[..at].iter().filter(|byte| **byte == b'\n').count();
            match transcript::read(elsewhere.path()) {
                Ok(records) => {
                    let whole = before.min(records.len());
                    assert_eq!(plain(&records)[..whole], all[..before.min(whole)], "byte {byte} at {at}");
                    Conversation::replay(records.iter().map(|record| &record.event));
                }
                Err(TranscriptError::Corrupt { path, line, .. }) => {
                    assert_eq!(path, target);
                    assert!(line as usize > before, "byte {byte} at {at}: line {line}");
                }
                Err(TranscriptError::Newer { .. }) => assert_eq!(before, 0, "byte {byte} at {at}"),
                Err(other) => panic!("byte {byte} at {at}: {other}"),
            }
        }
    }
}

#[test]
fn a14_records_of_any_order_make_a_conversation_without_a_panic() {
    // Fields that are right in themselves and make no sense together.
    let parts: Vec<Value> = serde_json::from_str(
        r#"[
        {"event": "call_ended", "id": "x", "content": [], "is_error": false, "summary": "", "ms": 0},
        {"event": "call_started", "id": "x", "name": "TodoWrite", "input": {"todos": 3},
         "decision": {"verdict": "allowed", "why": ""}},
        {"event": "reply", "message": {"role": "assistant", "blocks": [
            {"type": "tool_use", "id": "x", "name": "n", "input": null},
            {"type": "tool_use", "id": "x", "name": "n", "input": "{"}]},
         "usage": {"input": 18446744073709551615, "output": 18446744073709551615, "cache_read": 0, "cache_write": 0},
         "stop": "end_turn", "model": "m", "ms": 18446744073709551615},
        {"event": "results_cleared", "ids": ["x", "y"]},
        {"event": "summarised", "summary": "", "keep_tail": 18446744073709551615,
         "usage": {"input": 0, "output": 0, "cache_read": 0, "cache_write": 0}},
        {"event": "prompt", "message": {"role": "assistant", "blocks": []}, "author": "parent", "context": 99, "queued": 7},
        {"event": "queued", "number": 18446744073709551615, "text": ""},
        {"event": "turn_ended", "outcome": {"kind": "cancelled"}, "turns": 0,
         "usage": {"input": 0, "output": 0, "cache_read": 0, "cache_write": 0}}
    ]"#,
    )
    .unwrap();
    let events: Vec<Event> = parts.into_iter().map(|part| serde_json::from_value(part).unwrap()).collect();
    let mut state = 88_172_645_463_325_252_u64;
    for _ in 0..5_000 {
        let mut conversation = Conversation::default();
        for _ in 0..12 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let event = &events[usize::try_from(state % events.len() as u64).unwrap()];
            conversation.apply(event);
            event.typed();
        }
        conversation.estimated_tokens();
    }
}

#[tokio::test]
async fn one_writer_at_a_time_and_a_reader_at_any() {
    let temp = written(&[]).await;
    let (transcript, _) = resume(temp.path()).unwrap();
    for event in events() {
        transcript.append(event, Durability::Written).await.unwrap();
    }
    let second = Transcript::resume(temp.path(), Redactor::default(), Feed::default()).unwrap_err();
    assert!(matches!(second, TranscriptError::Busy(_)), "{second}");
    assert_eq!(
        second.to_string(),
        format!("{} is in use by another caliban process", temp.path().join(FILE_NAME).display())
    );
    assert_eq!(plain(&transcript::read(temp.path()).unwrap()), events());
    let again = Transcript::create(temp.path(), Redactor::default(), Feed::default()).unwrap_err();
    assert!(matches!(again, TranscriptError::Io { .. }), "a transcript is never begun over another: {again}");
}

#[tokio::test]
async fn a_record_that_could_not_be_read_again_is_refused_and_the_file_stays_whole() {
    let temp = written(&events()).await;
    let (transcript, _) = resume(temp.path()).unwrap();
    let text = "x".repeat(65 * 1024 * 1024);
    let error = transcript.append(Event::Note { text }, Durability::Written).await.unwrap_err();
    assert!(matches!(error, TranscriptError::TooLarge(_)), "{error}");
    transcript.append(Event::Note { text: "fits".into() }, Durability::Written).await.unwrap();
    assert_eq!(transcript::read(temp.path()).unwrap().len(), 5);
}

#[tokio::test]
async fn a14_a_transcript_with_a_record_missing_is_refused() {
    let temp = written(&events()).await;
    let path = temp.path().join(FILE_NAME);
    let text = fs::read_to_string(&path).unwrap();
    let without: String =
        text.lines().enumerate().filter(|(at, _)| *at != 1).map(|(_, line)| format!("{line}\n")).collect();
    fs::write(&path, without).unwrap();
    let error = transcript::read(temp.path()).unwrap_err();
    assert!(matches!(error, TranscriptError::Corrupt { line: 2, .. }), "{error}");
}

#[tokio::test]
async fn a12_a_record_with_a_secret_reaches_the_disk_without_it() {
    const CANARY: &str = "canary-4f1d9c7e2b";
    let temp = tempfile::tempdir().unwrap();
    let redactor = Redactor::new([("KEY", CANARY)]);
    let transcript = Transcript::create(temp.path(), redactor, Feed::default()).unwrap();
    let text = format!("it is {CANARY}");
    transcript.append(Event::Note { text }, Durability::Written).await.unwrap();
    let written = fs::read_to_string(temp.path().join(FILE_NAME)).unwrap();
    assert!(written.contains("it is [redacted:KEY]") && !written.contains(CANARY), "{written}");
}
