//! `caliban gateway` from outside: other programs' requests, byte for byte, from the machine's ledger, at its governor.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    time::Duration,
};

use serde_json::{Value, json};
use testkit::{
    ModelServer, Protocol, Signal, Spawned, StepExt, script, script::Script, text, tool, wait_until,
};

use crate::fleet::{Fleet, bash};

/// The key of the settings, which no client has.
const KEY: &str = "the-real-key-of-the-settings";
const PROTOCOLS: [(Protocol, &str); 3] = [
    (Protocol::Anthropic, "/v1/messages"),
    (Protocol::Responses, "/v1/responses"),
    (Protocol::Chat, "/v1/chat/completions"),
];

/// A gateway that runs.
struct Gateway {
    fleet: Fleet,
    program: Option<Spawned>,
    address: String,
}

/// What came back.
struct Answer {
    status: u16,
    head: String,
    /// The body without its chunks; as it came up to where it was cut.
    body: Vec<u8>,
    /// Whether the body came to its end.
    is_whole: bool,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("{} {}", self.head, self.text()))
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

impl Gateway {
    fn new(script: Script, more: &[&str]) -> Self {
        let server = ModelServer::builder(script).require_key(KEY).frames_of(7).start();
        let mut fleet = Fleet::with(server);
        let openai = fleet.place.server.envs(Protocol::Chat);
        fleet.place.env.set_all(openai);
        let mut gateway = Self { fleet, program: None, address: String::new() };
        gateway.start(more);
        gateway
    }

    fn start(&mut self, more: &[&str]) {
        let place = &self.fleet.place;
        let args = [&["gateway", "--port", "0", "--json"], more].concat();
        let mut program = place.env.start("caliban", args).dir(&place.repo).spawn();
        program.wait_for_stdout("\n");
        let ready: Value = serde_json::from_str(program.stdout().lines().next().unwrap()).unwrap();
        self.address = ready["address"].as_str().unwrap().to_owned();
        self.program = Some(program);
    }

    fn token(&self, more: &[&str]) -> String {
        let args = [&["gateway", "token", "create", "--label", "foreign", "--json"], more].concat();
        let made: Value = self.fleet.run(args).ok().json();
        made["token"].as_str().unwrap().to_owned()
    }

    /// Sends a request, and reads until the gateway hangs up.
    fn post(&self, path: &str, token: &str, body: &str) -> Answer {
        read(open(&self.address, path, token, "", body))
    }

    fn pool(&self) -> (u64, u64) {
        let pools: Vec<Value> = self.fleet.run(["budget", "show", "--json"]).ok().json();
        (pools[0]["tokens"].as_u64().unwrap(), pools[0]["in_flight_tokens"].as_u64().unwrap())
    }

    /// Waits until nothing is in flight; what was spent.
    fn spent(&self) -> u64 {
        wait_until("nothing is in flight", || self.pool().1 == 0);
        self.pool().0
    }
}

fn open(address: &str, path: &str, token: &str, more: &str, body: &str) -> TcpStream {
    let mut stream = begin(address, path, token, more, body.len());
    stream.write_all(body.as_bytes()).unwrap();
    stream
}

/// Sends the head of a request.
fn begin(address: &str, path: &str, token: &str, more: &str, length: usize) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let key = if path.starts_with("/v1/messages") {
        format!("x-api-key: {token}\r\nanthropic-version: 2023-06-01\r\nanthropic-beta: one,two\r\n")
    } else {
        format!("authorization: Bearer {token}\r\n")
    };
    let request = format!(
        "POST {path}?beta=true HTTP/1.1\r\nhost: {address}\r\n{key}{more}content-type: application/json\r\n\
         accept-encoding: gzip\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).unwrap();
    stream
}

