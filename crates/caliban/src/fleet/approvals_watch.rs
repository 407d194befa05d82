//! `caliban approvals --watch`: questions as they come, of this repo or of all, and answers typed at a terminal.
//!
//! Questions are lines below each other, never redrawn: a number means the question that it was shown with for as long as the
//! watch goes on. Starts no daemon but that of this repo, and that one only at the beginning: who stops it means it.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::Write,
    path::{Path, PathBuf},
    time::Duration,
};

use caliban_agent::event::Answer;
use caliban_core::inert;
use serde::Serialize;
use tokio::{
    signal::unix::{SignalKind, signal},
    time::{MissedTickBehavior, interval},
};

use super::{
    Fleet, all_repos, answer,
    approval_numbers::Numbered,
    approvals::{self, what, who},
    json_line, list, say,
    watch::control,
};
use crate::{
    cli::fleet::ApprovalsArgs,
    consent::{Consent, OfferedRules},
    keyboard::Keyboard,
    report::{Code, Failure, Result},
};

/// How often it is looked what is asked.
const LOOK: Duration = Duration::from_millis(500);
const HOW: &str = "answer with: 2 y (yes), 2 a (always, this session), 2 a repo or 2 a everywhere (for longer), 2 a repo RULE (another rule), 2 o (always, outside the fence), 2 n (no), 2 n use make instead, 2 v (all of it); q leaves";

/// Whose questions they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ApprovalScope {
    Here,
    AllRepos,
}

/// A question with its repo.
#[derive(Debug, Clone, PartialEq, Eq)]
struct There {
    repo: PathBuf,
    asked: Numbered,
}

impl There {
    /// A question that is asked again later is another one.
    fn key(&self) -> (PathBuf, String) {
        let Numbered { agent, ask, .. } = &self.asked;
        (self.repo.clone(), format!("{agent}/{}/{}/{}", ask.id, ask.digest, ask.opened_at))
    }
}

/// What has changed, as a line of JSON.
#[derive(Serialize)]
struct ApprovalChange<'a> {
    /// `asked` or `closed`.
    event: &'static str,
    repo: &'a Path,
    #[serde(flatten)]
    asked: &'a Numbered,
}

/// The questions that are open, under the numbers that they were shown with.
#[derive(Debug, Default)]
struct ApprovalBoard {
    open: BTreeMap<u64, There>,
    /// The last number that was given over all repos.
    last: u64,
    /// Questions that were shown whole.
    viewed: BTreeSet<u64>,
    /// Questions that were answered here; that they are closed is no news.
    answered: BTreeSet<u64>,
}

impl ApprovalBoard {
    /// Takes in what is open now: what is new, and what is not open any more. Within one repo the numbers are the repo's; over
    /// all of them they are this watch's.
    fn take(&mut self, now: Vec<There>, scope: ApprovalScope) -> (Vec<u64>, Vec<(u64, There)>) {
        let keys: BTreeSet<_> = now.iter().map(There::key).collect();
        let (open, closed) =
            std::mem::take(&mut self.open).into_iter().partition(|(_, there)| keys.contains(&there.key()));
        self.open = open;
        let known: BTreeSet<_> = self.open.values().map(There::key).collect();
        let mut new = Vec::new();
        for mut there in now.into_iter().filter(|there| !known.contains(&there.key())) {
            let number = match (scope, there.asked.number) {
                (ApprovalScope::Here, Some(number)) => number,
                _ => self.last + 1,
            };
            self.last = self.last.max(number);
            there.asked.number = Some(number);
            self.open.insert(number, there);
            new.push(number);
        }
        let answered = std::mem::take(&mut self.answered);
        let closed: BTreeMap<u64, There> = closed;
        let news = closed.into_iter().filter(|(number, _)| !answered.contains(number)).collect();
        (new, news)
    }
}

/// What a line says.
#[derive(Debug, PartialEq, Eq)]
enum Said {
    Answer(u64, Answer),
    /// An "always", in words.
    Always(u64, String),
    View(u64),
    Leave,
    Nothing,
    Unclear,
}

