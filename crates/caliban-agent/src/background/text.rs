//! What people and the model read about background agents. Pure, but for a long result that is kept in a file.

use caliban_core::background::{BackgroundRow, BackgroundStatus};

use crate::subagent::{MAX_ANSWER_CHARS, ReportOutputs};

/// How many lines of a result people see in the message about its end, and how many characters.
const SHOWN_LINES: usize = 5;
const SHOWN_CHARS: usize = 500;

/// The list of `/bg list`.
pub fn list(rows: &[BackgroundRow], now_ms: u64) -> String {
    if rows.is_empty() {
        return "There are no background agents.".to_owned();
    }
    let line = |row: &BackgroundRow| {
        let BackgroundRow { id, status, summary, .. } = row;
        let doing = row.activity.as_deref().map(|doing| format!(" ({doing})")).unwrap_or_default();
        format!("{id} {} {status}, {}: {summary}{doing}", status.icon(), cost(row, now_ms))
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// The message for people about the end of one: a title, then the first lines of the result.
pub(super) fn ended(row: &BackgroundRow, why: Option<&str>, result: &str) -> String {
    let now = row.ended_ms.unwrap_or_default();
    let why = why.map(|why| format!("; {why}")).unwrap_or_default();
    let mut text = format!("background agent {} {}: {}{why}", row.id, row.status, cost(row, now));
    let shown: Vec<&str> = result.trim().lines().take(SHOWN_LINES).collect();
    let shown: String = shown.join("\n").chars().take(SHOWN_CHARS).collect();
    if !shown.is_empty() {
        text.push('\n');
        text.push_str(&shown);
        if shown.len() < result.trim().len() {
            text.push('…');
        }
    }
    text
}

/// The message for the model about the end of one, with its result; a long one is cut, and whole in a file.
pub(super) fn for_model(
    row: &BackgroundRow,
    why: Option<&str>,
    result: &str,
    keep: &ReportOutputs<'_>,
) -> String {
    let how = match row.status {
        BackgroundStatus::Completed => "has completed".to_owned(),
        BackgroundStatus::Killed => "was stopped by the user".to_owned(),
        status => format!("has ended ({status}: {})", why.unwrap_or("no reason is known")),
    };
    let mut text = format!("[Background agent {} {how}. Its task: {}]", row.id, row.summary);
    if result.is_empty() {
        return text;
    }
    let shown: String = result.chars().take(MAX_ANSWER_CHARS).collect();
    text.push_str("\n\n");
    text.push_str(&shown);
    if shown.len() < result.len() {
        text.push_str(&match keep.write(result) {
            Ok(path) => format!("\n[cut; Read {} for the whole result]", path.display()),
            Err(error) => format!("\n[cut; the rest could not be kept: {error}]"),
        });
    }
    text
}

fn cost(row: &BackgroundRow, now_ms: u64) -> String {
    let cached = match row.cached {
        0 => String::new(),
        cached => format!(" · {} cached", grouped(cached)),
    };
    format!("{} tokens{cached}, {}", grouped(row.tokens), elapsed(row.elapsed_ms(now_ms)))
}

/// `12,345`.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.char_indices() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `1h 2m`, `1m 20s`, `7s`.
fn elapsed(ms: u64) -> String {
    let seconds = ms / 1000;
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, seconds) => format!("{seconds}s"),
        (0, minutes, seconds) => format!("{minutes}m {seconds}s"),
        (hours, minutes, _) => format!("{hours}h {minutes}m"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(status: BackgroundStatus) -> BackgroundRow {
        BackgroundRow {
            id: 2,
            status,
            summary: "run the tests".into(),
            model: "m".into(),
            started_ms: 1_000,
            ended_ms: (status != BackgroundStatus::Running).then_some(81_000),
            tokens: 1_234_567,
            cached: 0,
            activity: (status == BackgroundStatus::Running).then(|| "Bash make".into()),
        }
    }

    #[test]
    fn b04_b05_lists_and_messages_have_number_status_tokens_and_time() {
        assert_eq!(
            list(&[row(BackgroundStatus::Running), row(BackgroundStatus::BudgetExceeded)], 8_000),
            "2 ▶ running, 1,234,567 tokens, 7s: run the tests (Bash make)\n\
             2 $ budget exceeded, 1,234,567 tokens, 1m 20s: run the tests"
        );
        assert_eq!(
            ended(&row(BackgroundStatus::Completed), None, "1\n2\n3\n4\n5\n6\n"),
            "background agent 2 completed: 1,234,567 tokens, 1m 20s\n1\n2\n3\n4\n5…"
        );
        assert_eq!(
            ended(&row(BackgroundStatus::Failed), Some("no key"), ""),
            "background agent 2 failed: 1,234,567 tokens, 1m 20s; no key"
        );
        let cached = BackgroundRow { cached: 80_000, ..row(BackgroundStatus::Completed) };
        assert_eq!(
            list(&[cached], 0),
            "2 ✓ completed, 1,234,567 tokens · 80,000 cached, 1m 20s: run the tests"
        );
        assert_eq!(list(&[], 0), "There are no background agents.");
    }

    #[test]
    fn numbers_and_times_are_easy_to_read() {
        assert_eq!([0, 999, 1000, 1_000_000].map(grouped), ["0", "999", "1,000", "1,000,000"]);
        assert_eq!([0, 61_000, 3_720_000].map(elapsed), ["0s", "1m 1s", "1h 2m"]);
    }
}
