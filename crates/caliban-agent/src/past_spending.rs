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

/// Books tokens of an earlier process, each model at its own price.
pub(crate) fn book(by_model: &ByModel, purse: &Purse, billing: Billing) {
    for (model, usage) in by_model {
        purse.carry_over(*usage, price::of(model, billing).map(|price| price.cost(*usage)));
    }
}

/// The tokens that all helpers of the session in this directory have used.
pub fn usage_below(directory: &Path) -> Usage {
    let mut spent = below(directory, SUB_AGENTS);
    spent.add(below(directory, BACKGROUND));
    spent.by_model.into_values().sum()
}

/// What the helpers of one kind have spent, with their own helpers.
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
