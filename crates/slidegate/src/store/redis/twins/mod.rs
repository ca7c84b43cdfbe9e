//! The scripts held against [`slidegate_core`] on a real server.
//!
//! A script is called with bytes that say everything: the instant, the limits, who asks. So one call is one step
//! of the model, from the value that is there to the value that is left, and both can be compared: what is
//! answered, what is stored, how long it lives. What is not here: connections, retries, policies (the conformance
//! suite has those, through the store).
//!
//! | module | |
//! |---|---|
//! | `desk` | a server, and what a call leaves there |
//! | `ask`, `model`, `walk` | the tick log in all its shapes, step by step |
//! | `shapes` | walks that visit every shape of the tick log |
//! | `edges`, `foreign`, `refused` | numbers at their ends; values of others; servers that refuse |
//! | `plain` | the written-out paths beside the long way |
//! | `lives` | TTLs |
//! | `sent` | which commands are sent |
//! | `noise` | random bytes in calls and in values |
//!
//! Times are milliseconds unless the name says otherwise.

mod ask;
mod desk;
mod edges;
mod foreign;
mod lives;
mod model;
mod noise;
mod plain;
mod refused;
mod sent;
mod shapes;
mod walk;
