//! Tests of the core through its public face.

#[cfg(test)]
mod cap;
#[cfg(test)]
mod ids;
#[cfg(test)]
mod inert;
#[cfg(test)]
mod names;
