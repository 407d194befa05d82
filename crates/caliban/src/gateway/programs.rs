//! How programs are told where the gateway is: most read the usual variables, some need more.

use std::{ffi::OsString, net::SocketAddr, path::Path};

/// What a program gets, beside its own arguments and the environment that it would have.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Lead {
    /// Arguments before its own.
    pub(super) arguments: Vec<OsString>,
    /// Variables that are set.
    pub(super) set: Vec<(&'static str, String)>,
    /// Variables that would lead it past the gateway.
    pub(super) unset: Vec<&'static str>,
}

impl Lead {
    /// What any program gets.
    pub(super) fn usual(address: SocketAddr, token: &str) -> Self {
        let set = vec![
            ("ANTHROPIC_BASE_URL", format!("http://{address}")),
            ("ANTHROPIC_API_KEY", token.to_owned()),
            ("OPENAI_BASE_URL", format!("http://{address}/v1")),
            ("OPENAI_API_KEY", token.to_owned()),
            ("GOOGLE_GEMINI_BASE_URL", format!("http://{address}")),
            ("GEMINI_API_KEY", token.to_owned()),
        ];
        Self { arguments: Vec::new(), set, unset: vec!["ANTHROPIC_AUTH_TOKEN", "GOOGLE_API_KEY"] }
    }

    /// What this program gets.
    pub(super) fn of(program: &OsString, address: SocketAddr, token: &str) -> Self {
        let mut lead = Self::usual(address, token);
        // A program that runs behind the gateway has a token, and no key.
        lead.unset.push("OPENROUTER_API_KEY");
        match name_of(program).as_str() {
            // It asks a person about every new key in ANTHROPIC_API_KEY, but not about this one.
            "claude" => {
                lead.set.retain(|(name, _)| *name != "ANTHROPIC_API_KEY");
                lead.set.push(("ANTHROPIC_AUTH_TOKEN", token.to_owned()));
                lead.unset.retain(|name| *name != "ANTHROPIC_AUTH_TOKEN");
                lead.unset.push("ANTHROPIC_API_KEY");
            }
            // It does not read OPENAI_BASE_URL, and speaks WebSocket to its own provider.
            "codex" | "codex-acp" => {
                let provider = format!(
                    "model_providers.caliban={{name=\"caliban\",base_url=\"http://{address}/v1\",\
                     wire_api=\"responses\",env_key=\"OPENAI_API_KEY\"}}"
                );
                let arguments = ["-c", "model_provider=\"caliban\"", "-c", &provider];
                lead.arguments = arguments.into_iter().map(OsString::from).collect();
            }
            _ => {}
        }
        lead
    }
}

/// What people call a program.
pub(super) fn name_of(program: &OsString) -> String {
    Path::new(program).file_name().unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g11_codex_is_led_by_its_arguments_also_as_an_acp_agent() {
        let address: SocketAddr = ([127, 0, 0, 1], 7).into();
        for program in ["codex", "/opt/bin/codex-acp"] {
            let lead = Lead::of(&program.into(), address, "t");
            let arguments: Vec<_> = lead.arguments.iter().map(|it| it.to_string_lossy()).collect();
            assert!(
                arguments.concat().contains("base_url=\"http://127.0.0.1:7/v1\""),
                "{program}: {arguments:?}"
            );
        }
    }
}
