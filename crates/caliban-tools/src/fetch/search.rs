//! WebSearch: a query to the search service that the user named, as an address with `{query}` in it.

use std::sync::Arc;

use caliban_core::{access::Access, defaults::SEARCH_QUERY, message::ToolSpec};
use caliban_http::{AddressPolicy, HttpClient};
use serde::Deserialize;
use serde_json::{Value, json};
use url::Url;

use super::{decoded, get, host_of, in_time, told};
use crate::{BuiltinTool, CallContext, ToolOutput, Workspace, blocking, input, workspace::SearchService};

/// Results that are shown.
const RESULTS: usize = 20;
/// Characters of a result's text.
const SNIPPET_CHARS: usize = 500;

pub(crate) struct WebSearch {
    workspace: Arc<Workspace>,
    service: SearchService,
    /// The user named the address: it may be on this machine.
    http: HttpClient,
}

#[derive(Deserialize)]
struct WebSearchInput {
    query: String,
}

impl WebSearch {
    pub(crate) fn new(workspace: &Arc<Workspace>, service: &SearchService) -> Self {
        let options = caliban_http::ClientOptions {
            address_policy: AddressPolicy::Any,
            ..workspace.options.http.clone()
        };
        let http = HttpClient::new(options);
        Self { workspace: workspace.clone(), service: service.clone(), http }
    }

    fn url(&self, input: &Value) -> Result<Url, String> {
        let WebSearchInput { query } = input::parse("WebSearch", input)?;
        if query.trim().is_empty() {
            return Err("WebSearch: the query is empty".into());
        }
        let encoded: String = url::form_urlencoded::byte_serialize(query.trim().as_bytes()).collect();
        let address = self.service.url.replace(SEARCH_QUERY, &encoded);
        Url::parse(&address).map_err(|error| format!("WebSearch: the configured address is no URL ({error})"))
    }
}

impl BuiltinTool for WebSearch {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "WebSearch".into(),
            description: "Search the web; WebFetch then reads a result.".into(),
            input_schema: json!({"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}),
        }
    }

    fn access(&self, input: &Value) -> Result<Vec<Access>, String> {
        let url = self.url(input)?;
        let host = host_of(&url);
        Ok(vec![Access::Fetch { url: url.into(), host }])
    }

    async fn run(&self, input: &Value, call: &CallContext<'_>) -> Result<ToolOutput, String> {
        let url = self.url(input)?;
        let host = host_of(&url);
        let headers: Vec<(&str, &str)> =
            self.service.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let fetched = in_time(&self.workspace, &host, call, get(&self.http, url, &headers)).await?;
        let body = decoded(&fetched.body, fetched.charset.as_deref());
        if let Some(text) = serde_json::from_str(&body).ok().and_then(|json| results(&json)) {
            let summary = format!("{host}: {} results", text.matches("\n\n").count() + 1);
            return Ok(ToolOutput::text(text, summary));
        }
        let workspace = self.workspace.clone();
        Ok(blocking::run(call.cancel, move |_| told(&workspace, &host, &fetched)).await)
    }
}

/// The results in an answer of any shape: the first list of things with a title and an address.
fn results(json: &Value) -> Option<String> {
    let text = |thing: &Value, names: &[&str]| {
        names.iter().find_map(|name| thing.get(name)?.as_str()).map(str::to_owned)
    };
    let result = |thing: &Value| {
        let (title, url) = (text(thing, &["title", "name"])?, text(thing, &["url", "link", "href"])?);
        let about = text(thing, &["content", "description", "snippet", "text", "body"]).unwrap_or_default();
        let about: String = about.split_whitespace().collect::<Vec<_>>().join(" ");
        let about: String = about.chars().take(SNIPPET_CHARS).collect();
        Some(format!("{title}\n{url}\n{about}").trim_end().to_owned())
    };
    match json {
        Value::Array(things) => {
            let found: Vec<String> = things.iter().filter_map(result).take(RESULTS).collect();
            if found.is_empty() { things.iter().find_map(results) } else { Some(found.join("\n\n")) }
        }
        Value::Object(fields) => fields.values().find_map(results),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_found_in_answers_of_any_shape() {
        let searx = json!({"query": "x", "results": [{"title": "A", "url": "https://a", "content": "about  a"}, {"x": 1}]});
        assert_eq!(results(&searx).unwrap(), "A\nhttps://a\nabout a");
        let brave = json!({"web": {"results": [{"title": "A", "url": "https://a"}, {"title": "B", "url": "https://b", "description": "b"}]}});
        assert_eq!(results(&brave).unwrap(), "A\nhttps://a\n\nB\nhttps://b\nb");
        assert_eq!(results(&json!({"results": []})), None);
    }
}
