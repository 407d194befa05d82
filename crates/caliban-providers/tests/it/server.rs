//! A server that gives the answers it was given, in order (the last one again and again), and keeps
//! what it was asked.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use caliban_core::message::{Effort, Message, ToolSpec};
use caliban_providers::{
    Config, Delta, ModelReply, ModelRequest, ProviderError, ProviderKind, RetryPolicy, build,
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::Notify,
    task::JoinSet,
};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

/// One answer.
#[derive(Debug, Clone)]
pub(crate) enum Answer {
    /// 200 and these events, ended in order.
    Stream(String),
    /// The same, but the connection breaks at the end.
    Broken(String),
    /// The same, but then nothing more comes and the connection stays.
    Stall(String),
    /// The same, and then the other text again and again, with a pause between, until the client is gone.
    Endless(String, String, Duration),
    /// A status, header lines and a body.
    Status(u16, &'static str, String),
    /// No answer at all.
    Close,
}

/// What was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) head: String,
    pub(crate) body: String,
}

pub(crate) struct Server {
    pub(crate) url: String,
    asked: Arc<Mutex<Vec<Asked>>>,
    pub(crate) gone: Arc<Notify>,
    _task: AbortOnDropHandle<()>,
}

impl Server {
    pub(crate) async fn start(answers: Vec<Answer>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::new(Mutex::new(Vec::new()));
        let gone = Arc::new(Notify::new());
        let (kept, left) = (Arc::clone(&asked), Arc::clone(&gone));
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(serve(stream, answers.clone(), Arc::clone(&kept), Arc::clone(&left)));
            }
        });
        Self { url, asked, gone, _task: AbortOnDropHandle::new(task) }
    }

    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }

    /// The bodies of the POSTs, as sent.
    pub(crate) fn bodies(&self) -> Vec<String> {
        let posts = self.asked().into_iter().filter(|asked| asked.head.starts_with("POST"));
        posts.map(|asked| asked.body).collect()
    }
}

async fn serve(
    mut stream: TcpStream,
    answers: Vec<Answer>,
    kept: Arc<Mutex<Vec<Asked>>>,
    gone: Arc<Notify>,
) -> Option<()> {
    loop {
        let asked = read(&mut stream).await?;
        let is_list = asked.head.starts_with("GET");
        let number = {
            let mut kept = kept.lock().unwrap();
            kept.push(asked);
            kept.iter().filter(|asked| asked.head.starts_with("POST")).count()
        };
        if is_list {
            let body = json!({"data": [{"id": "model-one", "max_model_len": 4096}, {"id": "model-two"}]})
                .to_string();
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
            stream.write_all(format!("{head}{body}").as_bytes()).await.ok()?;
            continue;
        }
        match answers[number.clamp(1, answers.len()) - 1].clone() {
            Answer::Stream(text) => {
                let bytes = format!("{}0\r\n\r\n", chunked(&text));
                stream.write_all(bytes.as_bytes()).await.ok()?;
            }
            Answer::Broken(text) => {
                stream.write_all(chunked(&text).as_bytes()).await.ok()?;
                return None;
            }
            Answer::Stall(text) => {
                stream.write_all(chunked(&text).as_bytes()).await.ok()?;
                // Returns when the client has closed.
                let _end = stream.read(&mut [0; 1]).await;
                gone.notify_one();
                return None;
            }
            Answer::Endless(text, again, pause) => {
                stream.write_all(chunked(&text).as_bytes()).await.ok()?;
                let piece = format!("{:x}\r\n{again}\r\n", again.len());
                while stream.write_all(piece.as_bytes()).await.is_ok() {
                    tokio::time::sleep(pause).await;
                }
                return None;
            }
            Answer::Status(status, headers, body) => {
                let head = format!("HTTP/1.1 {status} X\r\n{headers}content-length: {}\r\n\r\n", body.len());
                stream.write_all(format!("{head}{body}").as_bytes()).await.ok()?;
            }
            Answer::Close => return None,
        }
    }
}

/// The head and the events in very small chunks, so that every event is split.
fn chunked(text: &str) -> String {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    let chars: Vec<char> = text.chars().collect();
    let chunks = chars.chunks(7).map(|chunk| {
        let chunk: String = chunk.iter().collect();
        format!("{:x}\r\n{chunk}\r\n", chunk.len())
    });
    std::iter::once(head.to_owned()).chain(chunks).collect()
}

