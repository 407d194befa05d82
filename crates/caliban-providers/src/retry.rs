//! When a failed attempt is made again, and after how long.
//!
//! The decision is a pure function of the failure and of what was tried before; [`run`] carries it
//! out, tells the observer and races the caller's cancellation.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{
    BoxFuture, Delta, Governor, ModelReply, ModelRequest, ProviderError, WaitCause, Watch,
    error::{AttemptFailure, Circumstances},
    governor,
    kind::ProviderKind,
    wire::Observe,
};

/// A `Retry-After` below this is followed only as far as it is no faster than our own pace: a server may ask for no wait and
/// refuse again at once, without end.
const SHORTEST_ASKED: Duration = Duration::from_secs(1);

/// How failures are met.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetryPolicy {
    /// How often a request is tried when the server or the stream fails.
    pub attempts: u32,
    /// How long a server is waited for that cannot be reached: it is restarted, or the network is away.
    pub outage: Duration,
    /// The first wait; each further one is twice as long.
    pub first_wait: Duration,
    /// The longest wait of our own choosing.
    pub longest_wait: Duration,
    /// How long rate limits and overload are waited out, in total.
    pub patience: Duration,
    /// How long a server may be silent, before its answer begins and within it.
    pub stall: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            attempts: 5,
            outage: Duration::from_secs(15),
            first_wait: Duration::from_millis(500),
            longest_wait: Duration::from_secs(30),
            patience: Duration::from_secs(30 * 60),
            stall: Duration::from_secs(120),
        }
    }
}

/// What was tried so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Tried {
    /// Attempts that failed, this one included.
    pub(crate) attempts: u32,
    /// Of these, how many were refused by a rate limit or overload.
    pub(crate) limited: u32,
    /// How long rate limits were waited out.
    pub(crate) waited: Duration,
    /// How many attempts in a row did not reach the server.
    pub(crate) outages: u32,
    /// Of all attempts, how many did not reach the server.
    pub(crate) unreached: u32,
    /// For how long it could not be reached.
    pub(crate) down: Duration,
}

/// What is done about a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RetryDecision {
    Again { wait: Duration },
    GiveUp,
}

/// One attempt at a request; the thing that is retried.
pub(crate) trait Attempt: Send + Sync {
    fn attempt<'a>(
        &'a self,
        request: &'a ModelRequest<'a>,
        observe: &'a mut Observe<'a>,
    ) -> BoxFuture<'a, Result<ModelReply, AttemptFailure>>;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    Final,
    /// The server was not reached, or only what stands in front of it.
    Outage,
    Passing,
    Limited(Option<Duration>),
}

impl RetryPolicy {
    /// Decides. `jitter` is from 0 to 1.
    pub(crate) fn decide(&self, failure: &AttemptFailure, tried: &Tried, jitter: f64) -> RetryDecision {
        match classify(failure) {
            Class::Final => RetryDecision::GiveUp,
            Class::Outage if tried.down >= self.outage => RetryDecision::GiveUp,
            Class::Outage => {
                // The last attempt is made when the patience ends.
                let wait = self.back_off(tried.outages, jitter).min(self.outage - tried.down);
                RetryDecision::Again { wait }
            }
            Class::Passing => {
                let failed = tried.attempts - tried.limited - tried.unreached;
                if failed >= self.attempts {
                    RetryDecision::GiveUp
                } else {
                    RetryDecision::Again { wait: self.back_off(failed, jitter) }
                }
            }
            Class::Limited(asked) => {
                let pace = self.back_off(tried.limited, jitter);
                let wait = match asked.filter(|asked| !asked.is_zero()) {
                    // A little more than asked, so that not everybody comes back at once.
                    Some(asked) => {
                        let spread = self.first_wait.min(asked / 10).mul_f64(jitter);
                        asked.saturating_add(spread).max(pace.min(SHORTEST_ASKED))
                    }
                    None => pace,
                };
                if tried.waited.saturating_add(wait) > self.patience {
                    RetryDecision::GiveUp
                } else {
                    RetryDecision::Again { wait }
                }
            }
        }
    }

    /// Doubles with each failure up to a limit; between half of that and all of it.
    fn back_off(&self, failures: u32, jitter: f64) -> Duration {
        let doubled = self.first_wait.saturating_mul(2_u32.saturating_pow(failures.saturating_sub(1)));
        doubled.min(self.longest_wait).mul_f64(0.5 + jitter.clamp(0.0, 1.0) / 2.0)
    }
}

