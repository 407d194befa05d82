//! `db init`: makes the database or brings it to the current schema.

use caliban_store::broker::SCHEMA;
use caliban_store::open::Prepared;
use serde_json::json;

use crate::answer::Answer;
use crate::context::Context;
use crate::failure::{Failure, shown};

pub(crate) async fn run(context: &mut Context) -> Result<Answer, Failure> {
    let broker = context.broker().await?;
    let file = broker.url().file().display().to_string();
    let head = SCHEMA.version();
    let (text, done) = match broker.prepared() {
        Prepared::Created => (format!("Database created at schema {head}: {}", shown(&file)), "created"),
        Prepared::Upgraded { from } => {
            (format!("Database upgraded from schema {from} to {head}: {}", shown(&file)), "upgraded")
        }
        Prepared::Current => {
            (format!("Database already at head (schema {head}): {}", shown(&file)), "current")
        }
    };
    Ok(Answer::new(text, json!({"database": file, "schema": head, "result": done})))
}
