//! HTTP, as every door speaks it: who the client is, which path a request means, and what an answer says.

pub mod client_ip;
pub mod path;

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