fn classify(failure: &AttemptFailure) -> Class {
    use caliban_http::HttpError;
    match failure {
        AttemptFailure::Status { .. } if failure.is_quota() => Class::Final,
        AttemptFailure::Status { status: 429 | 529, retry_after, .. } => Class::Limited(*retry_after),
        AttemptFailure::Status { status: 503, retry_after: Some(asked), .. } => Class::Limited(Some(*asked)),
        // What a gateway says whose server is away.
        AttemptFailure::Status { status: 502..=504, .. } => Class::Outage,
        AttemptFailure::Status { status: 408 | 409 | 500..=599, .. } => Class::Passing,
        AttemptFailure::Status { .. } => Class::Final,
        AttemptFailure::Network(
            HttpError::Refused { .. }
            | HttpError::Dns { .. }
            | HttpError::Timeout { .. }
            | HttpError::Closed { .. }
            | HttpError::Other { .. },
        ) => Class::Outage,
        AttemptFailure::Network(HttpError::ClosedMidBody { .. }) => Class::Passing,
        // A wrong URL, certificate, proxy login or address stays wrong.
        AttemptFailure::Network(_) => Class::Final,
        // Garbage in a stream is mostly something on the way that broke it.
        AttemptFailure::Cut | AttemptFailure::Stalled(_) | AttemptFailure::Unreadable(_) => Class::Passing,
        AttemptFailure::TooLarge(_) | AttemptFailure::NotTheApi(_) | AttemptFailure::Script(_) => {
            Class::Final
        }
    }
}

/// Whose request is tried.
#[derive(Clone, Copy)]
pub(crate) struct RetryTarget<'a> {
    pub(crate) provider: ProviderKind,
    pub(crate) url: &'a str,
    pub(crate) policy: &'a RetryPolicy,
    pub(crate) governor: Option<&'a Arc<dyn Governor>>,
}

/// Tries a request until it is answered or there is no more hope.
pub(crate) async fn run(
    target: RetryTarget<'_>,
    attempt: &dyn Attempt,
    request: &ModelRequest<'_>,
    watch: &mut dyn Watch,
    cancel: &CancellationToken,
) -> Result<ModelReply, ProviderError> {
    let mut tried = Tried::default();
    let mut down_since = None;
    loop {
        if let Some(governor) = target.governor {
            tried.waited += governor::pass(governor, watch, cancel).await?;
        }
        if watch.before_attempt().await.is_err() {
            return Err(ProviderError::Stopped);
        }
        let sent = Instant::now();
        let mut shown = false;
        let mut observe = |delta: Delta| {
            shown |= !matches!(delta, Delta::Usage(_));
            watch.see(delta);
        };
        let answered = tokio::select! {
            biased;
            () = cancel.cancelled() => return Err(ProviderError::Cancelled),
            answered = attempt.attempt(request, &mut observe) => answered,
        };
        let failure = match answered {
            Ok(reply) => return Ok(reply),
            Err(failure) => failure,
        };
        if watch.attempt_failed(failure.billed()).await.is_err() {
            return Err(ProviderError::Stopped);
        }
        let cause = wait_cause(classify(&failure));
        tried.attempts += 1;
        tried.limited += u32::from(cause == WaitCause::RateLimit);
        if cause == WaitCause::Outage {
            tried.unreached += 1;
            tried.outages += 1;
            tried.down = down_since.get_or_insert_with(Instant::now).elapsed();
        } else {
            // Somebody is there again.
            (tried.outages, tried.down, down_since) = (0, Duration::ZERO, None);
        }
        let reason = failure.in_words();
        match target.policy.decide(&failure, &tried, fastrand::f64()) {
            RetryDecision::GiveUp => {
                return Err(failure.explain(&Circumstances {
                    provider: target.provider,
                    url: target.url,
                    model: request.model,
                    attempts: tried.attempts,
                    waited: tried.waited,
                    down: tried.down,
                }));
            }
            RetryDecision::Again { wait } => {
                if shown {
                    watch.see(Delta::Restart { reason: reason.clone() });
                }
                if cause == WaitCause::RateLimit {
                    if let Some(governor) = target.governor {
                        // All who use the key wait, and so does this one, for its turn.
                        let asked = asked_wait(&failure).map(|_| wait);
                        governor.limited(&reason, asked, sent.elapsed()).await;
                        continue;
                    }
                    tried.waited += wait;
                }
                watch.see(Delta::Waiting { reason, wait, cause });
                tokio::select! {
                    biased;
                    () = cancel.cancelled() => return Err(ProviderError::Cancelled),
                    () = tokio::time::sleep(wait) => {}
                }
            }
        }
    }
}

