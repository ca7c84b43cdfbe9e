//! What an instance keeps for itself beside the shared store, as pure state: no IO, no clock, no waiting.
//!
//! Time is `now_us`: microseconds on the instance's own clock, which never steps. Instants are rounded up where
//! something is granted, and down where something ends.

pub mod purse;
