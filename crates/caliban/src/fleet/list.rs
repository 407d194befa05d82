//! `caliban agents list`

use std::{io::Write, path::Path, time::Duration};

use anstyle::{AnsiColor, Style};
use caliban_contract::detached::{self, DetachedRecord, DetachedState};
use caliban_core::inert;
use caliban_fleet::protocol::AgentRow;
use serde::Serialize;

use super::{
    Fleet, approval_numbers, json_line,
    row::{self, ShownAgent},
    width::{Side, columns, cut, padded},
};
use crate::{
    cli::fleet::ListArgs,
    jobs,
    report::{Code, Failure, Result},
};

/// How much of "what it is doing" is shown where the width is not known.
const DOING_COLUMNS: usize = 80;
/// Before less of it is shown, another column goes.
const DOING_LEAST: usize = 16;
/// How much of a label is shown.
const LABEL_COLUMNS: usize = 20;
/// How much of the task of an agent without a label is shown in its place.
const TASK_COLUMNS: usize = 30;
/// The columns beside that: ID, LABEL, STATE, TURNS, TOKENS, COST, AGE, BRANCH.
const COLUMNS: usize = 8;
/// Those that stand right.
const AMOUNTS: std::ops::Range<usize> = 3..7;
/// Those that go where the terminal is narrow, the first first: BRANCH, TOKENS, TURNS, COST, AGE, LABEL.
const DROPPED: [usize; 6] = [7, 4, 3, 5, 6, 1];

pub(super) const NEEDS_YOU: Style = AnsiColor::Yellow.on_default().bold();
const DIM: Style = Style::new().dimmed();

pub(super) async fn list(fleet: &Fleet<'_>, args: &ListArgs, out: &mut dyn Write) -> Result<Code> {
    if args.watch {
        return super::watch::watch(fleet, args.json, out).await;
    }
    if args.all_repos {
        return super::all_repos::list(fleet, args.json, out).await;
    }
    let listed = async { fleet.client().await?.list().await.map_err(Failure::from) };
    let rows = fleet.patiently(listed, "`caliban daemon restart` replaces it").await?;
    approval_numbers::shown(fleet.places().base(), &rows);
    let now = caliban_contract::wall_ms();
    let jobs = fleet.places().base().join(detached::DIRECTORY);
    let left = left_running(&jobs);
    if args.json {
        let listed = |row| ListedAgent {
            agent: ShownAgent::new(row, now),
            left_running: of(row, &left).map(|record| jobs::ListedJob::new(record, &jobs)).collect(),
        };
        return json_line(&rows.iter().map(listed).collect::<Vec<_>>(), out).map(|()| Code::Done);
    }
    for line in table(&rows, now, width()) {
        writeln!(out, "{line}")?;
    }
    if let Some(line) = rest(&rows, &left, width()) {
        writeln!(out, "{line}")?;
    }
    Ok(Code::Done)
}

/// An agent of the list, with the commands that it left running.
#[derive(Serialize)]
struct ListedAgent<'a> {
    #[serde(flatten)]
    agent: ShownAgent<'a>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    left_running: Vec<jobs::ListedJob<'a>>,
}

/// The detached commands that run.
fn left_running(jobs: &Path) -> Vec<DetachedRecord> {
    let is_running = |record: &DetachedRecord| record.state(jobs) == DetachedState::Running;
    detached::list(jobs).into_iter().filter(is_running).collect()
}

fn of<'a>(row: &AgentRow, left: &'a [DetachedRecord]) -> impl Iterator<Item = &'a DetachedRecord> {
    let id = row.id.to_string();
    left.iter().filter(move |record| record.agent == id)
}

/// Which agents left something running, if any did.
fn rest(rows: &[AgentRow], left: &[DetachedRecord], width: Option<usize>) -> Option<String> {
    let its = |row: &AgentRow| {
        let commands =
            of(row, left).map(|record| format!("{} ({})", record.id, inert::line(&record.command)));
        let commands: Vec<String> = commands.collect();
        (!commands.is_empty()).then(|| format!("{}: {}", row.id, commands.join(", ")))
    };
    let all: Vec<String> = rows.iter().filter_map(its).collect();
    let line = format!("left running by {} (caliban jobs list)", all.join("; "));
    (!all.is_empty()).then(|| whole(&line, width))
}

