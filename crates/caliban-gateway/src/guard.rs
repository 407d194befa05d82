//! What every request must pass before anything is done for it: the host, no page behind it, a token.

use http::HeaderMap;
use http::header::{AUTHORIZATION, HOST, ORIGIN};

use crate::refusal::GatewayRefusal;
use crate::route::Protocol;
use crate::tokens::{Keys, Token};

/// The names by which a program on this machine reaches us.
const NAMES: [&str; 3] = ["127.0.0.1", "localhost", "[::1]"];

/// Whether a request is meant for us: a page that was led here by its own name server is not (DNS rebinding), nor is any page.
pub(crate) fn check_place(headers: &HeaderMap, port: u16) -> Result<(), GatewayRefusal> {
    let host = headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let is_ours = host.rsplit_once(':').is_some_and(|(name, at)| {
        NAMES.iter().any(|ours| name.eq_ignore_ascii_case(ours)) && at.parse() == Ok(port)
    });
    if !is_ours {
        return Err(GatewayRefusal::Forbidden(
            "the gateway answers only at its own address on this machine".to_owned(),
        ));
    }
    if headers.contains_key(ORIGIN) || headers.contains_key("sec-fetch-site") {
        return Err(GatewayRefusal::Forbidden(
            "the gateway is for programs, not for pages of a browser".to_owned(),
        ));
    }
    Ok(())
}

/// Whose request it is: the token is where the client has its key.
pub(crate) fn token(
    head: &http::request::Parts,
    protocol: Protocol,
    keys: &Keys,
) -> Result<Token, GatewayRefusal> {
    let headers = &head.headers;
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let bearer = text(AUTHORIZATION.as_str()).and_then(|value| {
        let (scheme, token) = value.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
    });
    let in_query = head.uri.query().filter(|_| protocol == Protocol::Gemini).and_then(query_key);
    [text("x-api-key"), text("x-goog-api-key"), bearer, in_query]
        .into_iter()
        .flatten()
        .find_map(|text| keys.find(text))
        .ok_or(GatewayRefusal::NoToken)
}

/// The key in a query, where clients of Gemini's may have it.
fn query_key(query: &str) -> Option<&str> {
    query.split('&').find_map(|pair| pair.strip_prefix("key="))
}

/// A query without a key: that of the client is its token here.
pub(crate) fn without_key(query: &str) -> String {
    query.split('&').filter(|pair| !pair.starts_with("key=")).collect::<Vec<_>>().join("&")
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn a13_only_a_program_that_means_this_address_is_heard() {
        let with = |host: &'static str, more: Option<&'static str>| {
            let mut headers = HeaderMap::new();
            headers.insert(HOST, HeaderValue::from_static(host));
            if let Some(name) = more {
                headers.insert(name, HeaderValue::from_static("http://127.0.0.1:7"));
            }
            check_place(&headers, 7).is_ok()
        };
        assert!(with("127.0.0.1:7", None) && with("LocalHost:7", None) && with("[::1]:7", None));
        for host in ["127.0.0.1", "127.0.0.1:8", "evil.example:7", "127.0.0.1.evil.example:7", "", "[::1]"] {
            assert!(!with(host, None), "{host}");
        }
        assert!(!with("127.0.0.1:7", Some("origin")) && !with("127.0.0.1:7", Some("sec-fetch-site")));
        assert!(check_place(&HeaderMap::new(), 7).is_err());
    }
}
