//! One agent in words: what it is doing, whether it needs a person, what it has spent. Pure; the command line and a
//! terminal UI say the same.

use std::time::Duration;

use caliban_contract::{local_time, records::AskRecord};
use caliban_core::{
    ids::AgentId,
    inert,
    lifecycle::{Ending, State, WaitingFor},
    priority::Priority,
    status_word::{StatusFacts, StatusWord},
    wait::QueuedFor,
};
use jiff::{Timestamp, tz::TimeZone};
use serde::Serialize;

use crate::{
    plain::{one_line, plain},
    protocol::AgentRow,
};

/// An agent as lists show it; text and JSON come from it alike.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ShownAgent<'a> {
    /// What the daemon says.
    #[serde(flatten)]
    pub row: &'a AgentRow,
    /// Whether a person has to look at it: it asks, or it has failed.
    pub needs_you: bool,
    /// What it is doing, waits for, or how it ended; behind a limit that it has nearly used up.
    pub doing: String,
}

impl<'a> ShownAgent<'a> {
    /// The row, and what it means at `now_ms` (milliseconds since 1970).
    pub fn new(row: &'a AgentRow, now_ms: u64) -> Self {
        Self { row, needs_you: needs_you(row), doing: with_review(row, doing_within(row, now_ms)) }
    }
}

/// How the work of an agent that has ended stands, where that is known.
pub fn review(row: &AgentRow) -> Option<String> {
    row.review.filter(|_| has_ended(row.state)).map(|review| review.to_string())
}

/// `finished, to review +10 −2`: what is said of an agent with how its work stands.
pub fn with_review(row: &AgentRow, said: String) -> String {
    match review(row) {
        Some(review) => format!("{said}, {review}"),
        None => said,
    }
}

/// How it stands, in one word.
pub fn status(row: &AgentRow) -> StatusWord {
    StatusWord::of(StatusFacts {
        state: row.state,
        waiting_for: row.waiting_for.as_ref(),
        asks: !row.asks.is_empty(),
        is_over_budget: matches!(row.ending, Some(Ending::BudgetExceeded { .. })),
        is_queued: row.queued_behind.is_some(),
        is_asleep: row.hibernated,
    })
}

/// The state and, in parentheses, what it does not say: `running (asks)`.
pub fn state(row: &AgentRow) -> String {
    status(row).in_list(row.state)
}

/// Whether a person has to look at it: it asks, or it has failed. One that is idle or asleep waits for nobody.
pub fn needs_you(row: &AgentRow) -> bool {
    status(row).needs_you()
}

/// The label, else what it was asked to do, without Markdown marks.
pub fn title(row: &AgentRow) -> Option<String> {
    let label = row.label.as_deref().map(|label| inert::line(label).into_owned());
    let prompt = || [plain(&row.prompt), one_line(&row.prompt)].into_iter().find(|text| !text.is_empty());
    label.or_else(prompt)
}

/// Whether it has ended, in whatever way.
pub fn has_ended(state: State) -> bool {
    match state {
        State::Spawning | State::Running | State::Idle => false,
        State::Killed | State::Done | State::Failed | State::Crashed => true,
    }
}

/// The id, with the label where there is one.
pub fn name(row: &AgentRow) -> String {
    match &row.label {
        Some(label) => format!("{} ({})", row.id, inert::line(label)),
        None => row.id.to_string(),
    }
}

/// The agents above it, the first first, by their labels or ids.
pub fn above(row: &AgentRow, rows: &[AgentRow]) -> Vec<String> {
    let mut names = Vec::new();
    let mut parent = row.parent;
    // An agent is never above itself; what the registry says is not trusted to be so.
    while let Some(id) = parent.filter(|_| names.len() < rows.len()) {
        let found = rows.iter().find(|row| row.id == id);
        let name = found.and_then(|row| row.label.as_deref()).map(|label| inert::line(label).into_owned());
        names.push(name.unwrap_or_else(|| id.to_string()));
        parent = found.and_then(|row| row.parent);
    }
    names.reverse();
    names
}

/// What it is doing, behind a limit that it has nearly used up: `83 % of today's budget · Bash cargo test`.
pub fn doing_within(row: &AgentRow, now_ms: u64) -> String {
    match near_limit(row) {
        Some(near) => format!("{near} · {}", doing(row, now_ms)),
        None => doing(row, now_ms),
    }
}