/// `2 y`, `y 2`, `2 n the reason`.
fn said(line: &str) -> Said {
    let line = line.trim();
    if line.is_empty() {
        return Said::Nothing;
    }
    if matches!(line, "q" | "Q") {
        return Said::Leave;
    }
    let (first, rest) = line.split_once(char::is_whitespace).unwrap_or((line, "v"));
    let (second, more) = rest.trim_start().split_once(char::is_whitespace).unwrap_or((rest.trim(), ""));
    let (number, word) = match (first.parse(), second.parse()) {
        (Ok(number), _) => (number, second),
        (Err(_), Ok(number)) => (number, first),
        (Err(_), Err(_)) => return Said::Unclear,
    };
    let more = more.trim();
    match (word, more) {
        ("y" | "yes", "") => Said::Answer(number, Answer::Once),
        ("a" | "always" | "o" | "outside", _) => Said::Always(number, format!("{word} {more}")),
        ("n" | "no", "") => Said::Answer(number, Answer::No(None)),
        ("n" | "no", reason) => Said::Answer(number, Answer::No(Some(reason.to_owned()))),
        ("v" | "view", "") => Said::View(number),
        _ => Said::Unclear,
    }
}

pub(super) async fn watch(fleet: &Fleet<'_>, args: &ApprovalsArgs, out: &mut dyn Write) -> Result<Code> {
    let scope = if args.all_repos { ApprovalScope::AllRepos } else { ApprovalScope::Here };
    if scope == ApprovalScope::Here {
        fleet.client().await?;
    }
    let is_terminal = !args.json && list::size().is_some();
    let mut keyboard = if is_terminal { Keyboard::open()? } else { None };
    if keyboard.is_some() {
        say(HOW);
    }
    let mut board = ApprovalBoard::default();
    let mut told = BTreeSet::new();
    let mut look = interval(LOOK);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut term = signal(SignalKind::terminate())?;
    loop {
        let line = tokio::select! {
            _ = look.tick() => None,
            line = Keyboard::next_of(&mut keyboard) => match line {
                Some(line) => Some(line.text),
                None => return Ok(Code::Done),
            },
            _no_handler = tokio::signal::ctrl_c() => return Ok(Code::Done),
            _ = term.recv() => return Ok(Code::Done),
        };
        match line.as_deref().map(said) {
            Some(Said::Leave) => return Ok(Code::Done),
            Some(Said::Unclear) => say(&format!("not understood, and no answer; {HOW}")),
            Some(Said::Answer(number, answer)) => give(fleet, &mut board, number, answer, out).await?,
            Some(Said::Always(number, words)) => match always(&board, number, &words) {
                Ok(answer) => give(fleet, &mut board, number, answer, out).await?,
                Err(failure) => failure.show(),
            },
            Some(Said::View(number)) => view(&mut board, number, out)?,
            Some(Said::Nothing) | None => {}
        }
        let only = (scope == ApprovalScope::Here).then(|| fleet.places().base().to_owned());
        let found = all_repos::questions(fleet, only.as_deref(), &mut told).await?;
        let found = found
            .into_iter()
            .flat_map(|(repo, open)| open.into_iter().map(move |asked| There { repo: repo.clone(), asked }));
        let (new, closed) = board.take(found.collect(), scope);
        for (number, there) in closed {
            if args.json {
                json_line(&ApprovalChange { event: "closed", repo: &there.repo, asked: &there.asked }, out)?;
            } else {
                writeln!(out, "{number}  not asked any more: {}", what(&there.asked))?;
            }
        }
        for number in &new {
            let Some(there) = board.open.get(number) else { continue };
            if args.json {
                json_line(&ApprovalChange { event: "asked", repo: &there.repo, asked: &there.asked }, out)?;
                continue;
            }
            if scope == ApprovalScope::AllRepos {
                writeln!(out, "{}", inert::line(&there.repo.to_string_lossy()))?;
            }
            approvals::print(std::slice::from_ref(&there.asked), out)?;
        }
        if is_terminal && !new.is_empty() {
            control("\x07", out)?;
        }
        out.flush()?;
    }
}

/// What an "always" to this question means.
fn always(board: &ApprovalBoard, number: u64, words: &str) -> Result<Answer> {
    let Some(There { asked, .. }) = board.open.get(&number) else {
        return Err(Failure::usage(format!("{number} is not open")));
    };
    let offered = OfferedRules { always: &asked.ask.suggestions, outside: &asked.ask.outside };
    match Consent::of(words, offered) {
        Consent::Keep(kept) => Ok(Answer::Keep(kept)),
        Consent::NoAlways => Err(answer::no_rule(asked)),
        Consent::NoRule(why) => Err(Failure::usage(why)),
        _ => Err(Failure::usage(format!("not understood, and no answer; {HOW}"))),
    }
}

