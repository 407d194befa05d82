//! Which headers go through.

use caliban_providers::relay::KEY_HEADERS;
use http::HeaderMap;
use http::header::CONNECTION;

/// Headers of one connection, not of a message (RFC 9110).
const HOP_BY_HOP: &str =
    "connection keep-alive proxy-authenticate proxy-connection te trailer transfer-encoding upgrade";
/// Headers of a request that are made anew: what is asked for, how long it is, and in which form the answer may come. Usage is
/// read from the answer, so it must not be compressed.
const REPLACED: [&str; 5] = ["host", "content-length", "accept-encoding", "expect", "cookie"];

/// The headers of a request that go to the provider. One that is no text does not.
pub(crate) fn of_request(headers: &HeaderMap) -> Vec<(&str, &str)> {
    let named = named(headers);
    let stays = |name: &str| {
        REPLACED.contains(&name) || KEY_HEADERS.contains(&name) || named.iter().any(|known| known == name)
    };
    headers
        .iter()
        .map(|(name, value)| (name.as_str(), value))
        .filter(|(name, _)| !stays(name))
        .filter_map(|(name, value)| Some((name, value.to_str().ok()?)))
        .collect()
}

/// The headers of an answer that go to the client.
pub(crate) fn of_answer(headers: &HeaderMap) -> HeaderMap {
    let named = named(headers);
    let mut all = HeaderMap::with_capacity(headers.len());
    for (name, value) in headers {
        if !named.iter().any(|known| known == name.as_str()) {
            all.append(name, value.clone());
        }
    }
    all
}

/// What is of the connection, always or because `Connection` says so.
fn named(headers: &HeaderMap) -> Vec<String> {
    let lists = headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
    let said = lists.flat_map(|list| list.split(',').map(|name| name.trim().to_ascii_lowercase()));
    said.chain(HOP_BY_HOP.split(' ').map(str::to_owned)).collect()
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;

    fn map(all: &[(&'static str, &'static str)]) -> HeaderMap {
        let pairs =
            all.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        pairs.collect()
    }

    #[test]
    fn keys_and_what_is_of_the_connection_stay_behind() {
        let request = map(&[
            ("host", "127.0.0.1:1"),
            ("authorization", "Bearer mine"),
            ("x-api-key", "mine"),
            ("proxy-authorization", "Basic mine"),
            ("cookie", "mine"),
            ("accept-encoding", "gzip"),
            ("connection", "keep-alive, X-Private"),
            ("x-private", "1"),
            ("anthropic-beta", "a,b"),
            ("user-agent", "claude"),
        ]);
        assert_eq!(of_request(&request), [("anthropic-beta", "a,b"), ("user-agent", "claude")]);
        let answer = map(&[("content-type", "text/event-stream"), ("transfer-encoding", "chunked")]);
        assert_eq!(of_answer(&answer), map(&[("content-type", "text/event-stream")]));
    }
}
