//! What conversations on disk have spent, by model, so that a resume counts all of it at the prices of those models.

use std::{collections::BTreeMap, path::Path};

use caliban_core::{
    price::{self, Billing},
    usage::Usage,
};

use crate::{
    budget::Purse,
    conversation::Conversation,
    transcript::{self, TranscriptError},
};

pub(crate) use caliban_contract::records::{BACKGROUND, SUB_AGENTS};

/// Tokens by the model that was asked.
pub(crate) type ByModel = BTreeMap<String, Usage>;

/// What helpers have spent in earlier processes.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct HelperSpending {
    pub(crate) by_model: ByModel,
    /// How long the family had worked at the latest of their records.
    pub(crate) worked_ms: u64,
}

impl HelperSpending {
    fn add(&mut self, other: Self) {
        for (model, usage) in other.by_model {
            *self.by_model.entry(model).or_default() += usage;
        }
        self.worked_ms = self.worked_ms.max(other.worked_ms);
    }

    /// Books it, each model at its own price.
    pub(crate) fn book(&self, purse: &Purse, billing: Billing) {
        book(&self.by_model, purse, billing);
    }
}

/// What a session has spent, as its records say. Every sum of a session comes from here: what lists show, its file, and what
/// a purse is told of earlier processes.
#[derive(Debug)]
pub struct SessionSpending {
    own: ByModel,
    sub_agents: HelperSpending,
    background: HelperSpending,
}

impl SessionSpending {
    /// Of the session in this directory, with this conversation.
    pub fn of(directory: &Path, conversation: &Conversation) -> Self {
        Self {
            own: conversation.spent(),
            sub_agents: below(directory, SUB_AGENTS),
            background: below(directory, BACKGROUND),
        }
    }

    /// All tokens, its sub-agents' and background agents' included.
    pub fn usage(&self) -> Usage {
        let all = [&self.own, &self.sub_agents.by_model, &self.background.by_model];
        all.into_iter().flat_map(ByModel::values).copied().sum()
    }

    /// Books all of it, each model at its own price; without what background agents spent where they have an account of
    /// their own.
    pub(crate) fn book(&self, purse: &Purse, billing: Billing, has_background: bool) {
        book(&self.own, purse, billing);
        self.sub_agents.book(purse, billing);
        if !has_background {
            self.background.book(purse, billing);
        }
    }

    /// How long its helpers had worked: one clock for the whole family, the latest time that anybody wrote down.
    pub(crate) fn worked_ms(&self, has_background: bool) -> u64 {
        let background = if has_background { 0 } else { self.background.worked_ms };
        self.sub_agents.worked_ms.max(background)
    }
}

/// Books tokens of an earlier process, each model at its own price.
fn book(by_model: &ByModel, purse: &Purse, billing: Billing) {
    for (model, usage) in by_model {
        purse.carry_over(*usage, price::of(model, billing).map(|price| price.cost(*usage)));
    }
}

/// What the helpers of one kind have spent, with their own helpers.
#[expect(clippy::disallowed_methods, reason = "in Caliban's own records")]
pub(crate) fn below(directory: &Path, kind: &str) -> HelperSpending {
    let mut spent = HelperSpending::default();
    let Ok(entries) = std::fs::read_dir(directory.join(kind)) else { return spent };
    for path in entries.flatten().map(|entry| entry.path()) {
        match in_directory(&path) {
            Ok(own) => spent.add(own),
            Err(error) => tracing::warn!(%error, "what a helper spent is not known"),
        }
        for kind in [SUB_AGENTS, BACKGROUND] {
            spent.add(below(&path, kind));
        }
    }
    spent
}

fn in_directory(directory: &Path) -> Result<HelperSpending, TranscriptError> {
    let records = transcript::read(directory)?;
    let conversation = Conversation::replay(records.iter().map(|record| &record.event));
    Ok(HelperSpending { by_model: conversation.spent(), worked_ms: transcript::worked_ms(&records) })
}
