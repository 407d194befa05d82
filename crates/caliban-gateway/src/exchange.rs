//! One request on its way: reserved, sent when it is its turn, forwarded as it comes, settled.
//!
//! What was sent counts, as for our own agents ([`BudgetAttempt`]): an answer that is cut, by the provider or by the client, counts what
//! it has said, at least what was reserved. Runs in a task of its own, so that it settles whoever goes away.

use std::sync::Arc;

use bytes::Bytes;
use caliban_agent::budget::{BudgetAttempt, BudgetRefusal, Estimated, NotReserved, Purse, Reserved};
use caliban_core::budget::{ReserveRefused, Scope};
use caliban_core::price;
use caliban_core::usage::Usage;
use caliban_providers::Billed;
use caliban_providers::relay::{NoTurn, RelayOutcome, RelayReader, RelayRefused};
use http::{HeaderMap, Response, StatusCode};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::answer_body::{AnswerBody, AnswerPiece, passing, whole};
use crate::guard;
use crate::headers;
use crate::refusal::GatewayRefusal;
use crate::request_body::AskedBody;
use crate::route::{self, Protocol, Route};
use crate::server::{Gate, UnderWay, Upstream};
use crate::tokens::Token;

/// What is reserved for an answer without a limit, while its token has other requests under way.
const LONG_OUTPUT: u64 = 32_000;
/// How many pieces of an answer may wait for a slow client.
const PIECES: usize = 16;

/// A request.
pub(crate) struct GatewayRequest {
    pub(crate) gate: Arc<Gate>,
    pub(crate) token: Token,
    pub(crate) protocol: Protocol,
    pub(crate) head: http::request::Parts,
    pub(crate) body: Bytes,
}

/// The way back to who made it.
pub(crate) type GatewayReply = oneshot::Sender<Response<AnswerBody>>;

/// How a request goes on after its head was answered.
enum BegunAnswer {
    /// The provider answers.
    Answer(caliban_http::Response, Option<Box<Metered>>),
    /// The provider has refused; its words go through.
    Refused(RelayRefused),
}

/// Why the provider's answer does not go through.
enum ExchangeEnd {
    /// The gateway refuses.
    Refused(GatewayRefusal),
    /// The client is gone.
    Gone,
}

impl From<GatewayRefusal> for ExchangeEnd {
    fn from(refusal: GatewayRefusal) -> Self {
        Self::Refused(refusal)
    }
}

/// Carries a request out.
pub(crate) async fn run(asker: GatewayRequest, route: Route, mut reply: GatewayReply) {
    let (begun, cut) = (asker.begin(route, &mut reply).await, &asker.gate.cut);
    // Where nobody waits for the answer any more, nobody misses it.
    let _gone = match begun {
        Ok(BegunAnswer::Answer(response, metered)) => {
            let (pieces, receiver) = mpsc::channel(PIECES);
            let answered = reply.send(answer(response.status, &response.headers, passing(receiver)));
            forward(response, pieces, metered, cut).await;
            answered
        }
        Ok(BegunAnswer::Refused(mut refused)) => {
            // Of a long one only the beginning was read.
            refused.headers.remove(http::header::CONTENT_LENGTH);
            reply.send(answer(refused.status, &refused.headers, whole(refused.body)))
        }
        Err(ExchangeEnd::Refused(refusal)) => reply.send(refusal.answer(asker.protocol)),
        Err(ExchangeEnd::Gone) => Ok(()),
    };
}

fn answer(status: u16, headers: &HeaderMap, body: AnswerBody) -> Response<AnswerBody> {
    let mut answer = Response::new(body);
    *answer.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_GATEWAY);
    *answer.headers_mut() = headers::of_answer(headers);
    answer
}

impl GatewayRequest {
    /// The model, where the protocol names it in the path.
    fn model_in_path(&self) -> Option<&str> {
        let is_gemini = self.protocol == Protocol::Gemini;
        route::gemini_call(self.head.uri.path()).filter(|_| is_gemini).map(|(model, _)| model)
    }

