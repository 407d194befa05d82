//! Tests of the core through its public face.

#[cfg(test)]
mod access;
#[cfg(test)]
mod budget;
#[cfg(test)]
mod cap;
#[cfg(test)]
mod ids;
#[cfg(test)]
mod inert;
#[cfg(test)]
mod lifecycle;
#[cfg(test)]
mod message;
#[cfg(test)]
mod mode;

mod models;
#[cfg(test)]
mod names;
#[cfg(test)]
mod price;
#[cfg(test)]
mod priority;
#[cfg(test)]
mod redact;
#[cfg(test)]
mod spec;
#[cfg(test)]
mod timetable;
#[cfg(test)]
mod words;
