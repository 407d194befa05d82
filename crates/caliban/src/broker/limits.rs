//! The caps of an agent's mail (a11). How fast and how far it may send is the store's to say.

/// How many messages of other agents an agent hears in a row with no word of a person, the Director or the Administrator
/// between them. Messages beyond wait in the mailbox. Every agent counts by itself, so a ring of agents that answer each
/// other stops after at most this many rounds.
pub(super) const HEARD_IN_A_ROW: u32 = 50;
/// How many delivered messages may wait for the agent's next model request; more wait in the mailbox.
pub(super) const WAITING: usize = 16;
/// How many characters of a body the model is given at once; the rest is read with `BrokerInbox`.
pub(super) const BODY_CHARS: usize = 8_000;
/// How many characters of a name are shown.
pub(super) const NAME_CHARS: usize = 100;
/// How many characters of a description are stored and shown.
pub(super) const DESCRIPTION_CHARS: usize = 200;
/// The largest body that an agent sends.
pub(super) const SENT_BYTES: usize = 64 * 1024;
/// How many agents a list shows.
pub(super) const LISTED: usize = 200;
/// How many messages the inbox shows at once.
pub(super) const INBOX: u32 = 10;