fn read(mut stream: TcpStream) -> Answer {
    let mut all = Vec::new();
    // A cut connection may end in an error.
    let _cut = stream.read_to_end(&mut all);
    let end =
        all.windows(4).position(|four| four == b"\r\n\r\n").unwrap_or_else(|| panic!("no head: {all:?}"));
    let head = String::from_utf8_lossy(&all[..end]).to_lowercase();
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap();
    let raw = &all[end + 4..];
    let (body, is_whole) =
        if head.contains("transfer-encoding: chunked") { unchunked(raw) } else { (raw.to_vec(), true) };
    Answer { status, head, body, is_whole }
}

fn unchunked(mut raw: &[u8]) -> (Vec<u8>, bool) {
    let mut body = Vec::new();
    while let Some(end) = raw.windows(2).position(|two| two == b"\r\n") {
        let size = usize::from_str_radix(std::str::from_utf8(&raw[..end]).unwrap(), 16).unwrap();
        if size == 0 {
            return (body, true);
        }
        let Some(chunk) = raw.get(end + 2..end + 2 + size) else { break };
        body.extend_from_slice(chunk);
        raw = &raw[(end + 4 + size).min(raw.len())..];
    }
    (body, false)
}

/// A request as a client of this protocol would send it; spaced so that nobody could have made it anew.
fn request(protocol: Protocol, stream: bool) -> String {
    match protocol {
        Protocol::Responses => format!(r#"{{ "stream":{stream},  "model":"gpt-5.5","input":"hellö" }}"#),
        Protocol::Chat => format!(
            r#"{{"model" : "gpt-5.5","stream":{stream},"stream_options":{{"include_usage":true}},"messages":[{{"role":"user","content":"hellö"}}]}}"#
        ),
        _ => format!(
            r#"{{"model":"claude-sonnet-4-6",   "max_tokens":64,"stream":{stream},"messages":[{{"role":"user","content":"hellö"}}]}}"#
        ),
    }
}

#[test]
fn g01_requests_and_answers_of_each_protocol_go_through_byte_for_byte_and_are_counted() {
    let answer = || {
        script![
            text("the wörds")
                .thinking("why")
                .and_tool("Bash", json!({"command": "ls"}))
                .costs(700, 30)
                .forever()
        ]
    };
    let gateway = Gateway::new(answer(), &[]);
    // The same server without a gateway before it: its answers have the same numbers in them.
    let direct = ModelServer::builder(answer()).require_key(KEY).start();
    let token = gateway.token(&[]);
    let mut sent = 0;
    for (protocol, path) in PROTOCOLS {
        for stream in [true, false] {
            let body = request(protocol, stream);
            let through = gateway.post(path, &token, &body);
            let straight = read(open(direct.url().strip_prefix("http://").unwrap(), path, KEY, "", &body));
            assert_eq!(through.status, 200, "{}", through.text());
            assert_eq!(through.text(), straight.text(), "{path} {stream}");
            assert!(through.is_whole);
            let kinds = |answer: &Answer| -> Vec<String> {
                let lines = answer
                    .head
                    .lines()
                    .filter(|line| !line.starts_with("date") && !line.starts_with("transfer"));
                {
                    let mut lines: Vec<String> = lines.map(str::to_owned).collect();
                    lines.sort();
                    lines
                }
            };
            assert_eq!(kinds(&through), kinds(&straight), "{path} {stream}");
            sent += 1;
            assert_eq!(gateway.spent(), sent * 730, "{path} {stream}");
        }
    }
    let (passed, straight) = (gateway.fleet.place.server.requests(), direct.requests());
    for (one, other) in passed.iter().zip(&straight) {
        assert_eq!((&one.raw, &one.path, &one.query), (&other.raw, &other.path, &other.query));
        assert_eq!(one.header("anthropic-beta"), other.header("anthropic-beta"));
        assert!(!one.headers.iter().any(|(_, value)| value.contains(&token)), "{:?}", one.headers);
        assert_eq!(one.header("accept-encoding"), Some("identity"));
    }
    let history: Vec<Value> =
        gateway.fleet.run(["budget", "history", "--by", "label,model", "--json"]).ok().json();
    let rows: Vec<Value> =
        history.iter().map(|row| json!([row["label"], row["model"], row["requests"]])).collect();
    assert_eq!(rows, [json!(["foreign", "claude-sonnet-4-6", 2]), json!(["foreign", "gpt-5.5", 4])]);
    assert!(history.iter().all(|row| row["micro_usd"].as_u64() > Some(0)), "{history:?}");
    let listed: Vec<Value> = gateway.fleet.run(["gateway", "token", "list", "--json"]).ok().json();
    assert_eq!(json!([listed[0]["label"], listed[0]["tokens"]]), json!(["foreign", 4380]));
}

/// A request as Google's SDK sends it.
fn gemini(address: &str, call: &str, key: &str, body: &str) -> Answer {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let (method, length) = if body.is_empty() { ("GET", 0) } else { ("POST", body.len()) };
    let request = format!(
        "{method} /v1beta/models{call} HTTP/1.1\r\nhost: {address}\r\n{key}content-type: application/json\r\n\
         connection: close\r\ncontent-length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).unwrap();
    read(stream)
}

#[test]
fn r20_g15_geminis_requests_go_through_with_their_model_from_the_path_and_are_counted() {
    const BODY: &str = r#"{ "contents":[{"role":"user","parts":[{"text":"hellö"}]}],"generationConfig":{"maxOutputTokens":64}}"#;
    let answer = || script![text("the wörds").costs(700, 30).forever()];
    let server = ModelServer::builder(answer()).require_key(KEY).start();
    let mut fleet = Fleet::with(server);
    let envs = fleet.place.server.envs(Protocol::Gemini);
    fleet.place.env.set_all(envs);
    let mut gateway = Gateway { fleet, program: None, address: String::new() };
    gateway.start(&[]);
    let direct = ModelServer::builder(answer()).require_key(KEY).start();
    let token = gateway.token(&["--budget-tokens", "4000"]);
    let header = |key: &str| format!("x-goog-api-key: {key}\r\n");
    let calls = [
        "/gemini-3-pro-preview:generateContent",
        "/gemini-3-pro-preview:streamGenerateContent?alt=sse",
        "/gemini-3-pro-preview:streamGenerateContent",
    ];
    for (sent, call) in (1..).zip(calls) {
        let through = gemini(&gateway.address, call, &header(&token), BODY);
        let straight = gemini(direct.url().strip_prefix("http://").unwrap(), call, &header(KEY), BODY);
        assert_eq!((through.status, through.text()), (200, straight.text()), "{call}");
        assert_eq!(gateway.spent(), sent * 730, "{call}");
    }
    // The token may be in the query; it does not go out.
    let with_query = format!("/gemini-3-pro-preview:generateContent?key={token}");
    assert_eq!(gemini(&gateway.address, &with_query, "", BODY).status, 200);
    for request in gateway.fleet.place.server.requests() {
        assert!(!request.query.contains("key=") && !format!("{:?}", request.headers).contains(&token));
    }
    // What costs nothing.
    assert!(gemini(&gateway.address, "", &header(&token), "").json()["models"].is_array());
    let counted = gemini(&gateway.address, "/gemini-3-pro-preview:countTokens", &header(&token), BODY);
    assert_eq!(counted.status, 200, "{}", counted.text());
    assert_eq!(gateway.spent(), 4 * 730);
    let history: Vec<Value> =
        gateway.fleet.run(["budget", "history", "--by", "label,model", "--json"]).ok().json();
    assert_eq!(json!([history[0]["model"], history[0]["requests"]]), json!(["gemini-3-pro-preview", 4]));
    // A used-up budget, no token, and what does not go through, in Google's words.
    let ask = || gemini(&gateway.address, calls[0], &header(&token), BODY);
    let used_up = (0..4).map(|_| ask()).find(|answer| answer.status != 200).expect("the budget is used up");
    let said = used_up.json();
    assert_eq!((used_up.status, &said["error"]["status"]), (400, &json!("FAILED_PRECONDITION")), "{said}");
    assert!(said["error"]["message"].as_str().unwrap().contains("caliban budget set gw-"), "{said}");
    let stranger = gemini(&gateway.address, calls[0], "", BODY);
    assert_eq!((stranger.status, &stranger.json()["error"]["status"]), (401, &json!("UNAUTHENTICATED")));
    let other = gemini(&gateway.address, "/gemini-3-pro-preview:batchGenerateContent", &header(&token), BODY);
    assert_eq!(other.status, 404);
    assert!(other.text().contains("/v1beta/models/MODEL:generateContent"), "{}", other.text());
}

#[test]
fn g02_a_list_of_models_and_a_count_of_tokens_cost_nothing() {
    let gateway = Gateway::new(script![], &[]);
    let token = gateway.token(&["--budget-tokens", "1"]);
    let counted = gateway.post("/v1/messages/count_tokens", &token, &request(Protocol::Anthropic, false));
    assert_eq!(counted.status, 200);
    assert!(counted.json()["input_tokens"].as_u64() > Some(0));
    let get = |more: &str| {
        let mut stream = TcpStream::connect(&gateway.address).unwrap();
        let head = format!(
            "GET /v1/models HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n{more}\r\n",
            gateway.address
        );
        stream.write_all(head.as_bytes()).unwrap();
        read(stream)
    };
    assert_eq!(get(&format!("authorization: Bearer {token}\r\n")).json()["object"], "list");
    let anthropic = get(&format!("x-api-key: {token}\r\nanthropic-version: 2023-06-01\r\n"));
    assert_eq!(anthropic.json()["has_more"], false, "{}", anthropic.text());
    assert_eq!(get("").status, 401);
    assert_eq!(gateway.spent(), 0);
}

#[test]
fn r20_g03_a_used_up_budget_is_refused_in_the_protocols_words_until_a_person_raises_it() {
    let gateway = Gateway::new(script![text("done").costs(3_000, 10).forever()], &[]);
    let token = gateway.token(&["--budget-tokens", "4000"]);
    let ask = |protocol, path| gateway.post(path, &token, &request(protocol, true));
    let [(_, messages), (_, responses), (_, chat)] = PROTOCOLS;
    assert_eq!(ask(Protocol::Anthropic, messages).status, 200);
    assert_eq!(gateway.spent(), 3_010);
    let refused = ask(Protocol::Anthropic, messages);
    assert_eq!(refused.status, 200, "a short answer still fits: {}", refused.text());
    assert_eq!(gateway.spent(), 6_020);
    let refused = ask(Protocol::Anthropic, messages);
    let said = refused.json();
    assert_eq!(
        (refused.status, &said["type"], &said["error"]["type"]),
        (402, &json!("error"), &json!("billing_error"))
    );
    let words = said["error"]["message"].as_str().unwrap();
    let account = words.split("caliban budget set ").nth(1).unwrap().split(' ').next().unwrap();
    assert!(
        words.starts_with(&format!("the token budget of {account}")) && account.starts_with("gw-"),
        "{words}"
    );
    assert!(refused.head.contains("x-should-retry: false"), "{}", refused.head);
    for (protocol, path) in [(Protocol::Responses, responses), (Protocol::Chat, chat)] {
        let refused = ask(protocol, path);
        let said = refused.json();
        assert_eq!((refused.status, &said["error"]["code"]), (400, &json!("insufficient_quota")));
        assert!(said["error"]["message"].as_str().unwrap().contains(account));
    }
    assert_eq!(gateway.fleet.place.server.requests().len(), 2, "nothing was sent");
    gateway.fleet.run(["budget", "set", account, "--tokens", "20000"]).ok();
    assert_eq!(ask(Protocol::Chat, chat).status, 200);
    assert_eq!(gateway.spent(), 9_030);
}

#[test]
fn a13_g04_nobody_passes_without_a_token_from_a_page_or_by_another_name() {
    let mut gateway = Gateway::new(script![], &[]);
    let token = gateway.token(&[]);
    let body = request(Protocol::Anthropic, true);
    let ask = |gateway: &Gateway, token: &str| gateway.post("/v1/messages", token, &body);
    let wrong = ask(&gateway, "");
    let said = wrong.json();
    assert_eq!((wrong.status, &said["error"]["type"]), (401, &json!("authentication_error")));
    let mut changed = token.clone();
    changed.replace_range(changed.len() - 1.., if token.ends_with('0') { "1" } else { "0" });
    assert_eq!(ask(&gateway, &changed).status, 401);
    assert_eq!(ask(&gateway, KEY).status, 401);
    let foreign = |head: String| {
        let mut stream = TcpStream::connect(&gateway.address).unwrap();
        stream.write_all(head.as_bytes()).unwrap();
        read(stream)
    };
    let rest =
        format!("x-api-key: {token}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    let (_, port) = gateway.address.split_once(':').unwrap();
    for host in ["evil.example".to_owned(), format!("evil.example:{port}"), "127.0.0.1:1".to_owned()] {
        let refused = foreign(format!("POST /v1/messages HTTP/1.1\r\nhost: {host}\r\n{rest}"));
        assert_eq!(refused.status, 403, "{host}");
    }
    let own = &gateway.address;
    let page =
        foreign(format!("POST /v1/messages HTTP/1.1\r\nhost: {own}\r\norigin: http://{own}\r\n{rest}"));
    assert_eq!((page.status, page.head.contains("access-control")), (403, false));
    let pre = foreign(format!(
        "OPTIONS /v1/messages HTTP/1.1\r\nhost: {own}\r\norigin: http://a\r\nconnection: close\r\n\r\n"
    ));
    assert_eq!((pre.status, pre.head.contains("access-control")), (403, false));
    assert_eq!(gateway.post("/v1/embeddings", &token, "{}").status, 404);
    assert_eq!(gateway.post("/v1/messages", &token, "no json").status, 400);
    let many = format!("POST /v1/messages HTTP/1.1\r\nhost: {own}\r\nx: {}\r\n{rest}", "y".repeat(200_000));
    let mut stream = TcpStream::connect(own).unwrap();
    let _closed_meanwhile = stream.write_all(many.as_bytes());
    let mut all = Vec::new();
    let _reset = stream.read_to_end(&mut all);
    assert!(!String::from_utf8_lossy(&all).contains("200 OK"));
    let id = token.split('-').nth(2).unwrap();
    assert_eq!(gateway.fleet.run(["gateway", "token", "rm", "foreign"]).ok().stdout, format!("{id}\n"));
    assert_eq!(ask(&gateway, &token).status, 401, "it was removed");
    assert_eq!(gateway.fleet.place.server.requests().len(), 0);
    // Neither the token nor the key is told to anybody.
    let mut program = gateway.program.take().unwrap();
    program.signal(Signal::TERM);
    let output = program.wait().ok();
    let all = format!("{}{}", output.stdout, output.stderr);
    assert!(!all.contains(&token) && !all.contains(KEY), "{all}");
}

#[test]
fn r20_g05_a_cut_answer_is_cut_for_the_client_too_and_counts_what_it_said() {
    let gateway =
        Gateway::new(script![text("many words").in_chunks(4).costs(5_000, 9).cut(1), text("end")], &[]);
    let token = gateway.token(&[]);
    let cut = gateway.post("/v1/messages", &token, &request(Protocol::Anthropic, true));
    assert_eq!((cut.status, cut.is_whole), (200, false));
    assert!(cut.text().contains("message_start") && !cut.text().contains("message_stop"), "{}", cut.text());
    let spent = gateway.spent();
    assert!((5_001..5_010).contains(&spent), "{spent}");
}

#[test]
fn r20_g06_a_client_that_goes_away_ends_the_request_and_it_counts() {
    let gateway = Gateway::new(script![text("words").in_chunks(2).costs(5_000, 9).stall(1)], &[]);
    let token = gateway.token(&[]);
    let mut client = open(&gateway.address, "/v1/messages", &token, "", &request(Protocol::Anthropic, true));
    let mut some = [0; 512];
    assert!(client.read(&mut some).unwrap() > 0);
    wait_until("what the server counts is held", || gateway.pool().1 >= 5_000);
    drop(client);
    gateway.fleet.place.server.wait_for_hangups(1);
    let spent = gateway.spent();
    assert!((5_001..5_010).contains(&spent), "{spent}");
}

#[test]
fn r20_g07_what_a_killed_gateway_had_sent_counts() {
    let mut gateway = Gateway::new(script![text("words").in_chunks(2).costs(5_000, 9).stall(1)], &[]);
    let token = gateway.token(&["--budget-tokens", "7000"]);
    let mut client = open(&gateway.address, "/v1/messages", &token, "", &request(Protocol::Anthropic, true));
    let mut some = [0; 512];
    assert!(client.read(&mut some).unwrap() > 0);
    wait_until("what the server counts is held", || gateway.pool().1 >= 5_000);
    drop(gateway.program.take().unwrap().kill());
    let spent = gateway.spent();
    assert!((5_001..5_010).contains(&spent), "{spent}");
    gateway.start(&[]);
    assert_eq!(gateway.post("/v1/messages", &token, &request(Protocol::Anthropic, true)).status, 200);
    assert_eq!(gateway.spent(), spent + 5_009);
}

#[test]
fn r20_g08_a_chat_stream_without_usage_counts_at_least_as_it_was_reserved() {
    let gateway = Gateway::new(script![text("w".repeat(400)).costs(9_999, 9_999)], &[]);
    let token = gateway.token(&[]);
    let body = request(Protocol::Chat, true).replace("true}", "false}");
    let answer = gateway.post("/v1/chat/completions", &token, &body);
    assert!(!answer.text().contains("9999"), "{}", answer.text());
    let spent = gateway.spent();
    // A usual answer is reserved; that it had only a hundred tokens, nobody has said.
    let least = body.len() as u64 / 4 + 1000;
    assert!((least..least + 30).contains(&spent), "{spent}, at least {least}");
}

#[test]
fn r24_g09_a_rate_limit_is_waited_out_with_our_own_agents_on_the_same_lane() {
    let gateway = Gateway::new(
        script![
            text("foreign is done").status(429).retry_after("2").on_first("hellö"),
            text("own is done").on_first("own task"),
            tool("Bash", json!({"command": "never"})).on_first("never"),
        ],
        &[],
    );
    let token = gateway.token(&[]);
    let client = open(&gateway.address, "/v1/messages", &token, "", &request(Protocol::Anthropic, true));
    gateway.fleet.place.server.wait_for_requests(1);
    let own = gateway.fleet.bg("own task", []);
    wait_until("our own agent waits, too", || {
        gateway.fleet.row(&own)["waiting_for"].to_string().contains("rate_limit")
    });
    assert_eq!(gateway.fleet.place.server.model_requests().len(), 1);
    let answer = read(client);
    assert_eq!(answer.status, 200);
    assert!(answer.text().contains("foreign is done"), "{}", answer.text());
    gateway.fleet.run(["agents", "wait", &own]).ok();
    assert_eq!(gateway.fleet.place.server.model_requests().len(), 3);
}

#[test]
fn r24_g10_a_rate_limit_that_lasts_too_long_is_told_to_the_client() {
    let gateway =
        Gateway::new(script![text("late").status(429).retry_after("600").forever()], &["--max-wait", "1"]);
    let token = gateway.token(&[]);
    let ask = || gateway.post("/v1/messages", &token, &request(Protocol::Anthropic, true));
    for _ in 0..2 {
        let refused = ask();
        assert_eq!((refused.status, &refused.json()["error"]["type"]), (429, &json!("rate_limit_error")));
        let wait = refused.head.split("retry-after: ").nth(1).unwrap().split('\r').next().unwrap();
        assert!((590..=661).contains(&wait.trim().parse::<u64>().unwrap()), "{wait}");
    }
    assert_eq!(gateway.fleet.place.server.requests().len(), 1, "the second one was not sent");
    assert_eq!(gateway.spent(), 0);
}

#[test]
fn g11_run_gives_one_program_a_token_that_ends_with_it() {
    let gateway = Gateway::new(script![text("done").costs(200, 5).forever()], &[]);
    let place = &gateway.fleet.place;
    let client = place.env.root().join("client.sh");
    let body = request(Protocol::Anthropic, true).replace('"', "\\\"");
    place.env.write(
        &client,
        format!(
            "echo \"$ANTHROPIC_BASE_URL $ANTHROPIC_API_KEY\"\ncurl -s -H \"x-api-key: $ANTHROPIC_API_KEY\" \
             -H 'anthropic-version: 2023-06-01' -d \"{body}\" $ANTHROPIC_BASE_URL/v1/messages\nexit 7\n"
        ),
    );
    let client = client.to_str().unwrap().to_owned();
    let run = |more: &[&str]| {
        let args = [&["gateway", "run"], more, &["--", "sh", &client]].concat();
        gateway.fleet.run(args).expect_code(7).stdout
    };
    let said = run(&[]);
    assert!(said.contains("message_stop"), "{said}");
    let (base, token) = said.lines().next().unwrap().split_once(' ').unwrap();
    assert!(base.starts_with("http://127.0.0.1:") && token.starts_with("caliban-gw-"), "{said}");
    assert_eq!(gateway.post("/v1/messages", token, &request(Protocol::Anthropic, true)).status, 401);
    assert_eq!(gateway.pool(), (205, 0), "settled when the program has ended");
    let refused = run(&["--label", "poor", "--budget-tokens", "50"]);
    assert!(refused.contains("billing_error"), "{refused}");
    let listed: Vec<Value> = gateway.fleet.run(["gateway", "token", "list", "--json"]).ok().json();
    assert_eq!(listed, [json!(null); 0]);
    let history: Vec<Value> = gateway.fleet.run(["budget", "history", "--by", "label", "--json"]).ok().json();
    assert_eq!(json!([history[0]["label"], history[0]["tokens"]]), json!(["sh", 205]));
    gateway.fleet.run(["gateway", "run", "--", "no-such-program"]).expect_code(1);
}

#[test]
fn g11_a_program_does_not_outlive_a_killed_wrapper() {
    let gateway = Gateway::new(script![], &[]);
    let place = &gateway.fleet.place;
    let started =
        place.env.start("caliban", ["gateway", "run", "--", "sh", "-c", "echo pid $$; exec sleep 600"]);
    let mut wrapper = started.dir(&place.repo).spawn();
    wrapper.wait_for_stdout("\n");
    let said = wrapper.stdout();
    let pid: i32 = said.split_whitespace().nth(1).unwrap().parse().unwrap();
    let is_there = || std::path::Path::new(&format!("/proc/{pid}")).exists();
    assert!(is_there());
    wrapper.signal(testkit::Signal::KILL);
    testkit::wait_until("it is gone", || !is_there());
}

#[test]
fn g12_env_leads_a_shell_to_the_gateway_that_runs_and_never_back_into_itself() {
    let gateway = Gateway::new(script![], &[]);
    let printed = gateway.fleet.run(["gateway", "env", "--label", "shell"]).ok();
    let lines: Vec<&str> = printed.stdout.lines().collect();
    assert_eq!(lines[0], format!("export ANTHROPIC_BASE_URL=http://{}", gateway.address));
    assert_eq!(lines[2], format!("export OPENAI_BASE_URL=http://{}/v1", gateway.address));
    let token = lines[1].strip_prefix("export ANTHROPIC_API_KEY=").unwrap();
    assert_eq!(lines[3], format!("export OPENAI_API_KEY={token}"));
    assert_eq!(lines[4], format!("export GOOGLE_GEMINI_BASE_URL=http://{}", gateway.address));
    assert_eq!(
        lines[5..],
        [&format!("export GEMINI_API_KEY={token}"), "unset ANTHROPIC_AUTH_TOKEN", "unset GOOGLE_API_KEY"]
    );
    let place = &gateway.fleet.place;
    let port = gateway.address.split(':').nth(1).unwrap();
    let own = format!("http://{}", gateway.address);
    let again = place.env.start("caliban", ["gateway", "--port", port]).dir(&place.repo);
    let said = again.env("ANTHROPIC_BASE_URL", &own).output().expect_code(1).stderr;
    assert!(said.contains("does a gateway run already?"), "{said}");
    // Of one that was killed nobody is led to whoever has its port now.
    let mut gateway = gateway;
    drop(gateway.program.take().unwrap().kill());
    let _other = std::net::TcpListener::bind(&gateway.address).unwrap();
    let printed = gateway.fleet.run(["gateway", "env", "--label", "shell"]).ok();
    assert!(!printed.stdout.contains(&own), "{}", printed.stdout);
    assert!(printed.stderr.contains("no gateway runs"), "{}", printed.stderr);
}

#[test]
fn g14_a_gateway_that_ends_answers_the_request_whose_body_comes_then() {
    let mut gateway = Gateway::new(script![text("late").costs(50, 9)], &[]);
    let (token, body) = (gateway.token(&[]), request(Protocol::Anthropic, true));
    let mut client = begin(&gateway.address, "/v1/messages", &token, "", body.len());
    // The head was read when half of a body was: the gateway takes up the connection before it is told to end.
    client.write_all(&body.as_bytes()[..10]).unwrap();
    wait_until("the head is read", || {
        let mut second = open(&gateway.address, "/v1/messages/count_tokens", &token, "", "{}");
        second.read(&mut [0; 16]).unwrap() > 0
    });
    gateway.program.as_mut().unwrap().signal(Signal::TERM);
    wait_until("it takes no more", || TcpStream::connect(&gateway.address).is_err());
    client.write_all(&body.as_bytes()[10..]).unwrap();
    let answer = read(client);
    assert_eq!((answer.status, answer.is_whole), (200, true), "{}", answer.text());
    gateway.program.take().unwrap().wait().ok();
    assert_eq!(gateway.pool(), (59, 0));
}

#[test]
fn a11_g13_a_process_of_an_agent_spends_from_the_agents_budget_and_makes_no_tokens() {
    let gateway = Gateway::new(script![], &[]);
    // The environment of an agent's commands has no keys.
    gateway.fleet.settings(&format!("[providers.anthropic]\napi_key = \"{KEY}\"\n"));
    let caliban = env!("CARGO_BIN_EXE_caliban");
    let client = gateway.fleet.place.env.root().join("client.sh");
    gateway.fleet.place.env.write(
        &client,
        "curl -s -H \"x-api-key: $ANTHROPIC_API_KEY\" -H 'anthropic-version: 2023-06-01' -d '{\"model\":\"claude-sonnet-4-6\",\
         \"max_tokens\":9,\"messages\":[{\"role\":\"user\",\"content\":\"below\"}]}' $ANTHROPIC_BASE_URL/v1/messages\n",
    );
    let command = format!(
        "{caliban} gateway token create --label mine; {caliban} gateway run -- sh {}",
        client.display()
    );
    gateway.fleet.place.server.set_script(script![
        bash(&command).costs(100, 10).on_first("the task"),
        text("from below").costs(1_000, 1).on_first("below"),
        text("done").costs(100, 10).on_first("the task"),
    ]);
    let id = gateway.fleet.bg("the task", ["--permission-mode", "unattended", "--budget-tokens", "90000"]);
    gateway.fleet.run(["agents", "wait", &id]).ok();
    let logs = gateway.fleet.run(["logs", &id]).ok().stdout;
    assert!(logs.contains("cannot make a token: a person does"), "{logs}");
    let shown: Vec<Value> = gateway.fleet.run(["budget", "show", &id, "--json"]).ok().json();
    assert_eq!(shown[0]["tokens"], 1_221, "{logs}");
}
