//! The seam for those who use the same key together: one of them that is told to wait tells all of them.
//!
//! Owns what a server's headers say about its limits, and waiting for a turn. Who waits for whom is the governor's.

use std::{sync::Arc, time::Duration};

use caliban_http::Response;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{BoxFuture, Delta, ProviderError, WaitCause, Watch, retry};

/// The longest sleep before the governor is asked again: somebody may have given up meanwhile.
const LONGEST_SLEEP: Duration = Duration::from_secs(5);
/// The shortest.
const SHORTEST_SLEEP: Duration = Duration::from_millis(5);

/// A turn that is older than this when we hear of it, because we were stopped or the disk was slow, is asked for again.
const TURN_LASTS: Duration = Duration::from_secs(5);

/// What a server still takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allowance {
    /// Requests in a period.
    pub limit: u64,
    /// How many are left of them.
    pub left: u64,
    /// When there are as many again.
    pub reset: Duration,
}

/// Whether a request may be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Admitted {
    /// Now.
    Go,
    /// Not before this time has passed.
    Wait {
        /// How long, by what is known now.
        wait: Duration,
        /// The place in the queue, to be shown the next time.
        ticket: i64,
        /// Why, in words.
        reason: String,
    },
}

/// Lets the requests of all who use the same key through, in order.
pub trait Governor: Send + Sync {
    /// Asks for a turn.
    fn admit(&self, ticket: Option<i64>) -> BoxFuture<'_, Admitted>;

    /// Who waited does not want to send any more.
    fn give_up(&self, ticket: i64) -> BoxFuture<'_, ()>;

    /// The server has refused a request that was sent this long ago, and asks for this wait.
    fn limited<'a>(&'a self, reason: &'a str, asked: Option<Duration>, ago: Duration) -> BoxFuture<'a, ()>;

    /// The server has answered, and may have said what it still takes.
    fn answered(&self, allowance: Option<Allowance>) -> BoxFuture<'_, ()>;
}

/// A place in the queue. Whoever drops it while it waits gives it up, so that nobody waits behind one who does not come.
struct QueuePlace<'a> {
    governor: &'a Arc<dyn Governor>,
    ticket: Option<i64>,
}

impl Drop for QueuePlace<'_> {
    fn drop(&mut self) {
        if let (Some(ticket), Ok(runtime)) = (self.ticket.take(), tokio::runtime::Handle::try_current()) {
            let governor = self.governor.clone();
            runtime.spawn(async move { governor.give_up(ticket).await });
        }
    }
}

/// Waits for a turn; how long that took.
pub(crate) async fn pass(
    governor: &Arc<dyn Governor>,
    watch: &mut dyn Watch,
    cancel: &CancellationToken,
) -> Result<Duration, ProviderError> {
    let began = Instant::now();
    let mut place = QueuePlace { governor, ticket: None };
    let mut told = None::<Instant>;
    loop {
        let asked = Instant::now();
        match governor.admit(place.ticket).await {
            Admitted::Go if asked.elapsed() > TURN_LASTS => place.ticket = None,
            Admitted::Go => {
                let waited = place.ticket.take().map(|_| began.elapsed());
                return Ok(waited.unwrap_or_default());
            }
            Admitted::Wait { wait, ticket, reason } => {
                place.ticket = Some(ticket);
                let end = Instant::now() + wait;
                // A little later than was said is not news.
                if told.is_none_or(|told| end.saturating_duration_since(told) > Duration::from_secs(1)) {
                    told = Some(end);
                    let reason = if reason.is_empty() { "waiting for its turn".to_owned() } else { reason };
                    watch.see(Delta::Waiting { reason, wait, cause: WaitCause::RateLimit });
                }
                tokio::select! {
                    biased;
                    () = cancel.cancelled() => {
                        governor.give_up(ticket).await;
                        place.ticket = None;
                        return Err(ProviderError::Cancelled);
                    }
                    () = tokio::time::sleep(wait.clamp(SHORTEST_SLEEP, LONGEST_SLEEP)) => {}
                }
            }
        }
    }
}

/// What the headers of an answer say: Anthropic's, or those of OpenAI and its like.
pub(crate) fn allowance(response: &Response, now: jiff::Timestamp) -> Option<Allowance> {
    of_headers(|name| response.header(name).map(str::to_owned), now)
}

