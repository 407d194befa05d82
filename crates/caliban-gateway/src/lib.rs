//! The loopback gateway: other programs' model requests, sent with our key, from our ledger, at our governor.
//!
//! A program gets an address on 127.0.0.1 and a token. The gateway reserves each request in the machine's ledger before it is
//! sent, forwards body and answer byte for byte, and settles what the answer says. It refuses to listen anywhere else than on
//! loopback, to change a body, and to let anybody in without a token. Reads neither settings nor environment.

mod answer_body;
mod exchange;
mod guard;
mod headers;
mod refusal;
mod request_body;
mod route;
mod server;
mod tokens;

pub use server::{DEFAULT_PORT, Gateway, GatewayOptions, MAX_WAIT, StartError, Upstream, Upstreams};
pub use tokens::{Keys, NewToken, Token, TokenError, Tokens};