/// The limit that it has nearly used up: `83 % of today's budget`.
pub fn near_limit(row: &AgentRow) -> Option<String> {
    row.near_limit.as_ref().map(|near| inert::line(&near.to_string()).into_owned())
}

/// What it is doing, waits for, or how it ended; one line that is safe to print. Agents that it waits for are named by their ids.
pub fn doing(row: &AgentRow, now_ms: u64) -> String {
    doing_among(row, now_ms, &|_| None)
}

/// The same, with other agents named by the labels that `label` knows.
pub fn doing_among(row: &AgentRow, now_ms: u64, label: &Labels<'_>) -> String {
    let mut words = what(row, now_ms, label);
    if row.priority != Priority::default() && !has_ended(row.state) {
        words += &format!(", priority {}", row.priority);
    }
    if let Some(late) = row.late_ms {
        words += &format!(", began {} late", time(Duration::from_millis(late)));
    }
    words
}

/// The labels of other agents.
pub type Labels<'a> = dyn Fn(AgentId) -> Option<String> + 'a;

fn what(row: &AgentRow, now_ms: u64, label: &Labels<'_>) -> String {
    if let Some(ask) = row.asks.first() {
        let more = match row.asks.len() - 1 {
            0 => String::new(),
            more => format!(" (and {more} more)"),
        };
        return format!("asks: {}{more}", one_line(&ask.what));
    }
    match (&row.waiting_for, row.state) {
        (Some(WaitingFor::Approval { call }), _) => return format!("asks: {}", one_line(call)),
        (Some(WaitingFor::RateLimit { until_ms }), _) => {
            let left = time(Duration::from_millis(until_ms.saturating_sub(now_ms)));
            return match row.activity.as_deref() {
                Some(why) => format!("tries again in {left}: {}", one_line(why)),
                None => format!("rate limit, {left} left"),
            };
        }
        (Some(WaitingFor::Model { until_ms }), _) => {
            let left = time(Duration::from_millis(until_ms.saturating_sub(now_ms)));
            let why = row.activity.as_deref().unwrap_or("the model does not answer");
            return format!("waits for the model, tries again in {left}: {}", one_line(why));
        }
        (Some(WaitingFor::QuietHours { until_ms }), _) => {
            return format!("quiet until {}", clock(*until_ms, now_ms));
        }
        (Some(WaitingFor::Input), _) if row.hibernated => return "asleep, waits for your message".to_owned(),
        (Some(WaitingFor::Input), _) => {
            return match row.activity.as_deref() {
                Some(meanwhile) => format!("waits for your message; {}", one_line(meanwhile)),
                None => "waits for your message".to_owned(),
            };
        }
        (None, _) => {}
    }
    match row.state {
        State::Spawning => starting(row, now_ms, label),
        State::Running => row.activity.as_deref().map_or("at work".into(), one_line),
        State::Idle if row.hibernated => "asleep".to_owned(),
        State::Idle => row.activity.as_deref().map_or("idle".into(), one_line),
        State::Killed | State::Done | State::Failed | State::Crashed => ended(row),
    }
}

/// `refused in 12m`, for a question that does not wait for ever.
pub fn refused_in(ask: &AskRecord, now_ms: u64) -> Option<String> {
    let left = Duration::from_millis(ask.expires_at?.saturating_sub(now_ms));
    Some(format!("refused in {}", time(left)))
}

/// How it ended, in words.
pub fn ended(row: &AgentRow) -> String {
    let how = row.ending.as_ref().map_or_else(|| row.state.to_string(), ToString::to_string);
    match &row.note {
        Some(note) => format!("{how} ({})", one_line(note)),
        None => how,
    }
}

/// For whom or what an agent waits that was to start; none when it starts.
pub fn waits(row: &AgentRow, now_ms: u64) -> Option<String> {
    let before = row.queued_behind?;
    if !row.after.is_empty() {
        return Some(format!("waits for {}", after(row, &|_| None)));
    }
    Some(match (&row.queued_for, before) {
        (Some(QueuedFor::Time { at_ms }), _) => format!("starts at {}", clock(*at_ms, now_ms)),
        (Some(QueuedFor::QuietHours { until_ms }), _) => {
            format!("waits for the end of the quiet hours at {}", clock(*until_ms, now_ms))
        }
        (Some(QueuedFor::UserLimit { limit }), 0) => {
            format!("waits for a place: {} of yours, over all repos", running(*limit))
        }
        (_, 0) => "waits for a place (next to start)".to_owned(),
        (_, before) => format!("waits for a place ({before} before it)"),
    })
}

