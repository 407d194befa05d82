//! Who asks something of a repo's fleet: a shell, or a page for a person.

use std::path::Path;

use caliban_contract::{DaemonOptions, Places};
use caliban_settings::{
    Environment, Layer, Loaded, Settings, SettingsError,
    tool_environment::{Breadth, tool_environment},
};

use crate::{
    StartOptions,
    caller_environment::{self, CallerEnvironment},
    git_programs::MayRun,
    protocol::AgentRow,
};

/// Who asks, and where they stand. Everything that a verb knows of its surroundings is in here.
#[derive(Debug, Clone, Copy)]
pub struct FleetCaller<'a> {
    /// The environment that agents get of the caller.
    pub environment: &'a Environment,
    /// Where the caller stands: whose settings and trust count.
    pub cwd: &'a Path,
    /// The fleet.
    pub places: &'a Places,
    /// `caliban`, which becomes the worker.
    pub program: &'a Path,
    /// Who is asked about programs that the repo makes git run.
    pub may_run: MayRun,
}

impl FleetCaller<'_> {
    /// The settings of the place, with the caller's flags.
    pub fn settings(&self, flags: Layer) -> Result<Loaded, SettingsError> {
        caliban_settings::load(self.environment, self.cwd, flags)
    }

    /// How a daemon is started when none runs.
    #[must_use]
    pub fn start_options(&self, options: DaemonOptions) -> StartOptions {
        StartOptions {
            programs: StartOptions::programs(self.program, self.environment.raw("PATH")),
            environment: tool_environment(self.environment, &Settings::default(), Breadth::Listed)
                .into_iter()
                .collect(),
            options,
        }
    }

    /// What an agent that is started again gets of its caller, whose settings these are; the secrets of its task stay those
    /// of the first one.
    pub fn again(&self, row: &AgentRow) -> Result<(CallerEnvironment, Loaded), SettingsError> {
        let loaded = self.settings(Layer::default())?;
        let mut caller = caller_environment::caller(self.environment, &loaded);
        caller.keep_task(&row.socket);
        Ok((caller, loaded))
    }
}