/// What goes wrong with one answer is said, and the watch goes on.
async fn give(
    fleet: &Fleet<'_>,
    board: &mut ApprovalBoard,
    number: u64,
    answer: Answer,
    out: &mut dyn Write,
) -> Result<()> {
    let Some(there) = board.open.get(&number) else {
        say(&format!("{number} is not open"));
        return Ok(());
    };
    let asked = &there.asked;
    let is_cut = approvals::is_cut(asked) && !board.viewed.contains(&number);
    if is_cut && !matches!(answer, Answer::No(_)) {
        say(&format!("a part of it is not shown: {number} v shows all of it, then {number} y allows it"));
        return Ok(());
    }
    let given = async {
        answer::check(asked, &answer)?;
        let is_own = there.repo == fleet.places().repo();
        let fleet = Fleet::open(fleet.environment, if is_own { &fleet.cwd } else { &there.repo })?;
        answer::give(&fleet, &asked.agent.to_string(), &asked.ask, answer.clone()).await
    };
    match given.await {
        Ok(()) => {
            writeln!(out, "{}", answer::told(asked, &answer))?;
            board.answered.insert(number);
        }
        Err(failure) => failure.show(),
    }
    Ok(())
}

/// All of the call, as the transcript has it.
fn view(board: &mut ApprovalBoard, number: u64, out: &mut dyn Write) -> Result<()> {
    let Some(there) = board.open.get(&number) else {
        say(&format!("{number} is not open"));
        return Ok(());
    };
    match approvals::recorded(&there.asked) {
        Ok(call) => {
            writeln!(out, "{number}  {}\n{call}", who(&there.asked))?;
            board.viewed.insert(number);
        }
        Err(failure) => failure.show(),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use caliban_contract::records::AskRecord;
    use caliban_core::lifecycle::State;

    use super::*;
    use crate::fleet::approval_numbers::{self, Showing};

    #[test]
    fn a_line_names_its_question() {
        let cases = [
            ("2 y", Said::Answer(2, Answer::Once)),
            ("y 2", Said::Answer(2, Answer::Once)),
            ("  12   a ", Said::Always(12, "a ".into())),
            ("4 o repo Bash(make *)", Said::Always(4, "o repo Bash(make *)".into())),
            ("3 n", Said::Answer(3, Answer::No(None))),
            ("n 3 use  make ", Said::Answer(3, Answer::No(Some("use  make".into())))),
            ("3", Said::View(3)),
            ("3 v", Said::View(3)),
            ("q", Said::Leave),
            ("", Said::Nothing),
            ("y", Said::Unclear),
            ("yes please", Said::Unclear),
            // What does not end there is no yes.
            ("2 y but only once", Said::Unclear),
        ];
        for (line, expected) in cases {
            assert_eq!(said(line), expected, "{line:?}");
        }
    }

    #[test]
    fn a_number_means_one_question_for_as_long_as_the_watch_goes_on() {
        let dir = tempfile::tempdir().unwrap();
        let there = |repo: &str, id: &str| {
            let asks = vec![AskRecord { id: id.into(), ..AskRecord::default() }];
            let row = caliban_fleet::protocol::AgentRow { asks, ..crate::fleet::tests::row(State::Running) };
            let asked = approval_numbers::number(dir.path(), &[row], Showing::All).open.remove(0);
            There { repo: repo.into(), asked }
        };
        let (a, b, c) = (there("/x", "a"), there("/y", "b"), there("/z", "c"));
        let mut board = ApprovalBoard::default();
        assert_eq!(board.take(vec![a.clone(), b.clone()], ApprovalScope::AllRepos).0, [1, 2]);
        let (new, closed) = board.take(vec![b.clone(), c.clone()], ApprovalScope::AllRepos);
        assert_eq!((new, closed.iter().map(|(number, _)| *number).collect::<Vec<_>>()), (vec![3], vec![1]));
        // What was answered here is no news; a question that comes again is another one.
        board.answered.insert(2);
        let (new, closed) = board.take(vec![a, c], ApprovalScope::AllRepos);
        assert_eq!((new, closed.len()), (vec![4], 0));
    }
}