fn after(row: &AgentRow, label: &Labels<'_>) -> String {
    let name =
        |id: &AgentId| label(*id).map_or_else(|| id.to_string(), |label| inert::line(&label).into_owned());
    row.after.iter().map(name).collect::<Vec<_>>().join(", ")
}

fn running(limit: u32) -> String {
    if limit == 1 { "1 agent runs".to_owned() } else { format!("{limit} agents run") }
}

fn starting(row: &AgentRow, now_ms: u64, label: &Labels<'_>) -> String {
    if !row.after.is_empty() {
        return format!("queued, starts after {}", after(row, label));
    }
    let Some(before) = row.queued_behind else { return "starting".to_owned() };
    match (&row.queued_for, &row.note) {
        (Some(QueuedFor::Time { at_ms }), _) => format!("queued, starts at {}", clock(*at_ms, now_ms)),
        (Some(QueuedFor::QuietHours { until_ms }), _) => {
            format!("queued, quiet until {}", clock(*until_ms, now_ms))
        }
        // Why its last start did not come about.
        (_, Some(note)) if before == 0 => format!("queued: {}", inert::line(note)),
        (Some(QueuedFor::UserLimit { limit }), None) if before == 0 => {
            format!("queued: {} of yours, over all repos", running(*limit))
        }
        (_, _) if before == 0 => "queued, next to start".to_owned(),
        (_, _) => format!("queued behind {before}"),
    }
}

/// A moment on the machine's clock: `07:00` today, `Wed 07:00` within a week, else with its date.
pub fn clock(ms: u64, now_ms: u64) -> String {
    clock_in(&local_time::time_zone(), ms, now_ms)
}

fn clock_in(zone: &TimeZone, ms: u64, now_ms: u64) -> String {
    let at = |ms: u64| i64::try_from(ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
    let (Some(at), Some(now)) = (at(ms), at(now_ms)) else { return "an unknown time".to_owned() };
    let (at, now) = (at.to_zoned(zone.clone()), now.to_zoned(zone.clone()));
    let days = now.date().until(at.date()).map_or(i32::MAX, |span| span.get_days());
    let form = match days {
        0 => "%H:%M",
        1..=6 => "%a %H:%M",
        _ => "%Y-%m-%d %H:%M",
    };
    at.strftime(form).to_string()
}

/// `45s`, `12m`, `3h 5m`, `2d 4h`.
pub fn time(time: Duration) -> String {
    let seconds = time.as_secs();
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86400);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, _) => format!("{minutes}m"),
        (0, _, _) => format!("{hours}h {}m", minutes % 60),
        _ => format!("{days}d {}h", hours % 24),
    }
}

/// `812`, `12.3k`, `4.56M`.
pub fn tokens(count: u64) -> String {
    match count {
        0..1_000 => count.to_string(),
        1_000..1_000_000 => format!("{:.1}k", count as f64 / 1e3),
        _ => format!("{:.2}M", count as f64 / 1e6),
    }
}

/// What it has cost, when that is known.
pub fn cost(row: &AgentRow) -> String {
    match row.micro_usd {
        None => "-".to_owned(),
        Some(micro) if micro.0 == 0 => "$0".to_owned(),
        Some(micro) if micro.0 < 10_000 => format!("${:.4}", micro.0 as f64 / 1e6),
        Some(micro) => format!("${:.2}", micro.0 as f64 / 1e6),
    }
}

/// What it has spent, in a line.
pub fn spent(row: &AgentRow) -> String {
    let cost = match row.micro_usd {
        Some(_) => format!(", {}", cost(row)),
        None => String::new(),
    };
    format!("{}, {} tokens{cost}", turns(row.turns), tokens(row.usage.total()))
}

/// `1 turn`, `2 turns`.
pub fn turns(count: u64) -> String {
    if count == 1 { "1 turn".to_owned() } else { format!("{count} turns") }
}

#[cfg(test)]
mod tests {
    use caliban_core::{lifecycle::Ending, price::MicroUsd};

    use super::*;

    fn row(state: State) -> AgentRow {
        AgentRow::new("a3f8b2c1".parse().unwrap(), state)
    }

