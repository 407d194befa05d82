//! Spans to an OpenTelemetry collector (OTLP over HTTP, as JSON), by the standard variables. Best effort: a collector that is
//! away or slow costs an agent nothing, and spans that it does not take are dropped.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use caliban_agent::telemetry::{Observer, Observers, Span, Spans};
use caliban_http::{ClientOptions, HttpClient, Method};
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};

use crate::settings::Environment;

/// Where a collector listens unless a variable says otherwise.
const DEFAULT_ENDPOINT: &str = "http://localhost:4318";
/// Spans that wait to be sent; more are dropped.
const WAITING: usize = 4096;
/// Spans of one request.
const BATCH: usize = 512;
/// How long spans are collected before they are sent.
const COLLECT: Duration = Duration::from_secs(2);
/// How long a request may take unless a variable says otherwise.
const TIMEOUT: Duration = Duration::from_secs(10);
/// How long the end of the process waits for the last spans.
const LAST: Duration = Duration::from_secs(2);

/// Where spans go.
#[derive(Debug, Clone, PartialEq)]
struct CollectorTarget {
    url: String,
    headers: Vec<(String, String)>,
    /// What is said of this process, as OTLP attributes.
    resource: Vec<Value>,
    timeout: Duration,
}

enum ExporterJob {
    Span(Box<Span>),
    /// Send what is there, and say so.
    Flush(oneshot::Sender<()>),
}

/// The one of this process.
static EXPORTER: OnceLock<Option<mpsc::Sender<ExporterJob>>> = OnceLock::new();

/// What sees the records of all agents of this process; none when nobody wants spans. And what is wrong with the variables.
pub(crate) fn observers(environment: &Environment) -> (Option<Observers>, Option<String>) {
    let target = match target(environment) {
        Ok(target) => target,
        Err(problem) => return (None, Some(problem)),
    };
    let exporter = EXPORTER.get_or_init(|| {
        let (jobs, inbox) = mpsc::channel(WAITING);
        let http = ClientOptions { proxy: environment.proxy(), ..ClientOptions::default() };
        tokio::spawn(export(target?, HttpClient::new(http), inbox));
        Some(jobs)
    });
    let observers = exporter.clone().map(|jobs| -> Observers {
        Arc::new(move || -> Observer {
            let (jobs, mut fold) = (jobs.clone(), Spans::default());
            Box::new(move |record, is_new| {
                for span in fold.take(record) {
                    if is_new {
                        // Full: the collector is away. Spans are not worth memory without end.
                        let _dropped = jobs.try_send(ExporterJob::Span(Box::new(span)));
                    }
                }
            })
        })
    });
    (observers, None)
}

/// Sends what was not sent yet. Does not wait long.
pub(crate) async fn flush() {
    let Some(Some(jobs)) = EXPORTER.get() else { return };
    let (done, sent) = oneshot::channel();
    let _too_late = tokio::time::timeout(LAST, async {
        if jobs.send(ExporterJob::Flush(done)).await.is_ok() {
            let _ended = sent.await;
        }
    })
    .await;
}

/// Where the variables say that spans go; none when they say nothing.
fn target(environment: &Environment) -> Result<Option<CollectorTarget>, String> {
    let text = |name: &str| environment.raw(name).and_then(|value| value.to_str());
    let of_traces = |name: &str| {
        text(&format!("OTEL_EXPORTER_OTLP_TRACES_{name}"))
            .or_else(|| text(&format!("OTEL_EXPORTER_OTLP_{name}")))
    };
    let is_off = text("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true"));
    let exporter = text("OTEL_TRACES_EXPORTER");
    let base = text("OTEL_EXPORTER_OTLP_ENDPOINT")
        .or_else(|| exporter.filter(|name| *name == "otlp").map(|_| DEFAULT_ENDPOINT));
    let url = match (text("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"), base) {
        (Some(whole), _) => whole.to_owned(),
        (None, Some(base)) => format!("{}/v1/traces", base.trim_end_matches('/')),
        (None, None) => return Ok(None),
    };
    if is_off || exporter.is_some_and(|name| name != "otlp") {
        return Ok(None);
    }
    if of_traces("PROTOCOL") == Some("grpc") {
        return Err("no spans are sent: OTEL_EXPORTER_OTLP_PROTOCOL is grpc, and only HTTP is spoken here \
                    (http/json; the usual port is 4318)"
            .to_owned());
    }
    let timeout = of_traces("TIMEOUT").and_then(|ms| ms.parse().ok()).map_or(TIMEOUT, Duration::from_millis);
    let mut resource = pairs(text("OTEL_RESOURCE_ATTRIBUTES").unwrap_or_default());
    if let Some(name) = text("OTEL_SERVICE_NAME") {
        resource.retain(|(key, _)| key != "service.name");
        resource.push(("service.name".to_owned(), name.to_owned()));
    } else if !resource.iter().any(|(key, _)| key == "service.name") {
        resource.push(("service.name".to_owned(), "caliban".to_owned()));
    }
    resource.push(("service.version".to_owned(), env!("CARGO_PKG_VERSION").to_owned()));
    let resource = resource.iter().map(|(key, value)| attribute(key, &json!(value))).collect();
    let headers = pairs(of_traces("HEADERS").unwrap_or_default());
    Ok(Some(CollectorTarget { url, headers, resource, timeout }))
}

