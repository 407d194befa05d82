//! `caliban agents types`: the kinds of sub-agents that a call can name.

use caliban_core::inert;

use crate::{
    Here,
    report::{self, Result},
    settings::Layer,
};

pub(crate) fn types(json: bool, Here { environment, cwd, out }: Here<'_>) -> Result<()> {
    let loaded = crate::settings::load(environment, cwd, Layer::default())?;
    let (definitions, problems) = caliban_settings::agent_types::known(&loaded);
    for note in loaded.notes.iter().chain(&problems) {
        report::note(note);
    }
    if json {
        return crate::fleet::json_line(&definitions, out);
    }
    if definitions.is_empty() {
        writeln!(
            out,
            "No agent types. Define one in .caliban/agents/NAME.md or {}/agents/NAME.md.",
            loaded.paths.config.display()
        )?;
        return Ok(());
    }
    for definition in definitions {
        let model = definition.model.as_deref().unwrap_or("the caller's model");
        let tools = definition.tools.map_or_else(|| "all tools".to_owned(), |tools| tools.join(", "));
        writeln!(
            out,
            "{}  ({}; {})",
            inert::line(&definition.name),
            inert::line(model),
            inert::line(&tools)
        )?;
        if !definition.description.is_empty() {
            writeln!(out, "    {}", inert::line(&definition.description))?;
        }
        writeln!(out, "    {}", inert::line(&definition.path.display().to_string()))?;
    }
    Ok(())
}