    async fn begin(&self, route: Route, reply: &mut GatewayReply) -> Result<BegunAnswer, ExchangeEnd> {
        let upstream = self.gate.upstream(self.protocol, route)?;
        let Route::Ask(_) = route else {
            return match self.send(upstream, reply).await? {
                RelayOutcome::Begun(response) => Ok(BegunAnswer::Answer(response, None)),
                RelayOutcome::Refused(refused) => Ok(BegunAnswer::Refused(refused)),
                RelayOutcome::Failed { reason, .. } => Err(unanswered(upstream, &reason).into()),
            };
        };
        let asked = AskedBody::read(&self.body, self.model_in_path()).ok_or_else(|| {
            GatewayRefusal::Bad("the body is no request in JSON that names a model".to_owned())
        })?;
        if asked.is_background() {
            let why =
                "a response in the background cannot be counted here: ask for it without \"background\"";
            return Err(GatewayRefusal::Bad(why.to_owned()).into());
        }
        let (purse, under_way) = self.gate.purse(&self.token);
        let mut estimate = Estimated::of_characters(self.body.len() as u64, asked.max_output());
        // One answer that is longer than usual passes a limit by little; many at once would pass it by much.
        if under_way.is_beside_others() {
            estimate.output = estimate.output.max(asked.max_output().unwrap_or(LONG_OUTPUT));
        }
        let purse = purse.priced(price::of(&asked.model, upstream.billing));
        let metered = self.reserve(purse, estimate, &asked.model, under_way).await?;
        self.in_turn(upstream, metered, &asked.model, reply).await
    }

    async fn reserve(
        &self,
        purse: Purse,
        estimate: Estimated,
        model: &str,
        under_way: UnderWay,
    ) -> Result<Metered, GatewayRefusal> {
        let (reserved, near) = purse.reserve(estimate, model).await.map_err(|error| match error {
            NotReserved::Limit(limit) => GatewayRefusal::Budget(self.in_words(&limit.refusal)),
            NotReserved::Ledger(_) => GatewayRefusal::NoLedger(error.to_string()),
        })?;
        for notice in near {
            (self.gate.options.tell)(&format!("{}: {notice}", self.token.label));
        }
        let attempt = BudgetAttempt::new(estimate);
        Ok(Metered { purse, reserved, attempt, reader: None, counting: None, _under_way: under_way })
    }

    /// The limit that is in the way, and how it is raised.
    fn in_words(&self, limit: &BudgetRefusal) -> String {
        let account = self.token.account();
        let whose = match limit {
            ReserveRefused::Over { scope: Scope::Tree(id), .. }
            | ReserveRefused::NoPrice(Scope::Tree(id)) => id.as_str(),
            ReserveRefused::Over { scope: Scope::RepoDay, .. } | ReserveRefused::NoPrice(Scope::RepoDay) => {
                "repo"
            }
            ReserveRefused::Over { scope: Scope::Day, .. } | ReserveRefused::NoPrice(Scope::Day) => "day",
            ReserveRefused::Over { .. } | ReserveRefused::NoPrice(_) => {
                return format!("{limit} (the limit is `[budget] per_agent` in the settings)");
            }
            ReserveRefused::NoAccount(_) => account.as_str(),
        };
        format!("{limit}; a person raises it with `caliban budget set {whose} --usd N` or `--tokens N`")
    }

    /// Waits for a turn and sends, again while the provider says "later".
    async fn in_turn(
        &self,
        upstream: &Upstream,
        mut metered: Metered,
        model: &str,
        reply: &mut GatewayReply,
    ) -> Result<BegunAnswer, ExchangeEnd> {
        let end = Instant::now() + self.gate.options.max_wait;
        loop {
            if let Err(ended) = self.turn(upstream, end, reply).await {
                metered.release().await;
                return Err(ended);
            }
            let answered = match self.send(upstream, reply).await {
                Ok(answered) => answered,
                Err(ended) => {
                    metered.settle(None).await;
                    return Err(ended);
                }
            };
            match answered {
                RelayOutcome::Begun(response) => {
                    metered.reader = Some(upstream.relay.reader(&response, model));
                    return Ok(BegunAnswer::Answer(response, Some(Box::new(metered))));
                }
                RelayOutcome::Refused(refused) if refused.is_limited => {}
                RelayOutcome::Refused(refused) => {
                    metered.over(refused.billed).await;
                    return Ok(BegunAnswer::Refused(refused));
                }
                RelayOutcome::Failed { reason, billed } => {
                    metered.over(billed).await;
                    return Err(unanswered(upstream, &reason).into());
                }
            }
        }
    }

    async fn turn(
        &self,
        upstream: &Upstream,
        end: Instant,
        reply: &mut GatewayReply,
    ) -> Result<(), ExchangeEnd> {
        let gone = CancellationToken::new();
        let passed = {
            let turn = upstream.relay.turn(end.saturating_duration_since(Instant::now()), &gone);
            tokio::pin!(turn);
            tokio::select! {
                biased;
                passed = turn.as_mut() => passed,
                () = self.gone(reply) => {
                    gone.cancel();
                    turn.await
                }
            }
        };
        passed.map_err(|no_turn| match no_turn {
            NoTurn::Cancelled => ExchangeEnd::Gone,
            NoTurn::TooLong { wait, reason } => GatewayRefusal::Limited { wait, reason }.into(),
        })
    }