/// `a=b,c=d`, with percent signs for what is not plain.
fn pairs(text: &str) -> Vec<(String, String)> {
    let decode = |part: &str| {
        let mut bytes = Vec::new();
        let mut rest = part.trim().as_bytes();
        while let Some((&byte, more)) = rest.split_first() {
            let digits = more.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
            match digits.filter(|_| byte == b'%').and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
                Some(decoded) => {
                    bytes.push(decoded);
                    rest = more.get(2..).unwrap_or_default();
                }
                None => {
                    bytes.push(byte);
                    rest = more;
                }
            }
        }
        String::from_utf8_lossy(&bytes).into_owned()
    };
    text.split(',')
        .filter_map(|pair| pair.split_once('='))
        .map(|(key, value)| (decode(key), decode(value)))
        .collect()
}

/// Sends spans until nobody is left who could make any.
async fn export(target: CollectorTarget, client: HttpClient, mut inbox: mpsc::Receiver<ExporterJob>) {
    while let Some(first) = inbox.recv().await {
        let (mut spans, mut flushed) = (Vec::new(), None);
        let mut next = Some(first);
        let until = tokio::time::Instant::now() + COLLECT;
        while let Some(job) = next {
            match job {
                ExporterJob::Span(span) => spans.push(*span),
                ExporterJob::Flush(done) => flushed = Some(done),
            }
            let is_full = spans.len() >= BATCH || flushed.is_some();
            next = if is_full {
                None
            } else {
                tokio::time::timeout_at(until, inbox.recv()).await.ok().flatten()
            };
        }
        if !spans.is_empty() {
            send(&target, &client, &spans).await;
        }
        if let Some(done) = flushed {
            let _gone = done.send(());
        }
    }
}

async fn send(target: &CollectorTarget, client: &HttpClient, spans: &[Span]) {
    let body = document(&target.resource, spans).to_string();
    let mut headers = vec![("content-type", "application/json")];
    headers.extend(target.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())));
    let sent = client.send(Method::POST, &target.url, &headers, body.into());
    match tokio::time::timeout(target.timeout, sent).await {
        Ok(Ok(response)) if (200..300).contains(&response.status) => {}
        Ok(Ok(response)) => tracing::debug!(status = response.status, "the collector refuses spans"),
        Ok(Err(error)) => tracing::debug!(%error, "spans are not sent"),
        Err(_) => tracing::debug!("the collector is too slow"),
    }
}

fn document(resource: &[Value], spans: &[Span]) -> Value {
    let spans: Vec<Value> = spans.iter().map(shown).collect();
    json!({"resourceSpans": [{
        "resource": {"attributes": resource},
        "scopeSpans": [{"scope": {"name": "caliban", "version": env!("CARGO_PKG_VERSION")}, "spans": spans}],
    }]})
}

fn shown(span: &Span) -> Value {
    // The kinds and codes of the protocol: 1 internal, 3 client; 2 error.
    let mut shown = json!({
        "traceId": span.trace,
        "spanId": span.id,
        "name": span.name,
        "kind": if span.is_client { 3 } else { 1 },
        "startTimeUnixNano": span.start.as_nanosecond().to_string(),
        "endTimeUnixNano": span.end.as_nanosecond().to_string(),
        "attributes": span.attributes.iter().map(|(key, value)| attribute(key, value)).collect::<Vec<_>>(),
    });
    if let Some(parent) = &span.parent {
        shown["parentSpanId"] = json!(parent);
    }
    if let Some(error) = &span.error {
        shown["status"] = json!({"code": 2, "message": error});
    }
    shown
}

fn attribute(key: &str, value: &Value) -> Value {
    json!({"key": key, "value": any(value)})
}

fn any(value: &Value) -> Value {
    match value {
        Value::Bool(value) => json!({"boolValue": value}),
        // Numbers of 64 bits are texts in OTLP's JSON.
        Value::Number(number) if number.is_f64() => json!({"doubleValue": number}),
        Value::Number(number) => json!({"intValue": number.to_string()}),
        Value::String(text) => json!({"stringValue": text}),
        Value::Array(items) => json!({"arrayValue": {"values": items.iter().map(any).collect::<Vec<_>>()}}),
        other => json!({"stringValue": other.to_string()}),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(vars: &[(&str, &str)]) -> Environment {
        vars.iter().copied().collect()
    }

    fn url(vars: &[(&str, &str)]) -> Option<String> {
        target(&environment(vars)).unwrap().map(|target| target.url)
    }

    #[test]
    fn the_standard_variables_say_where_spans_go() {
        assert_eq!(url(&[]), None);
        assert_eq!(
            url(&[("OTEL_TRACES_EXPORTER", "otlp")]).as_deref(),
            Some("http://localhost:4318/v1/traces")
        );
        let base = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:1/x/");
        assert_eq!(url(&[base]).as_deref(), Some("http://c:1/x/v1/traces"));
        let whole = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://c:1/y");
        assert_eq!(url(&[base, whole]).as_deref(), Some("http://c:1/y"));
        assert_eq!(url(&[base, ("OTEL_SDK_DISABLED", "TRUE")]), None);
        assert_eq!(url(&[base, ("OTEL_TRACES_EXPORTER", "none")]), None);
        let problem = target(&environment(&[base, ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")])).unwrap_err();
        assert!(problem.contains("4318"), "{problem}");
        let named = environment(&[
            base,
            ("OTEL_EXPORTER_OTLP_HEADERS", "api-key=a%3Db%, x = y"),
            ("OTEL_RESOURCE_ATTRIBUTES", "service.name=other,team=core"),
            ("OTEL_SERVICE_NAME", "mine"),
        ]);
        let target = target(&named).unwrap().unwrap();
        assert_eq!(
            target.headers,
            [("api-key".to_owned(), "a=b%".to_owned()), ("x".to_owned(), "y".to_owned())]
        );
        let resource = json!(target.resource).to_string();
        assert!(
            resource.contains("\"mine\"") && resource.contains("\"core\"") && !resource.contains("\"other\"")
        );
    }
}
