//! Limits of a fleet agent (a11): its rate of messages, the length of a chain of answers, its number of identities.
//! People are not limited.
//!
//! An agent's identities share one allowance. The time is the wall clock of the writing process; a clock that jumps costs
//! at most one [`EVERY`].

use std::time::Duration;

use super::BrokerError;
use super::speaker::{Owner, Speaker};
use crate::Stamp;
use crate::ask::{Ask, Change};
use crate::open::Tx;

/// The number of messages that an agent may send in a burst ...
pub const BURST: u32 = 20;
/// ... and the time until it may send one more. A broadcast, a registration and a new session count as one message
/// each.
pub const EVERY: Duration = Duration::from_secs(3);
/// Maximum length of a chain of messages in which agents answer each other, before a person has to write one.
pub const HOPS: u32 = 32;
/// Maximum number of active identities of an agent, in all sessions.
pub const IDENTITIES: u32 = 8;
/// Maximum number of open messages per mailbox that are checked for their hops.
const OPEN: i64 = 100;

/// Takes one message from the allowance; returns the new `used_until`, or the time to wait.
///
/// `used_until` is the time at which the allowance will be full again.
fn allow(used_until: i64, now: i64) -> Result<i64, Duration> {
    let every = i64::try_from(EVERY.as_micros()).unwrap_or(i64::MAX);
    let whole = every.saturating_mul(i64::from(BURST));
    // A clock that was set back must not extend the wait.
    let used_until = used_until.clamp(now, now.saturating_add(whole));
    let next = used_until.saturating_add(every);
    let over = next.saturating_sub(now.saturating_add(whole));
    if over <= 0 { Ok(next) } else { Err(Duration::from_micros(over.unsigned_abs())) }
}

/// Takes one message from the agent's allowance.
pub(super) async fn take_one(tx: &mut Tx<'_>, speaker: &Speaker, now: Stamp) -> Result<(), BrokerError> {
    let Some(owner) = speaker.limited() else { return Ok(()) };
    let used_until: Option<i64> = sqlx::query_scalar("SELECT used_until FROM owners WHERE owner = $1")
        .bind(owner.as_str())
        .maybe(tx)
        .await?;
    let next = allow(used_until.unwrap_or(0), now.as_micros()).map_err(BrokerError::TooFast)?;
    sqlx::query(
        "INSERT INTO owners (owner, used_until) VALUES ($1, $2) ON CONFLICT (owner) DO UPDATE SET used_until = $2",
    )
    .bind(owner.as_str())
    .bind(next)
    .run(tx).await?;
    Ok(())
}

/// Refuses if the agent has the maximum number of identities already.
pub(super) async fn one_more_identity(tx: &mut Tx<'_>, speaker: &Speaker) -> Result<(), BrokerError> {
    let Speaker::Only(above) = speaker else { return Ok(()) };
    let Some(owner) = above.last() else { return Ok(()) };
    let count: i64 = sqlx::query_scalar("SELECT COUNT(*) FROM agents WHERE owner = $1 AND status = 'active'")
        .bind(owner.as_str())
        .one(tx)
        .await?;
    if count >= i64::from(IDENTITIES) { Err(BrokerError::TooManyIdentities) } else { Ok(()) }
}

/// The number of hops of this speaker's next message: 0 if it answers nothing, else one more than the message it
/// answers. An agent answers the messages it has received in its turn, and all open messages in its mailboxes.
pub(super) async fn hops(tx: &mut Tx<'_>, speaker: &Speaker) -> Result<u32, BrokerError> {
    let Some(owner) = speaker.limited() else { return Ok(0) };
    let answered: Option<i64> = sqlx::query_scalar(
        "SELECT MAX(hops) FROM (SELECT answering AS hops FROM owners WHERE owner = $1 UNION ALL \
         SELECT (SELECT MAX(t.hops) FROM (SELECT hops FROM tasks WHERE context_id = a.agent_id \
         AND status_state = 'input_required' ORDER BY seq DESC LIMIT $2) t) FROM agents a WHERE a.owner = $1)",
    )
    .bind(owner.as_str())
    .bind(OPEN)
    .one(tx).await?;
    let hops = answered.map_or(0, |hops| u32::try_from(hops).unwrap_or(u32::MAX).saturating_add(1));
    if hops > HOPS { Err(BrokerError::TooManyHops) } else { Ok(hops) }
}

/// Records that the agent has received a message with so many hops. A message of a person starts a new chain.
pub(super) async fn heard(
    tx: &mut Tx<'_>,
    speaker: &Speaker,
    from: &super::AgentId,
    hops: u32,
) -> Result<(), BrokerError> {
    let Some(owner) = speaker.limited() else { return Ok(()) };
    let by_agent: Option<i64> =
        sqlx::query_scalar("SELECT 1 FROM agents WHERE agent_id = $1 AND owner IS NOT NULL")
            .bind(from.to_string())
            .maybe(tx)
            .await?;
    if by_agent.is_none() {
        return forget(tx, owner).await;
    }
    sqlx::query(
        "INSERT INTO owners (owner, used_until, answering) VALUES ($1, 0, $2) \
         ON CONFLICT (owner) DO UPDATE SET answering = MAX(COALESCE(answering, 0), $2)",
    )
    .bind(owner.as_str())
    .bind(i64::from(hops))
    .run(tx)
    .await?;
    Ok(())
}

async fn forget(tx: &mut Tx<'_>, owner: &Owner) -> Result<(), BrokerError> {
    sqlx::query("UPDATE owners SET answering = NULL WHERE owner = $1").bind(owner.as_str()).run(tx).await?;
    Ok(())
}

impl super::Broker {
    /// The worker's agent has dealt with the messages it received: its next message answers nothing.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn answered(&mut self) -> Result<(), BrokerError> {
        let Some(owner) = self.speaker.limited().cloned() else { return Ok(()) };
        let mut tx = self.db.begin().await?;
        let outcome = forget(&mut tx, &owner).await;
        tx.finish(outcome).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a11_a_flood_is_cut_to_the_burst_and_then_to_the_rate() {
        let every = i64::try_from(EVERY.as_micros()).expect("small");
        let taken = |used: &mut i64, now: i64| {
            (0..1000).take_while(|_| allow(*used, now).map(|next| *used = next).is_ok()).count()
        };
        let (mut used, start) = (0, 1_000_000 * every);
        assert_eq!(taken(&mut used, start), BURST as usize);
        assert_eq!(allow(used, start + every / 3), Err(EVERY - EVERY / 3));
        assert_eq!(taken(&mut used, start + 3 * every), 3);
        assert_eq!(taken(&mut used, start + 10_000 * every), BURST as usize);
        // r15: after the clock was set back a day, nobody has to wait for a day.
        let back = start - 30_000 * every;
        assert_eq!(allow(used, back), Err(EVERY));
    }
}
