//! The effective policies as a table: what is really in force, in plain words, whatever the file says.

use slidegate::Policy;

/// The policies of a configuration, ready to be printed.
#[derive(Clone, Debug)]
pub(crate) struct Table;

impl Table {
    /// The table of these policies.
    pub(crate) fn of(_policies: &[Policy]) -> Self {
        Self
    }
}