    fn ask(what: &str) -> AskRecord {
        AskRecord { what: format!("Bash {what}"), ..AskRecord::default() }
    }

    #[test]
    fn what_an_agent_does_is_one_harmless_line() {
        let running = row(State::Running);
        let asks = |asks: Vec<AskRecord>| AgentRow {
            waiting_for: Some(WaitingFor::Approval { call: "make".into() }),
            asks,
            ..row(State::Running)
        };
        let id = |text: &str| text.parse().unwrap();
        let cases = [
            (running.clone(), "at work"),
            (AgentRow { activity: Some("Bash cargo test".into()), ..running.clone() }, "Bash cargo test"),
            (AgentRow { activity: Some("Bash a\n\x1b[2Jb".into()), ..running.clone() }, "Bash a ↵ ␛[2Jb"),
            (asks(vec![ask("make\ninstall")]), "asks: Bash make ↵ install"),
            (asks(vec![ask("make"), ask("rm")]), "asks: Bash make (and 1 more)"),
            (asks(vec![]), "asks: make"),
            (
                AgentRow { waiting_for: Some(WaitingFor::RateLimit { until_ms: 91_000 }), ..running },
                "rate limit, 1m left",
            ),
            (
                AgentRow {
                    waiting_for: Some(WaitingFor::RateLimit { until_ms: 13_000 }),
                    activity: Some("HTTP 529: overloaded".into()),
                    ..row(State::Running)
                },
                "tries again in 12s: HTTP 529: overloaded",
            ),
            (
                AgentRow {
                    waiting_for: Some(WaitingFor::Model { until_ms: 13_000 }),
                    activity: Some("nothing answers at h:1: connection refused".into()),
                    ..row(State::Running)
                },
                "waits for the model, tries again in 12s: nothing answers at h:1: connection refused",
            ),
            (
                AgentRow { activity: Some("disk full: waiting for room".into()), ..row(State::Running) },
                "disk full: waiting for room",
            ),
            (
                AgentRow {
                    waiting_for: Some(WaitingFor::Input),
                    activity: Some("in the background: npm start".into()),
                    ..row(State::Idle)
                },
                "waits for your message; in the background: npm start",
            ),
            (AgentRow { waiting_for: Some(WaitingFor::Input), ..row(State::Idle) }, "waits for your message"),
            (
                AgentRow { waiting_for: Some(WaitingFor::Input), hibernated: true, ..row(State::Idle) },
                "asleep, waits for your message",
            ),
            (row(State::Spawning), "starting"),
            (AgentRow { queued_behind: Some(0), ..row(State::Spawning) }, "queued, next to start"),
            (AgentRow { queued_behind: Some(3), ..row(State::Spawning) }, "queued behind 3"),
            (
                AgentRow { after: vec![id("00000001"), id("00000002")], ..row(State::Spawning) },
                "queued, starts after 00000001, 00000002",
            ),
            (AgentRow { ending: Some(Ending::Finished), ..row(State::Done) }, "finished"),
            (
                AgentRow {
                    ending: Some(Ending::Signal { number: 9 }),
                    note: Some("the kernel ended it for want of memory".into()),
                    ..row(State::Crashed)
                },
                "ended by signal 9 (the kernel ended it for want of memory)",
            ),
        ];
        for (row, words) in cases {
            assert_eq!(doing(&row, 1_000), words);
        }
    }

    #[test]
    fn a_queued_agent_says_what_it_waits_for() {
        let zone = local_time::time_zone();
        let queued = |queued_for, before| AgentRow {
            queued_behind: Some(before),
            queued_for: Some(queued_for),
            ..row(State::Spawning)
        };
        let at = clock_in(&zone, 7_200_000, 1_000);
        let limit = QueuedFor::UserLimit { limit: 4 };
        let cases = [
            (queued(QueuedFor::Time { at_ms: 7_200_000 }, 0), format!("queued, starts at {at}")),
            (queued(QueuedFor::QuietHours { until_ms: 7_200_000 }, 2), format!("queued, quiet until {at}")),
            (queued(limit.clone(), 0), "queued: 4 agents run of yours, over all repos".to_owned()),
            (queued(limit, 1), "queued behind 1".to_owned()),
            (queued(QueuedFor::Place, 0), "queued, next to start".to_owned()),
            (
                AgentRow { priority: Priority::High, ..queued(QueuedFor::Place, 3) },
                "queued behind 3, priority high".to_owned(),
            ),
            (
                AgentRow {
                    waiting_for: Some(WaitingFor::QuietHours { until_ms: 7_200_000 }),
                    activity: Some("quiet hours".into()),
                    ..row(State::Running)
                },
                format!("quiet until {at}"),
            ),
            (
                AgentRow { late_ms: Some(7_500_000), priority: Priority::Low, ..row(State::Running) },
                "at work, priority low, began 2h 5m late".to_owned(),
            ),
            (
                AgentRow { ending: Some(Ending::TimedOut { after_ms: 1_800_000 }), ..row(State::Failed) },
                "timed out after 30m".to_owned(),
            ),
        ];
        for (row, words) in cases {
            assert_eq!(doing(&row, 1_000), words);
        }
    }

