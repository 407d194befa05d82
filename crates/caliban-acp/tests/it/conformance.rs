//! The protocol's own client against our server.
