//! JSON-RPC 2.0 as it stands on one line: taking a line apart and putting one together.
//!
//! Pure. Parameters and results stay raw text until somebody knows their type, so deep nesting costs nothing
//! here and is refused (128 levels) where they are read.

use agent_client_protocol_schema::v1::{Error, RequestId};
use serde::{Deserialize, Deserializer, Serialize, de::DeserializeOwned};
use serde_json::value::RawValue;

/// What a line holds.
#[derive(Debug)]
pub(crate) enum WireLine {
    Request { id: RequestId, method: String, params: Params },
    Notification { method: String, params: Params },
    Response { id: RequestId, result: Result<Box<RawValue>, Error> },
}

/// Why a line is no message.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Malformed {
    /// Not JSON at all.
    NotJson,
    /// JSON, but no message.
    NotRpc {
        /// Whom to answer.
        id: RequestId,
        /// What is wrong.
        why: &'static str,
    },
}

/// The parameters of a request or a notification.
#[derive(Debug, Clone, Default)]
pub struct Params(Option<Box<RawValue>>);

impl Params {
    /// Reads them as what they should be.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, Error> {
        let text = self.0.as_deref().map_or("null", RawValue::get);
        serde_json::from_str(text).map_err(|error| Error::invalid_params().data(error.to_string()))
    }

    /// The text as it came.
    pub fn raw(&self) -> &str {
        self.0.as_deref().map_or("null", RawValue::get)
    }
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(default)]
    jsonrpc: Option<String>,
    #[serde(default, deserialize_with = "present")]
    id: Option<RequestId>,
    #[serde(default)]
    method: Option<String>,
    #[serde(default, borrow)]
    params: Option<&'a RawValue>,
    #[serde(default, borrow, deserialize_with = "present")]
    result: Option<&'a RawValue>,
    #[serde(default)]
    error: Option<Error>,
}

/// `"id": null` is an id and `"result": null` a result; an absent one is none.
fn present<'de, T: Deserialize<'de>, D: Deserializer<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

/// Takes a line apart.
pub(crate) fn parse(line: &[u8]) -> Result<WireLine, Malformed> {
    let start = line.trim_ascii_start().first();
    // A struct would be read from an array too.
    let envelope =
        (start == Some(&b'{')).then(|| serde_json::from_slice::<Envelope<'_>>(line).ok()).flatten();
    let Some(envelope) = envelope else {
        let why = if start == Some(&b'[') { "batches are not supported" } else { "not a JSON-RPC message" };
        return Err(match serde_json::from_slice::<serde::de::IgnoredAny>(line) {
            Ok(_) => Malformed::NotRpc { id: RequestId::Null, why },
            Err(_) => Malformed::NotJson,
        });
    };
    let not_rpc = |why| Malformed::NotRpc { id: envelope.id.clone().unwrap_or(RequestId::Null), why };
    if envelope.jsonrpc.as_deref() != Some("2.0") {
        return Err(not_rpc("jsonrpc must be \"2.0\""));
    }
    match (envelope.method, envelope.id.clone()) {
        (Some(method), id) => {
            let params = Params(envelope.params.map(ToOwned::to_owned));
            Ok(match id {
                Some(id) => WireLine::Request { id, method, params },
                None => WireLine::Notification { method, params },
            })
        }
        (None, Some(id)) => match (envelope.result, envelope.error) {
            (Some(result), None) => Ok(WireLine::Response { id, result: Ok(result.to_owned()) }),
            (None, Some(error)) => Ok(WireLine::Response { id, result: Err(error) }),
            _ => Err(not_rpc("an answer has either a result or an error")),
        },
        (None, None) => Err(not_rpc("no method")),
    }
}

#[derive(Serialize)]
struct Out<'a, T: Serialize> {
    jsonrpc: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a RequestId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    method: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    params: Option<&'a T>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<&'a T>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a Error>,
}

impl<T: Serialize> Out<'_, T> {
    const EMPTY: Self =
        Self { jsonrpc: "2.0", id: None, method: None, params: None, result: None, error: None };

    fn line(&self) -> serde_json::Result<Vec<u8>> {
        let mut line = serde_json::to_vec(self)?;
        line.push(b'\n');
        Ok(line)
    }
}