    #[test]
    fn an_agent_without_a_label_is_called_by_its_task_without_marks() {
        let titled = |prompt: &str| title(&AgentRow { prompt: prompt.into(), ..row(State::Running) });
        let titles = ["# Fix **it**\n\n- soon", " ", "---", "fix it"].map(titled);
        assert_eq!(
            titles.each_ref().map(Option::as_deref),
            [Some("Fix it soon"), None, Some("---"), Some("fix it")]
        );
    }

    #[test]
    fn a_moment_is_as_short_as_it_can_be() {
        let (hour, zone) = (3_600_000, TimeZone::UTC);
        let shown = [7, 31, 24 * 9].map(|hours| clock_in(&zone, hours * hour, hour));
        assert_eq!(shown, ["07:00", "Fri 07:00", "1970-01-10 00:00"]);
        assert_eq!(clock_in(&zone, 7 * hour, 48 * hour), "1970-01-01 07:00");
    }

    #[test]
    fn who_asks_or_has_failed_needs_a_person_and_who_is_idle_does_not() {
        assert!(!needs_you(&row(State::Running)));
        assert!(!needs_you(&row(State::Killed)));
        for failed in [State::Failed, State::Crashed] {
            assert!(needs_you(&row(failed)), "{failed}");
        }
        assert!(needs_you(&AgentRow { asks: vec![ask("make")], ..row(State::Running) }));
        assert!(!needs_you(&AgentRow { waiting_for: Some(WaitingFor::Input), ..row(State::Idle) }));
        // One with a mailbox waits for other agents.
        let mail = AgentRow { activity: Some("waits for mail".into()), ..row(State::Idle) };
        assert_eq!((needs_you(&mail), doing(&mail, 0).as_str()), (false, "waits for mail"));
    }

    #[test]
    fn who_is_above_an_agent_is_named_from_the_first_on() {
        let with = |id: &str, label: Option<&str>, parent: Option<&str>| AgentRow {
            id: id.parse().unwrap(),
            label: label.map(Into::into),
            parent: parent.map(|id| id.parse().unwrap()),
            ..row(State::Running)
        };
        let rows = [
            with("00000001", Some("lead"), None),
            with("00000002", None, Some("00000001")),
            with("00000003", Some("auth"), Some("00000002")),
            with("00000004", None, Some("000000ff")),
            with("00000005", None, Some("00000005")),
        ];
        let of = |number: usize| above(&rows[number], &rows);
        assert_eq!(of(0), Vec::<String>::new());
        assert_eq!(of(2), ["lead", "00000002"]);
        assert_eq!(of(3), ["000000ff"], "one that is gone");
        assert_eq!(of(4).len(), rows.len(), "and no end is needed");
    }

    #[test]
    fn amounts_are_short() {
        let shown = |micro| cost(&AgentRow { micro_usd: micro, ..row(State::Done) });
        assert_eq!(
            [None, Some(0), Some(1_234), Some(9_999), Some(12_345_678)].map(|m| shown(m.map(MicroUsd))),
            ["-", "$0", "$0.0012", "$0.0100", "$12.35"]
        );
        assert_eq!([812, 12_345, 4_560_000].map(tokens), ["812", "12.3k", "4.56M"]);
        let seconds = [59, 60, 3_900, 100_000].map(|s| time(Duration::from_secs(s)));
        assert_eq!(seconds, ["59s", "1m", "1h 5m", "1d 3h"]);
    }
}
