//! A limit that is in the way, and what the ledger does about it when a person may be asked.

use std::fmt;

use caliban_core::budget::{Kind, Limits, NearLimit, OnLimit, ReserveRefused, Scope};
use caliban_store::{
    StoreError,
    ledger::{AccountId, AskTurn, Granted, LimitAsker, Near, Pool, QuestionEnd, Reached},
};

use super::{
    BudgetRefusal, Purse,
    machine::{MachineAccount, PATIENCE, is_dead, own, patiently},
};

/// A limit that is in the way of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AtLimit {
    /// The limit, and how it stands.
    pub refusal: BudgetRefusal,
    /// The same for the ledger, where that can raise it.
    reached: Option<Reached>,
}

impl From<BudgetRefusal> for AtLimit {
    fn from(refusal: BudgetRefusal) -> Self {
        Self { refusal, reached: None }
    }
}

impl std::error::Error for AtLimit {}

impl fmt::Display for AtLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.refusal.fmt(f)
    }
}

/// A limit that a person may be asked about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Raisable {
    reached: Reached,
    /// By how much it is raised.
    by: u64,
    /// Whose limit it is, in words.
    whose: String,
    /// What is spent of it.
    spent: u64,
}

impl Raisable {
    /// The question, in words.
    pub(crate) fn question(&self) -> String {
        let Reached { kind, limit, .. } = self.reached;
        format!(
            "The {kind} budget of {} is used up ({} spent): go on with {} more, {} in all?",
            self.whose,
            kind.part_in_words(self.spent, limit),
            kind.amount_in_words(self.by),
            kind.amount_in_words(limit.saturating_add(self.by)),
        )
    }

    /// Tells it from other limits, and from the same limit once it is raised.
    pub(crate) fn key(&self) -> String {
        format!("{}-{}", self.reached.kind, self.reached.limit)
    }
}

/// By how much a limit is raised: by half of it, and by twice what the request lacks.
fn amount(limit: u64, needed: u64) -> u64 {
    (limit / 2).max(needed.saturating_sub(limit).saturating_mul(2))
}

impl MachineAccount {
    /// The refusal with what the ledger needs to raise the limit.
    pub(super) fn at_limit(&self, refused: ReserveRefused<AccountId>) -> AtLimit {
        let reached = match &refused {
            // Those that the settings and a person give in tokens and dollars.
            ReserveRefused::Over {
                scope,
                kind: kind @ (Kind::Tokens | Kind::Fresh | Kind::Usd),
                limit,
                ..
            } => self.pool(scope).map(|(pool, of_settings)| Reached {
                pool,
                kind: *kind,
                limit: *limit,
                of_settings,
            }),
            _ => None,
        };
        AtLimit { refusal: refused.in_names(), reached }
    }

    /// Whose limit it is, for the list, where the agent without a parent has a row.
    fn whose(&self, scope: &Scope<AccountId>) -> String {
        match scope {
            Scope::Agent if self.is_root() => "its budget".to_owned(),
            Scope::Agent => format!("the budget of {}", self.account.id),
            Scope::Tree(id) if self.root() == id => "its budget".to_owned(),
            Scope::Tree(id) => format!("the budget of {id}"),
            Scope::RepoDay => "the repo's budget of today".to_owned(),
            Scope::Day => "today's budget".to_owned(),
            Scope::Pool => "the budget of all agents".to_owned(),
        }
    }

    fn pool(&self, scope: &Scope<AccountId>) -> Option<(Pool, Limits)> {
        let (terms, today) = (self.ledger.terms(), caliban_contract::local_time::now().date());
        Some(match scope {
            Scope::Agent => (Pool::Agent(self.account.id.clone()), terms.per_agent),
            Scope::Tree(id) => (Pool::Tree(id.clone()), Limits::NONE),
            Scope::RepoDay => (Pool::RepoDay(self.account.repo.clone(), today), terms.per_repo_day),
            Scope::Day => (Pool::Day(today), terms.per_day),
            Scope::Pool => return None,
        })
    }
}

impl Purse {
    /// Takes in how the limits stand after a request was granted; what is to be told of them.
    pub(super) fn note_limits(&self, machine: &MachineAccount, granted: &Granted) -> Vec<String> {
        let in_words = |near: &Near| {
            let used = near.kind.part_in_words(near.used, near.limit);
            format!("the budget of {} is nearly used up: {used}", near.scope)
        };
        let told: Vec<String> = granted.near.iter().map(in_words).collect();
        let shown = granted
            .nearest
            .as_ref()
            .map(|near| NearLimit::new(machine.whose(&near.scope), near.kind, near.used, near.limit));
        let mut book = self.lock();
        match shown {
            Some(near) => book.near.insert(self.account.clone(), near),
            None => book.near.remove(&self.account),
        };
        book.notices.extend(told.iter().cloned());
        told
    }

    /// The limit of which the family has used most, when that is much.
    pub fn near_limit(&self) -> Option<NearLimit> {
        self.lock().near.values().max_by_key(|near| near.percent).cloned()
    }

    /// Notices of limits since this was last asked, of the whole family. Each limit is told once on this machine.
    pub fn take_notices(&self) -> Vec<String> {
        std::mem::take(&mut self.lock().notices)
    }

    /// What a person may be asked about this limit; none where the settings or the limit do not let them.
    pub(crate) fn raisable(&self, limit: &AtLimit) -> Option<Raisable> {
        let machine = self.machine.as_ref()?;
        if machine.ledger.terms().on_limit != OnLimit::Ask {
            return None;
        }
        let ReserveRefused::Over { scope, limit: most, spent, reserved, asked, .. } = &limit.refusal else {
            return None;
        };
        let needed = spent.saturating_add(*reserved).saturating_add(*asked);
        let (by, whose) = (amount(*most, needed), scope.to_string());
        Some(Raisable { reached: limit.reached.clone()?, by, whose, spent: *spent })
    }

    /// Whose turn it is to ask about the limit, of all who came to it.
    pub(crate) async fn take_question(&self, about: &Raisable, since_ms: u64) -> Result<AskTurn, StoreError> {
        let Some(machine) = &self.machine else { return Ok(AskTurn::Denied) };
        let (owner, boot) = (own(), caliban_process::boot_id().unwrap_or_default());
        let asker = LimitAsker { account: &machine.account.id, owner: &owner, since_ms };
        patiently!(
            machine,
            ledger,
            ledger.take_question(&about.reached.pool, asker, |owner| is_dead(owner, &boot))
        )
    }

    /// The question that this agent has put is closed.
    pub(crate) async fn close_question(&self, about: &Raisable, closed: QuestionEnd) {
        let Some(machine) = &self.machine else { return };
        let owner = own();
        let asker = LimitAsker { account: &machine.account.id, owner: &owner, since_ms: 0 };
        let done: Result<(), StoreError> =
            patiently!(machine, ledger, ledger.close_question(&about.reached.pool, asker, closed));
        if let Err(error) = done {
            tracing::warn!(%error, "others wait for this question until the process is gone");
        }
    }

    /// A person has said yes. Whether the limit is another one now.
    pub(crate) async fn raise(&self, about: &Raisable) -> Result<(), StoreError> {
        let Some(machine) = &self.machine else { return Ok(()) };
        let raised: Result<bool, StoreError> =
            patiently!(machine, ledger, ledger.raise(&about.reached, about.by));
        raised.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_raised_by_half_of_it_and_by_what_the_request_needs() {
        let raised = [(100, 110), (100, 400), (1, 2), (0, 7)].map(|(limit, needed)| amount(limit, needed));
        assert_eq!(raised, [50, 600, 2, 14]);
    }
}