fn of_headers(header: impl Fn(&str) -> Option<String>, now: jiff::Timestamp) -> Option<Allowance> {
    let number = |name: &str| header(name)?.trim().parse::<u64>().ok();
    let anthropic = || {
        let at: jiff::Timestamp = header("anthropic-ratelimit-requests-reset")?.trim().parse().ok()?;
        Some(Allowance {
            limit: number("anthropic-ratelimit-requests-limit")?,
            left: number("anthropic-ratelimit-requests-remaining")?,
            reset: Duration::try_from(at.duration_since(now)).unwrap_or_default(),
        })
    };
    let openai = || {
        Some(Allowance {
            limit: number("x-ratelimit-limit-requests")?,
            left: number("x-ratelimit-remaining-requests")?,
            reset: retry::span(&header("x-ratelimit-reset-requests")?)?,
        })
    };
    anthropic().or_else(openai)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// Lets nobody through, and writes down who gave up.
    #[derive(Default)]
    struct Closed(Mutex<Vec<i64>>);

    impl Governor for Closed {
        fn admit(&self, _ticket: Option<i64>) -> BoxFuture<'_, Admitted> {
            let wait = Duration::from_secs(60);
            Box::pin(async move { Admitted::Wait { wait, ticket: 7, reason: String::new() } })
        }

        fn give_up(&self, ticket: i64) -> BoxFuture<'_, ()> {
            Box::pin(async move { self.0.lock().unwrap().push(ticket) })
        }

        fn limited<'a>(&'a self, _: &'a str, _: Option<Duration>, _: Duration) -> BoxFuture<'a, ()> {
            Box::pin(async {})
        }

        fn answered(&self, _: Option<Allowance>) -> BoxFuture<'_, ()> {
            Box::pin(async {})
        }
    }

    /// Grants each turn, the first one late.
    #[derive(Default)]
    struct Late(Mutex<u32>);

    impl Governor for Late {
        fn admit(&self, _ticket: Option<i64>) -> BoxFuture<'_, Admitted> {
            Box::pin(async move {
                let is_first = {
                    let mut asked = self.0.lock().unwrap();
                    *asked += 1;
                    *asked == 1
                };
                // As if the process had been stopped meanwhile.
                let took = if is_first { TURN_LASTS * 2 } else { Duration::ZERO };
                tokio::time::advance(took).await;
                Admitted::Go
            })
        }

        fn give_up(&self, _: i64) -> BoxFuture<'_, ()> {
            Box::pin(async {})
        }

        fn limited<'a>(&'a self, _: &'a str, _: Option<Duration>, _: Duration) -> BoxFuture<'a, ()> {
            Box::pin(async {})
        }

        fn answered(&self, _: Option<Allowance>) -> BoxFuture<'_, ()> {
            Box::pin(async {})
        }
    }

    #[tokio::test(start_paused = true)]
    async fn r25_r05_who_was_stopped_at_its_turn_asks_again_before_it_sends() {
        let late = Arc::new(Late::default());
        let governor: Arc<dyn Governor> = late.clone();
        pass(&governor, &mut |_: Delta| {}, &CancellationToken::new()).await.unwrap();
        assert_eq!(*late.0.lock().unwrap(), 2);
    }

    #[tokio::test]
    async fn r24_nobody_waits_behind_one_whose_request_was_dropped() {
        let closed = Arc::new(Closed::default());
        let (governor, cancel): (Arc<dyn Governor>, _) = (closed.clone(), CancellationToken::new());
        let mut watch = |_: Delta| {};
        tokio::select! {
            biased;
            passed = pass(&governor, &mut watch, &cancel) => panic!("{passed:?}"),
            () = std::future::ready(()) => {}
        }
        tokio::task::yield_now().await;
        assert_eq!(*closed.0.lock().unwrap(), [7]);
        cancel.cancel();
        assert_eq!(pass(&governor, &mut watch, &cancel).await, Err(ProviderError::Cancelled));
        tokio::task::yield_now().await;
        assert_eq!(*closed.0.lock().unwrap(), [7, 7], "once for each");
    }

    #[test]
    fn r24_what_is_left_of_a_limit_is_read_from_the_headers_of_both_kinds() {
        let now: jiff::Timestamp = "2026-11-17T12:00:00Z".parse().unwrap();
        let read = |all: &[(&str, &str)]| {
            let all: Vec<(String, String)> =
                all.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            of_headers(|name| all.iter().find(|(it, _)| it == name).map(|(_, value)| value.clone()), now)
        };
        let expected =
            |limit, left, seconds| Some(Allowance { limit, left, reset: Duration::from_secs(seconds) });
        let anthropic = [
            ("anthropic-ratelimit-requests-limit", "50"),
            ("anthropic-ratelimit-requests-remaining", "7"),
            ("anthropic-ratelimit-requests-reset", "2026-11-17T12:00:30Z"),
        ];
        assert_eq!(read(&anthropic), expected(50, 7, 30));
        let openai = |reset| {
            [
                ("x-ratelimit-limit-requests", "60"),
                ("x-ratelimit-remaining-requests", "0"),
                ("x-ratelimit-reset-requests", reset),
            ]
        };
        for (reset, seconds) in [("1s", 1), ("6m0s", 360), ("1h2m3s", 3723)] {
            assert_eq!(read(&openai(reset)), expected(60, 0, seconds), "{reset}");
        }
        assert_eq!(read(&openai("soon")), None);
        assert_eq!(read(&anthropic[..2]), None);
    }
}