async fn read(stream: &mut TcpStream) -> Option<Asked> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    let head = String::from_utf8(head).ok()?;
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
    stream.read_exact(&mut body).await.ok()?;
    Some(Asked { head, body: String::from_utf8(body).ok()? })
}

/// A policy that waits only milliseconds, with a watchdog that no loaded machine sets off.
pub(crate) fn quick() -> RetryPolicy {
    RetryPolicy {
        attempts: 3,
        outage: Duration::from_millis(20),
        first_wait: Duration::from_millis(2),
        longest_wait: Duration::from_millis(4),
        patience: Duration::from_secs(60),
        stall: Duration::from_secs(60),
    }
}

pub(crate) fn config(kind: ProviderKind, url: &str) -> Config {
    Config { base_url: Some(url.to_owned()), api_key: Some("k".into()), retry: quick(), ..Config::new(kind) }
}

pub(crate) fn request<'a>(model: &'a str, messages: &'a [Message]) -> ModelRequest<'a> {
    ModelRequest {
        model,
        system: "be brief",
        tools: &[],
        calls: Default::default(),
        messages,
        max_output: None,
        effort: Effort::Default,
        session: "s1",
    }
}

pub(crate) fn tools() -> Vec<ToolSpec> {
    let tool = |name: &str| ToolSpec {
        name: name.into(),
        description: format!("does {name}"),
        input_schema: json!({"type": "object", "properties": {"z": {"type": "string"}, "a": {"type": "string"}}}),
    };
    vec![tool("Read"), tool("Bash")]
}

/// Asks once and tells what was answered and what was seen.
pub(crate) async fn ask(
    config: Config,
    request: ModelRequest<'_>,
) -> (Result<ModelReply, ProviderError>, Vec<Delta>) {
    let mut seen = Vec::new();
    let provider = build(config).unwrap();
    // The counts that come on the way are for whoever pays.
    let mut observe = |delta| {
        if !matches!(delta, Delta::Usage(_)) {
            seen.push(delta);
        }
    };
    let answered = provider.respond(request, &mut observe, &CancellationToken::new()).await;
    (answered, seen)
}

/// Events with names, as Anthropic and Responses send them.
pub(crate) fn named(events: &[Value]) -> String {
    events.iter().map(|e| format!("event: {}\ndata: {e}\n\n", e["type"].as_str().unwrap())).collect()
}

/// Events without names.
pub(crate) fn plain(events: &[Value]) -> String {
    events.iter().map(|event| format!("data: {event}\r\n\r\n")).collect()
}

/// The same short answer ("ok") on each wire, with and without its end.
pub(crate) struct Short {
    pub(crate) kind: ProviderKind,
    pub(crate) whole: String,
    pub(crate) beginning: String,
}

pub(crate) fn shorts() -> [Short; 4] {
    let message = json!({"type": "message_start", "message": {"model": "m", "usage": {"input_tokens": 3}}});
    let block =
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}});
    let text =
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "ok"}});
    let end =
        json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 1}});
    let anthropic = [message, block, text, end, json!({"type": "message_stop"})];
    let responses = [
        json!({"type": "response.output_text.delta", "output_index": 0, "delta": "ok"}),
        json!({"type": "response.completed", "response": {"model": "m", "usage": {"input_tokens": 3, "output_tokens": 1}}}),
    ];
    let chat = [
        json!({"model": "m", "choices": [{"delta": {"content": "ok"}}]}),
        json!({"choices": [{"delta": {}, "finish_reason": "stop"}], "usage": {"prompt_tokens": 3, "completion_tokens": 1}}),
    ];
    let part = json!({"content": {"parts": [{"text": "ok"}]}});
    let gemini = [
        json!({"candidates": [part], "modelVersion": "m"}),
        json!({"candidates": [{"finishReason": "STOP"}],
            "usageMetadata": {"promptTokenCount": 3, "candidatesTokenCount": 1}}),
    ];
    [
        Short { kind: ProviderKind::Anthropic, whole: named(&anthropic), beginning: named(&anthropic[..4]) },
        Short { kind: ProviderKind::OpenAi, whole: named(&responses), beginning: named(&responses[..1]) },
        Short { kind: ProviderKind::OpenAiChat, whole: plain(&chat), beginning: plain(&chat[..1]) },
        Short { kind: ProviderKind::Gemini, whole: plain(&gemini), beginning: plain(&gemini[..1]) },
    ]
}
