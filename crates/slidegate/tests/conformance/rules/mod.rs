//! The rules, by what they are about. Each is a sentence; each starts from an empty store.

pub(crate) mod changing;
pub(crate) mod clocks;
pub(crate) mod counting;
pub(crate) mod reserving;
pub(crate) mod together;