    /// Ends when the client goes away, or the gateway does.
    async fn gone(&self, reply: &mut GatewayReply) {
        tokio::select! {
            () = reply.closed() => {}
            () = self.gate.cut.cancelled() => {}
        }
    }

    async fn send(&self, upstream: &Upstream, reply: &mut GatewayReply) -> Result<RelayOutcome, ExchangeEnd> {
        let mut path = self.protocol.below_base(self.head.uri.path()).to_owned();
        let query = self.head.uri.query().map(|query| match self.protocol {
            Protocol::Gemini => guard::without_key(query),
            Protocol::Anthropic | Protocol::Responses | Protocol::Chat => query.to_owned(),
        });
        if let Some(query) = query.filter(|query| !query.is_empty()) {
            path += &format!("?{query}");
        }
        let headers = headers::of_request(&self.head.headers);
        tokio::select! {
            biased;
            answered = upstream.relay.send(self.head.method.clone(), &path, &headers, self.body.clone()) => Ok(answered),
            () = self.gone(reply) => Err(ExchangeEnd::Gone),
        }
    }
}

fn unanswered(upstream: &Upstream, reason: &str) -> GatewayRefusal {
    GatewayRefusal::Unanswered(format!("{} did not answer: {reason}", upstream.relay.shown_base()))
}

/// Forwards an answer as it comes, and settles at its end.
async fn forward(
    mut response: caliban_http::Response,
    pieces: mpsc::Sender<AnswerPiece>,
    mut metered: Option<Box<Metered>>,
    cut: &CancellationToken,
) {
    let is_whole = loop {
        let next = tokio::select! {
            biased;
            next = response.chunk() => next,
            () = pieces.closed() => break false,
            () = cut.cancelled() => break false,
        };
        match next {
            Ok(Some(bytes)) => {
                if let Some(metered) = &mut metered {
                    metered.see(&bytes);
                }
                tokio::select! {
                    sent = pieces.send(AnswerPiece::Data(bytes)) => if sent.is_err() { break false },
                    () = cut.cancelled() => break false,
                }
            }
            Ok(None) => break true,
            Err(_) => break false,
        }
    };
    let settle = async {
        if let Some(mut metered) = metered {
            // Where the server has counted nothing, at least what was reserved counts.
            let usage = metered.reader.take().filter(|_| is_whole).and_then(RelayReader::finish);
            metered.settle(usage).await;
        }
    };
    let end = async {
        if is_whole {
            tokio::select! {
                _gone = pieces.send(AnswerPiece::End) => {}
                () = cut.cancelled() => {}
            }
        }
        drop(pieces);
    };
    // The client need not wait for the disk.
    tokio::join!(end, settle);
}

/// A request that the ledger knows of.
struct Metered {
    purse: Purse,
    reserved: Reserved,
    attempt: BudgetAttempt,
    /// Reads along in the answer.
    reader: Option<RelayReader>,
    /// Writes down that the request takes more than was reserved.
    counting: Option<JoinHandle<()>>,
    _under_way: UnderWay,
}

impl Metered {
    /// More of the answer has come.
    fn see(&mut self, bytes: &[u8]) {
        let Some(reader) = &mut self.reader else { return };
        reader.feed(bytes);
        self.attempt.said(reader.said());
        if let Some(usage) = reader.counted()
            && self.attempt.counted(usage)
        {
            // A process that is killed now leaves a request that counts as much.
            let (purse, reserved) = (self.purse.clone(), self.reserved.clone());
            self.counting = Some(tokio::spawn(async move { purse.count(&reserved, usage).await }));
        }
    }

    /// The provider has not begun to answer.
    async fn over(self, billed: Billed) {
        match billed {
            Billed::No => self.release().await,
            Billed::Perhaps => self.settle(None).await,
        }
    }

    /// It was not billed.
    async fn release(self) {
        self.purse.release(self.reserved).await;
    }

    /// It took this much; without a count, what is known of it, at least what was reserved.
    async fn settle(self, usage: Option<Usage>) {
        if let Some(counting) = self.counting {
            // It only writes, and what it would have written is known better now.
            let _ended = counting.await;
        }
        self.purse.settle(self.reserved, usage.unwrap_or(self.attempt.unknown()), &|_| {}).await;
    }
}