/// The columns of the terminal that stdout is; none when it is not one.
pub(super) fn width() -> Option<usize> {
    size().map(|(columns, _)| columns)
}

/// Columns and lines of the terminal that stdout is.
pub(super) fn size() -> Option<(usize, usize)> {
    let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok()?;
    (size.ws_col > 0 && size.ws_row > 0).then_some((size.ws_col.into(), size.ws_row.into()))
}

/// The lines of the list; those that need a person are marked and counted. Where the terminal is too narrow for all
/// columns, the least needed go: a line is a line.
pub(super) fn table(rows: &[AgentRow], now_ms: u64, width: Option<usize>) -> Vec<String> {
    if rows.is_empty() {
        return vec!["No agents. Start one: caliban --bg \"<task>\"".to_owned()];
    }
    let mut lines = agents(rows, now_ms, width);
    lines.extend(need(rows, width));
    lines
}

/// A head, and a line for each agent.
pub(super) fn agents(rows: &[AgentRow], now_ms: u64, width: Option<usize>) -> Vec<String> {
    let cells: Vec<[String; COLUMNS]> = rows.iter().map(cells).collect();
    let head = ["ID", "LABEL", "STATE", "TURNS", "TOKENS", "COST", "AGE", "BRANCH"].map(str::to_owned);
    let mut widths = [0; COLUMNS];
    for line in cells.iter().chain([&head]) {
        for (width, cell) in widths.iter_mut().zip(line) {
            *width = (*width).max(columns(cell));
        }
    }
    let (shown, doing_columns) = fitting(&widths, width);
    let joined = |cells: &[String; COLUMNS]| joined(cells, &widths, &shown);
    let mut lines = vec![format!("{DIM}{}{DIM:#}", whole(&format!("  {}  DOING", joined(&head)), width))];
    for (row, cells) in rows.iter().zip(&cells) {
        let shown = ShownAgent::new(row, now_ms);
        let (mark, style) = match (shown.needs_you, row::has_ended(row.state)) {
            (true, _) => ("! ", NEEDS_YOU),
            (false, true) => ("  ", DIM),
            (false, false) => ("  ", Style::new()),
        };
        let line = format!("{mark}{}  {}", joined(cells), cut(&shown.doing, doing_columns));
        lines.push(format!("{style}{}{style:#}", whole(&line, width)));
    }
    lines
}

/// Who needs a person, if anybody does.
pub(super) fn need(rows: &[AgentRow], width: Option<usize>) -> Option<String> {
    let waiting = rows.iter().filter(|row| row::needs_you(row)).count();
    let asking = rows.iter().filter(|row| !row.asks.is_empty()).count();
    let who = match waiting {
        0 => return None,
        1 => "1 agent needs you:".to_owned(),
        _ => format!("{waiting} agents need you:"),
    };
    let verb =
        |count: usize, one: &str, many: &str| format!("{count} {}", if count == 1 { one } else { many });
    let how = match (asking, waiting - asking) {
        (1, 0) => "caliban approvals lists what it asks".to_owned(),
        (_, 0) => "caliban approvals lists what they ask".to_owned(),
        (0, 1) => "it failed (caliban logs ID says why, caliban resume ID goes on)".to_owned(),
        (0, _) => "they failed (caliban logs ID says why, caliban resume ID goes on)".to_owned(),
        (asks, failed) => {
            format!("{} (caliban approvals), {failed} failed (caliban logs ID)", verb(asks, "asks", "ask"))
        }
    };
    let how = cut(&how, width.map_or(usize::MAX, |width| width.saturating_sub(columns(&who) + 2)));
    Some(format!("{NEEDS_YOU}{who}{NEEDS_YOU:#} {how}"))
}

/// The columns that fit, and what is left for what an agent is doing.
fn fitting(widths: &[usize; COLUMNS], width: Option<usize>) -> (Vec<usize>, usize) {
    let mut shown: Vec<usize> = (0..COLUMNS).collect();
    let Some(width) = width else { return (shown, DOING_COLUMNS) };
    let mut droppable = DROPPED.iter();
    loop {
        // The mark, the columns, the gaps behind them, and one that stays free.
        let used: usize = 3 + shown.iter().map(|&column| widths[column] + 2).sum::<usize>();
        let left = width.saturating_sub(used);
        if left >= DOING_LEAST {
            return (shown, left);
        }
        let Some(dropped) = droppable.next() else { return (shown, left) };
        shown.retain(|column| column != dropped);
    }
}

