//! The MCP servers that are left after merging: `${VAR}` put in, half-defined ones refused.

use std::collections::BTreeMap;

use super::{
    Settings,
    environment::Environment,
    error::SettingsError,
    layer::Source,
    values::{BaseUrl, Secret},
};

/// Puts variables into the servers' texts and checks that each is one kind of server. A server whose
/// variable is not set is left out, with a note: one person's missing token must not stop a team's agent.
pub(crate) fn finish(
    settings: &mut Settings,
    environment: &Environment,
    source_of: impl Fn(&str) -> Source,
) -> Result<Vec<String>, SettingsError> {
    let mut notes = Vec::new();
    let mut kept = BTreeMap::new();
    for (name, mut server) in std::mem::take(&mut settings.mcp.servers) {
        if server.command.is_some() == server.url.is_some() {
            let found = if server.command.is_some() { "both" } else { "neither" };
            let message =
                format!("MCP server `{name}`: found {found} of `command` and `url`, expected one of them");
            return Err(SettingsError::new(source_of(&name).into(), message));
        }
        let texts = server.command.iter_mut().chain(&mut server.url).chain(&mut server.args);
        let mut missing = None;
        for text in texts {
            match expand(text, environment) {
                Ok(expanded) => *text = expanded,
                Err(variable) => missing = Some(variable),
            }
        }
        for secret in server.env.values_mut().chain(server.headers.values_mut()) {
            match expand(secret.reveal(), environment) {
                Ok(expanded) => *secret = Secret::new(expanded),
                Err(variable) => missing = Some(variable),
            }
        }
        if let (None, Some(url)) = (&missing, &server.url) {
            BaseUrl::parse_any(url).map_err(|message| {
                SettingsError::new(source_of(&name).into(), format!("MCP server `{name}`: {message}"))
            })?;
        }
        match missing {
            Some(variable) if server.enabled.0 => notes.push(format!(
                "the MCP server `{name}` is not used: the variable {variable} that it needs is not set"
            )),
            Some(_) => {}
            None => {
                kept.insert(name, server);
            }
        }
    }
    settings.mcp.servers = kept;
    Ok(notes)
}

/// Puts `${NAME}` and `${NAME:-otherwise}` in. The error is the name of a variable that is not set.
fn expand(text: &str, environment: &Environment) -> Result<String, String> {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        let Some((inside, tail)) = after.split_once('}') else { break };
        let (name, otherwise) = match inside.split_once(":-") {
            Some((name, otherwise)) => (name, Some(otherwise)),
            None => (inside, None),
        };
        out.push_str(before);
        let value = environment.raw(name).and_then(|value| value.to_str()).or(otherwise);
        out.push_str(value.ok_or_else(|| name.to_owned())?);
        rest = tail;
    }
    out.push_str(rest);
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_put_in() {
        let environment: Environment = [("A", "1")].into_iter().collect();
        let expand = |text| expand(text, &environment);
        assert_eq!(expand("x${A}y${B:-2}${A"), Ok("x1y2${A".to_owned()));
        assert_eq!(expand("${B}"), Err("B".to_owned()));
        assert_eq!(expand("$A"), Ok("$A".to_owned()));
    }
}
