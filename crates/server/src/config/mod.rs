//! Reading configurations.

mod model;

pub(crate) use model::*;
