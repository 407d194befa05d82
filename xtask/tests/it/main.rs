//! Tests of the house itself: which crate may know which, and what holds for every crate.

#[cfg(test)]
mod directions;
#[cfg(test)]
mod house;
#[cfg(test)]
mod links;
#[cfg(test)]
mod made_mutants;
#[cfg(test)]
mod pages;
#[cfg(test)]
mod twins;
#[cfg(test)]
mod words;
