//! HTTP, as every door speaks it: who the client is, which path a request means, and what an answer says.
//!
//! * [`client_ip`] finds the client's address behind proxies, and refuses to be told it by the client.
//! * [`path`] writes a path in the one way in which limits are matched, so that none is dodged by spelling.
//! * [`fields`] tells a client where it stands: `RateLimit-Policy`, `RateLimit`, `Retry-After`.
//! * [`answer`] makes whole answers for requests that do not go on.
//!
//! Gateway, API and middleware all call these, so that one rule holds at every door. Nothing here does IO
//! or reads a clock.

pub mod answer;
pub mod client_ip;
pub mod fields;
pub mod path;
#[cfg(test)]
mod samples;

/// Which header fields answers carry beside `RateLimit` and `RateLimit-Policy`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AnswerOptions {
    /// Also send `X-RateLimit-Limit`, `-Remaining` and `-Reset`.
    pub legacy: Legacy,
    /// Also send `slidegate-mode`.
    pub mode: bool,
}

/// The unofficial `X-RateLimit-*` fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Legacy {
    /// Not sent.
    #[default]
    None,
    /// `X-RateLimit-Reset` in seconds from now.
    Delta,
    /// `X-RateLimit-Reset` as seconds since the Unix epoch.
    Epoch,
}
