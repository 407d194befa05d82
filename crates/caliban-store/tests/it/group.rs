//! Many messages in one transaction.

use std::collections::BTreeSet;

use caliban_store::broker::{
    AgentId, Broker, BrokerError, CreateSession, Freshness, MailboxScope, NewMessage, PollQuery, SentMessage,
    SessionId, Speaker, TaskId,
};
use caliban_store::{Stamp, StoreUrl};

fn now() -> Stamp {
    Stamp::from_micros(1_000_000)
}

type Director = (SessionId, AgentId);

async fn director(broker: &mut Broker) -> Director {
    let made =
        broker.create_session(&CreateSession { label: None, placement: None }, now()).await.expect("session");
    (made.session.id, made.director.id)
}

fn message((session, who): Director, text: &str, id: Option<TaskId>) -> NewMessage {
    NewMessage { session, from: who.into(), to: who.into(), text: text.to_owned(), id }
}

/// What an answer says: new or not, the text, the number within the session.
fn told(answer: &Result<SentMessage, BrokerError>) -> Result<(Freshness, &str, i64), String> {
    match answer {
        Ok(sent) => Ok((sent.freshness, sent.task.text.as_str(), sent.task.number.expect("a number"))),
        Err(error) => Err(error.to_string()),
    }
}

#[tokio::test]
async fn each_message_of_a_group_has_its_own_answer_and_the_numbers_of_a_session_have_no_gap() {
    let dir = tempfile::tempdir().expect("temp dir");
    let mut broker =
        Broker::open(&StoreUrl::sqlite(dir.path().join("s.db")), Speaker::Anybody).await.expect("open");
    let (one, other) = (director(&mut broker).await, director(&mut broker).await);
    let (id, old) = (TaskId::random(), TaskId::random());
    let before = broker.send(&message(one, "before", Some(old)), now()).await;
    assert_eq!(told(&before), Ok((Freshness::New, "before", 1)));
    let stranger = NewMessage { to: other.1.into(), ..message(one, "to a stranger", None) };
    let refused = BrokerError::DestinationNotInSession(other.1.to_string()).to_string();
    let all = [
        message(one, "a", Some(id)),
        message(other, "b", None),
        stranger,
        message(one, "a", Some(id)),
        message(one, "before", Some(old)),
        message(one, "not the same", Some(old)),
        message(one, "c", None),
        message(other, "d", None),
    ];
    let answers = broker.send_all(&all, now()).await.expect("stored");
    let answers: Vec<_> = answers.iter().map(told).collect();
    assert_eq!(
        answers,
        [
            Ok((Freshness::New, "a", 2)),
            Ok((Freshness::New, "b", 1)),
            Err(refused),
            Ok((Freshness::Repeated, "a", 2)),
            Ok((Freshness::Repeated, "before", 1)),
            Err(BrokerError::IdTaken(old).to_string()),
            Ok((Freshness::New, "c", 3)),
            Ok((Freshness::New, "d", 2)),
        ]
    );
}

#[tokio::test]
async fn a_group_of_many_statements_is_stored_in_its_order() {
    let dir = tempfile::tempdir().expect("temp dir");
    let mut broker =
        Broker::open(&StoreUrl::sqlite(dir.path().join("s.db")), Speaker::Anybody).await.expect("open");
    let one = director(&mut broker).await;
    let texts: Vec<String> = (1..=600).map(|n| n.to_string()).collect();
    let all: Vec<_> = texts.iter().map(|text| message(one, text, None)).collect();
    let answers = broker.send_all(&all, now()).await.expect("stored");
    let sent: Vec<_> = answers.into_iter().map(|answer| answer.expect("sent").task).collect();
    assert!(sent.iter().zip(1..).all(|(task, number)| task.number == Some(number)));
    let query =
        PollQuery { agent: one.1, scope: MailboxScope::All, since: None, after: Some(0), page_size: 1000 };
    let polled = broker.poll(&query).await.expect("poll").tasks;
    assert_eq!(polled, sent, "rows, numbers and places are those of the answers");
}

#[tokio::test]
async fn the_ids_of_a_group_differ_and_lie_beside_each_other() {
    let dir = tempfile::tempdir().expect("temp dir");
    let mut broker =
        Broker::open(&StoreUrl::sqlite(dir.path().join("s.db")), Speaker::Anybody).await.expect("open");
    let one = director(&mut broker).await;
    let all: Vec<_> = (0..200).map(|_| message(one, "m", None)).collect();
    let answers = broker.send_all(&all, now()).await.expect("stored");
    let ids: BTreeSet<String> =
        answers.into_iter().map(|answer| answer.expect("sent").task.id.to_string()).collect();
    assert_eq!(ids.len(), 200);
    assert_eq!(ids.iter().map(|id| &id[..3]).collect::<BTreeSet<_>>().len(), 1, "one place of the index");
    assert!(
        ids.iter().map(|id| &id[3..8]).collect::<BTreeSet<_>>().len() > 190,
        "what people see tells them apart"
    );
}
