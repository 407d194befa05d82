//! How an agent is set up: what a person or a calling agent said, beside the settings.
//!
//! Command-line flags, a [`SpawnSpec`](crate::spec::SpawnSpec) and an `AgentTool` call all become this one value, and
//! composing an agent takes nothing else of them. Each field that is set is stronger than its setting.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::budget::Limits;
use crate::hook::CommandHook;
use crate::message::Effort;
use crate::mode::Mode;
use crate::priority::Priority;

/// How an agent is set up. A field that is absent leaves the setting as it is; lists add to the settings'.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct AgentSetup {
    /// The provider.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// The model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The model that answers when that one cannot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fallback_model: Option<String>,
    /// How hard the model thinks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effort: Option<Effort>,
    /// The script that answers instead of a model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub script: Option<PathBuf>,
    /// The kind of agent (a named definition), when it is not the general one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_type: Option<String>,
    /// The only tools that it has; all when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
    /// How many turns it has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_turns: Option<u64>,
    /// What it may spend by itself.
    pub budget: Limits,
    /// The account in the ledger that it spends from, beside its own: that of the agent that starts it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub account_above: Option<String>,
    /// Who comes first, in the queue and at a rate limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<Priority>,
    /// Whether it also works in quiet hours.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub ignores_quiet_hours: bool,
    /// How calls that no rule decides are treated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub permission_mode: Option<Mode>,
    /// Rules that allow.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allow: Vec<String>,
    /// Rules that deny.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub deny: Vec<String>,
    /// Directories that count as inside the project, absolute.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub add_dirs: Vec<PathBuf>,
    /// Whether the model never sees `AgentTool`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub no_sub_agent: bool,
    /// Text that is appended to the system prompt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system_prompt_append: Option<String>,
    /// The command hooks, instead of the settings'.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hooks: Option<Vec<CommandHook>>,
    /// The policy of the agent that started this one, as `caliban-permissions` writes it: no call may do more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inherited_policy: Option<Value>,
}

impl AgentSetup {
    /// Whether quiet hours hold for it.
    #[must_use]
    pub fn keeps_quiet_hours(&self) -> bool {
        !self.ignores_quiet_hours && self.priority != Some(Priority::High)
    }

    /// Makes it come no earlier than the agent that starts it, nor work when that one may not.
    pub fn stand_below(&mut self, parent: &Self) {
        let priority = Priority::below(self.priority, parent.priority.unwrap_or_default());
        self.priority = Some(priority).filter(|priority| *priority != Priority::default());
        self.ignores_quiet_hours &= !parent.keeps_quiet_hours();
        self.ignores_quiet_hours |= parent.ignores_quiet_hours;
    }

    /// What an agent that another one starts gets of its parent's setup: each field that it leaves open, and all rules
    /// and directories. Type, tools, hooks, prompt text and policy are decided at the call, not here.
    #[must_use]
    pub fn below(mut self, parent: &Self) -> Self {
        self.provider = self.provider.or_else(|| parent.provider.clone());
        self.model = self.model.or_else(|| parent.model.clone());
        self.fallback_model = self.fallback_model.or_else(|| parent.fallback_model.clone());
        self.effort = self.effort.or(parent.effort);
        self.script = self.script.or_else(|| parent.script.clone());
        self.max_turns = self.max_turns.or(parent.max_turns);
        self.budget.tokens = self.budget.tokens.or(parent.budget.tokens);
        self.budget.usd = self.budget.usd.or(parent.budget.usd);
        self.permission_mode = self.permission_mode.or(parent.permission_mode);
        self.allow.extend(parent.allow.iter().cloned());
        self.deny.extend(parent.deny.iter().cloned());
        self.add_dirs.extend(parent.add_dirs.iter().cloned());
        self.no_sub_agent |= parent.no_sub_agent;
        self.stand_below(parent);
        self
    }
}
