//! What is dangerous about a configuration that is good: one function for each danger, each with the place,
//! why it matters and what to do. A warning is for what probably isn't meant, a remark for what surprises.

use super::convert::Read;
use super::report::Finding;

/// Adds all warnings.
pub(super) fn add(_read: &Read, _findings: &mut Vec<Finding>) {}