/// The wait that the server has asked for.
pub(crate) fn asked_wait(failure: &AttemptFailure) -> Option<Duration> {
    match classify(failure) {
        Class::Limited(asked) => asked.filter(|asked| !asked.is_zero()),
        Class::Final | Class::Outage | Class::Passing => None,
    }
}

/// Whether the server has refused the request for a rate limit or overload.
pub(crate) fn is_limited(failure: &AttemptFailure) -> bool {
    matches!(classify(failure), Class::Limited(_))
}

fn wait_cause(class: Class) -> WaitCause {
    match class {
        Class::Limited(_) => WaitCause::RateLimit,
        Class::Outage => WaitCause::Outage,
        Class::Passing | Class::Final => WaitCause::Retry,
    }
}

/// The wait that a `Retry-After` header asks for: seconds or a date.
pub(crate) fn retry_after(value: &str, now: jiff::Timestamp) -> Option<Duration> {
    let value = value.trim();
    if let Ok(seconds) = value.parse::<f64>() {
        return Duration::try_from_secs_f64(seconds).ok();
    }
    let at = jiff::fmt::rfc2822::parse(value).ok()?.timestamp();
    // A date in the past asks for no wait at all.
    Some(Duration::try_from(at.duration_since(now)).unwrap_or_default())
}

/// A span as OpenAI's headers have it: `20ms`, `1.5s`, `6m0s`, `1h2m3s`.
pub(crate) fn span(text: &str) -> Option<Duration> {
    let (mut rest, mut sum) = (text.trim(), Duration::ZERO);
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let (number, more) = rest.split_at(rest.find(|c: char| c.is_ascii_alphabetic())?);
        let (unit, more) = more.split_at(more.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(more.len()));
        let seconds = match unit {
            "ms" => 0.001,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            "d" => 86_400.0,
            _ => return None,
        };
        sum = sum.checked_add(Duration::try_from_secs_f64(number.parse::<f64>().ok()? * seconds).ok()?)?;
        rest = more;
    }
    Some(sum)
}

/// The wait that OpenAI writes into its messages: `Please try again in 1.5s`.
pub(crate) fn wait_in_words(message: &str) -> Option<Duration> {
    let (_, rest) = message.split_once("try again in ")?;
    span(rest.split_whitespace().next()?.trim_end_matches(['.', ',']))
}

