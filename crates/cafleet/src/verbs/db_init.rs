//! `db init`: makes the database or upgrades it to the present schema, or says that it exists.

use caliban_store::StoreUrl;
use caliban_store::broker::SCHEMA;
use caliban_store::open::OpenReport;
use serde_json::json;

use crate::answer::VerbAnswer;
use crate::context::VerbContext;
use crate::failure::{Failure, shown};

pub(crate) async fn run(context: &mut VerbContext) -> Result<VerbAnswer, Failure> {
    let StoreUrl::Sqlite(file) = context.settings.database()?;
    let (file, head) = (file.path().display().to_string(), SCHEMA.version());
    let (text, done) = match context.broker().await?.prepared() {
        OpenReport::Created => (format!("Database created at schema {head}: {}", shown(&file)), "created"),
        OpenReport::Upgraded(from) => {
            (format!("Database upgraded from schema {from} to {head}: {}", shown(&file)), "upgraded")
        }
        OpenReport::Current => {
            (format!("Database already at head (schema {head}): {}", shown(&file)), "current")
        }
    };
    Ok(VerbAnswer::new(text, json!({"database": file, "schema": head, "result": done})))
}
