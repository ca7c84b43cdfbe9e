//! The path that a request means, however it is spelled.

/// How paths are read for matching.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathRules {
    /// `//` is `/`.
    pub merge_slashes: bool,
    /// Whether `/r/` is `/r`.
    pub trailing_slash: TrailingSlash,
}

/// What a slash at the end of a path means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TrailingSlash {
    /// Nothing: `/r` and `/r/` are the same, and no limit is dodged by adding one.
    #[default]
    Ignore,
    /// `/r` and `/r/` are two paths.
    Strict,
}

impl Default for PathRules {
    fn default() -> Self {
        Self { merge_slashes: true, trailing_slash: TrailingSlash::Ignore }
    }
}