/// A line that does not break: the last column of a terminal stays free.
fn whole(line: &str, width: Option<usize>) -> String {
    cut(line.trim_end(), width.map_or(usize::MAX, |width| width.saturating_sub(1)))
}

fn cells(row: &AgentRow) -> [String; COLUMNS] {
    [
        row.id.to_string(),
        named(row),
        row::state(row),
        row.turns.to_string(),
        row::tokens(row.usage.total()),
        row::cost(row),
        row::time(Duration::from_millis(row.age_ms)),
        row.branch.as_deref().map_or("-".into(), inert::line).into_owned(),
    ]
}

/// The label, else the first line of what the agent was asked to do.
fn named(row: &AgentRow) -> String {
    let most = if row.label.is_some() { LABEL_COLUMNS } else { TASK_COLUMNS };
    row::title(row).map_or_else(|| "-".to_owned(), |title| cut(&title, most))
}

fn joined(cells: &[String; COLUMNS], widths: &[usize; COLUMNS], shown: &[usize]) -> String {
    let column = |&at: &usize| {
        let side = if AMOUNTS.contains(&at) { Side::Right } else { Side::Left };
        padded(&cells[at], widths[at], side)
    };
    shown.iter().map(column).collect::<Vec<_>>().join("  ")
}

#[cfg(test)]
mod tests {
    use caliban_contract::records::AskRecord;
    use caliban_core::lifecycle::{Ending, State};

    use super::*;

    fn rows() -> [AgentRow; 2] {
        let asks = vec![AskRecord { what: "Bash make install".into(), ..AskRecord::default() }];
        [
            AgentRow {
                label: Some("auth".into()),
                turns: 3,
                age_ms: 61_000,
                branch: Some("caliban/a3f8b2c1".into()),
                asks,
                ..crate::fleet::tests::row(State::Running)
            },
            AgentRow { ending: Some(Ending::Finished), ..crate::fleet::tests::row(State::Done) },
        ]
    }

    fn plain(width: Option<usize>) -> Vec<String> {
        let lines = table(&rows(), 0, width);
        lines.iter().map(|line| anstream::adapter::strip_str(line).to_string()).collect()
    }

    #[test]
    fn the_list_marks_who_needs_a_person() {
        assert_eq!(
            plain(Some(100)),
            [
                "  ID        LABEL  STATE           TURNS  TOKENS  COST  AGE  BRANCH            DOING",
                "! a3f8b2c1  auth   running (asks)      3       0     -   1m  caliban/a3f8b2c1  asks: Bash make ins…",
                "  a3f8b2c1  task   done                0       0     -   0s  -                 finished",
                "1 agent needs you: caliban approvals lists what it asks",
            ]
        );
    }

    #[test]
    fn an_agent_without_a_label_is_listed_with_its_task() {
        let of = |label: Option<&str>, prompt: &str| {
            let row = crate::fleet::tests::row(State::Running);
            named(&AgentRow { label: label.map(Into::into), prompt: prompt.into(), ..row })
        };
        assert_eq!(of(Some("auth"), "fix the login"), "auth");
        assert_eq!(of(None, "fix the login"), "fix the login");
        assert_eq!(
            of(None, "fix \x1b[2J the login page and all that it needs"),
            "fix ␛[2J the login page and a…"
        );
        assert_eq!(of(None, " "), "-");
    }

    #[test]
    fn a_line_of_the_list_never_breaks_however_narrow_the_terminal() {
        assert_eq!(
            plain(Some(40)),
            [
                "  ID        STATE           DOING",
                "! a3f8b2c1  running (asks)  asks: Bash…",
                "  a3f8b2c1  done            finished",
                "1 agent needs you: caliban approvals l…",
            ]
        );
        for width in 1..300 {
            for line in plain(Some(width)) {
                // The words who needs somebody are not cut.
                assert!(columns(&line) < width.max(22), "{width}: {line}");
            }
        }
        assert_eq!(plain(Some(200)), plain(None));
    }
}