/// A request, or a notification when there is no id.
pub(crate) fn call<T: Serialize>(
    id: Option<&RequestId>,
    method: &str,
    params: &T,
) -> serde_json::Result<Vec<u8>> {
    Out { id, method: Some(method), params: Some(params), ..Out::EMPTY }.line()
}

/// An answer.
pub(crate) fn answer<T: Serialize>(
    id: &RequestId,
    result: Result<&T, &Error>,
) -> serde_json::Result<Vec<u8>> {
    let out = match result {
        Ok(result) => Out { id: Some(id), result: Some(result), ..Out::EMPTY },
        Err(error) => Out { id: Some(id), error: Some(error), ..Out::EMPTY },
    };
    out.line()
}

/// An error answer; never fails to be written.
pub(crate) fn refusal(id: &RequestId, error: &Error) -> Vec<u8> {
    answer::<()>(id, Err(error)).unwrap_or_else(|_| {
        b"{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":-32603,\"message\":\"Internal error\"}}\n"
            .to_vec()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(line: &str) -> String {
        match parse(line.as_bytes()) {
            Ok(WireLine::Request { id, method, params }) => format!("request {id} {method} {}", params.raw()),
            Ok(WireLine::Notification { method, params }) => {
                format!("notification {method} {}", params.raw())
            }
            Ok(WireLine::Response { id, result: Ok(result) }) => format!("result {id} {}", result.get()),
            Ok(WireLine::Response { id, result: Err(error) }) => {
                format!("error {id} {}", i32::from(error.code))
            }
            Err(malformed) => format!("{malformed:?}"),
        }
    }

    #[test]
    fn lines_are_told_apart() {
        let lines = [
            r#"{"jsonrpc":"2.0","id":1,"method":"a","params":{"x":1}}"#,
            r#"{"jsonrpc":"2.0","id":null,"method":"a"}"#,
            r#"{"jsonrpc":"2.0","method":"a","more":[1]}"#,
            r#"{"jsonrpc":"2.0","id":"q","result":null}"#,
            r#"{"jsonrpc":"2.0","id":2,"error":{"code":-32601,"message":"m"}}"#,
        ];
        let shapes: Vec<String> = lines.into_iter().map(shape).collect();
        assert_eq!(
            shapes,
            [
                "request 1 a {\"x\":1}",
                "request null a null",
                "notification a null",
                "result q null",
                "error 2 -32601"
            ]
        );
    }

    #[test]
    fn what_is_no_message_says_why() {
        let not_rpc = |id, why| Err(Malformed::NotRpc { id, why });
        let cases = [
            ("{\"jsonrpc\":", Err(Malformed::NotJson)),
            ("\u{fffd}", Err(Malformed::NotJson)),
            ("[]", not_rpc(RequestId::Null, "batches are not supported")),
            ("7", not_rpc(RequestId::Null, "not a JSON-RPC message")),
            (r#"{"id":3,"method":"a"}"#, not_rpc(RequestId::Number(3), "jsonrpc must be \"2.0\"")),
            (r#"{"jsonrpc":"2.0"}"#, not_rpc(RequestId::Null, "no method")),
            (
                r#"{"jsonrpc":"2.0","id":3}"#,
                not_rpc(RequestId::Number(3), "an answer has either a result or an error"),
            ),
        ];
        for (line, expected) in cases {
            assert_eq!(parse(line.as_bytes()).map(|_| ()), expected, "{line}");
        }
    }

    #[test]
    fn a14_deep_json_is_refused_without_deep_recursion() {
        let deep = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"a","params":{}{}}}"#,
            "[".repeat(1_000_000),
            "]".repeat(1_000_000)
        );
        let Ok(WireLine::Request { params, .. }) = parse(deep.as_bytes()) else { panic!("a request") };
        let error = params.parse::<serde_json::Value>().unwrap_err();
        assert_eq!(i32::from(error.code), -32602);
    }
}