/// The wait that Gemini puts into the details of its error: `"retryDelay": "33s"`.
pub(crate) fn wait_in_details(body: &str) -> Option<Duration> {
    let value: serde_json::Value = serde_json::from_str(body).ok()?;
    let value = value.get(0).unwrap_or(&value);
    let details = value.pointer("/error/details")?.as_array()?;
    let delay = details.iter().find_map(|detail| detail.get("retryDelay")?.as_str())?;
    Duration::try_from_secs_f64(delay.trim_end_matches('s').parse().ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    fn status(status: u16, retry_after: Option<Duration>) -> AttemptFailure {
        AttemptFailure::Status { status, code: String::new(), reason: String::new(), retry_after }
    }

    fn refused() -> AttemptFailure {
        AttemptFailure::Network(caliban_http::HttpError::Refused { host: "h".into() })
    }

    fn decide(failure: &AttemptFailure, attempts: u32, limited: u32, waited: Duration) -> RetryDecision {
        let tried = Tried { attempts, limited, waited, ..Tried::default() };
        RetryPolicy::default().decide(failure, &tried, 1.0)
    }

    #[test]
    fn what_is_tried_again_and_how_often() {
        let again = |failure: &AttemptFailure| {
            (1..9).take_while(|n| decide(failure, *n, 0, Duration::ZERO) != RetryDecision::GiveUp).count()
        };
        let tls =
            AttemptFailure::Network(caliban_http::HttpError::Tls { host: "h".into(), reason: "r".into() });
        let cases = [
            (status(500, None), 4),
            (status(507, None), 4),
            (AttemptFailure::Cut, 4),
            (AttemptFailure::Stalled(MS(1)), 4),
            (status(400, None), 0),
            (status(401, None), 0),
            (status(403, None), 0),
            (status(404, None), 0),
            (tls, 0),
            (AttemptFailure::Unreadable(String::new()), 4),
            (AttemptFailure::NotTheApi(String::new()), 0),
        ];
        for (failure, expected) in cases {
            assert_eq!(again(&failure), expected, "{failure:?}");
        }
    }

    #[test]
    fn a_server_that_cannot_be_reached_is_waited_for_until_the_patience_ends() {
        let closed = AttemptFailure::Network(caliban_http::HttpError::Closed { host: "h".into() });
        for failure in [refused(), closed, status(502, None), status(503, None), status(504, None)] {
            let after = |outages: u32, down: u64| {
                let tried = Tried {
                    attempts: outages,
                    unreached: outages,
                    outages,
                    down: MS(down),
                    ..Tried::default()
                };
                RetryPolicy::default().decide(&failure, &tried, 1.0)
            };
            assert_eq!(after(1, 0), RetryDecision::Again { wait: MS(500) }, "{failure:?}");
            assert_eq!(after(4, 4_000), RetryDecision::Again { wait: MS(4_000) }, "{failure:?}");
            // The last attempt is made at the very end.
            assert_eq!(after(9, 14_000), RetryDecision::Again { wait: MS(1_000) }, "{failure:?}");
            assert_eq!(after(9, 15_000), RetryDecision::GiveUp, "{failure:?}");
        }
        // Attempts that did not reach the server do not count among those that failed there.
        let tried = Tried { attempts: 9, unreached: 8, ..Tried::default() };
        assert_eq!(
            RetryPolicy::default().decide(&AttemptFailure::Cut, &tried, 1.0),
            RetryDecision::Again { wait: MS(500) }
        );
    }

    #[test]
    fn the_wait_doubles_up_to_a_limit_with_jitter() {
        let waits = [1, 2, 3, 9].map(|n| RetryPolicy::default().back_off(n, 1.0));
        assert_eq!(waits, [MS(500), MS(1000), MS(2000), MS(30_000)]);
        assert_eq!(RetryPolicy::default().back_off(1, 0.0), MS(250));
    }

    #[test]
    fn a_rate_limit_is_waited_out_as_long_as_asked_and_up_to_our_patience() {
        let limit = status(429, Some(MS(60_000)));
        assert_eq!(decide(&limit, 50, 50, MS(0)), RetryDecision::Again { wait: MS(60_500) });
        // One that asks for no wait is asked at our own pace, and not for ever.
        let now = status(429, Some(MS(0)));
        assert_eq!(decide(&now, 3, 3, MS(0)), RetryDecision::Again { wait: MS(2_000) });
        assert_eq!(decide(&now, 99, 99, MS(1_790_000)), RetryDecision::GiveUp);
        assert_eq!(decide(&limit, 50, 50, MS(1_740_000)), RetryDecision::GiveUp);
        assert_eq!(decide(&status(529, None), 1, 1, MS(0)), RetryDecision::Again { wait: MS(500) });
        assert_eq!(
            decide(&status(503, Some(MS(1000))), 9, 9, MS(0)),
            RetryDecision::Again { wait: MS(1100) }
        );
    }

    #[test]
    fn an_empty_account_is_not_waited_for() {
        let failure = AttemptFailure::Status {
            status: 429,
            code: "insufficient_quota".into(),
            reason: String::new(),
            retry_after: None,
        };
        assert_eq!(decide(&failure, 1, 1, MS(0)), RetryDecision::GiveUp);
    }

    #[test]
    fn waits_are_read_from_headers_words_and_details() {
        let now: jiff::Timestamp = "2026-11-15T12:00:00Z".parse().unwrap();
        assert_eq!(retry_after(" 7 ", now), Some(MS(7000)));
        assert_eq!(retry_after("Sun, 15 Nov 2026 12:00:30 GMT", now), Some(MS(30_000)));
        assert_eq!(retry_after("Sun, 15 Nov 2026 11:00:00 GMT", now), Some(MS(0)));
        assert_eq!(retry_after("soon", now), None);
        assert_eq!(retry_after("-1", now), None);
        assert_eq!(wait_in_words("Limit reached. Please try again in 11.5s. Visit"), Some(MS(11_500)));
        assert_eq!(wait_in_words("Please try again in 20ms."), Some(MS(20)));
        assert_eq!(wait_in_words("Please try again in a day"), None);
        let body = r#"{"error":{"details":[{"@type":"x"},{"retryDelay":"33s"}]}}"#;
        assert_eq!(wait_in_details(body), Some(MS(33_000)));
    }
}
