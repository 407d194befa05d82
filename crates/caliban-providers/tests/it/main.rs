//! The providers through their public face, against a small server that answers as told.

mod bodies;
mod faults;
mod prefix;
mod scripted;
mod server;
mod streams;
