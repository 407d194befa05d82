//! What was spent today, as the rows tell it.

use caliban_control::protocol::AgentRow;
use jiff::{Timestamp, tz::TimeZone};
use serde_json::{Value, json};

/// The cost of the agents that did something today. An agent that began earlier counts whole: rows have no history.
pub(crate) fn spent<'a>(rows: impl Iterator<Item = &'a AgentRow>) -> Value {
    let midnight = Timestamp::now().to_zoned(TimeZone::system()).start_of_day().ok();
    let midnight = midnight.and_then(|day| u64::try_from(day.timestamp().as_millisecond()).ok()).unwrap_or(0);
    let (mut total, mut is_known) = (0_u64, true);
    for row in rows.filter(|row| row.updated_at >= midnight && row.turns > 0) {
        match row.micro_usd {
            Some(micro) => total = total.saturating_add(micro.0),
            None => is_known = false,
        }
    }
    json!({"micro_usd": total, "is_whole": is_known, "budget_micro_usd": null})
}
