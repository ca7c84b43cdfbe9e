//! `lease` and `shards` of a policy.

use slidegate::core::lease::LEASE_MAX;
use slidegate::core::time::Millis;
use slidegate::policy::{Lease, PolicyBuilder, PolicyError, SHARDS_MAX};

use crate::config::fields::{Fields, Reader};
use crate::config::source::Span;
use crate::config::yaml::{Node, Value};

/// Both, as a step of the builder.
pub(super) fn settings(
    fields: &Fields<'_>,
    reader: &mut Reader<'_>,
) -> Option<impl FnOnce(PolicyBuilder) -> PolicyBuilder + use<>> {
    let lease = fields.get("lease").map_or(Some(Lease::None), |node| lease(node, reader));
    let most = u64::from(SHARDS_MAX);
    let shards = fields.get("shards").map_or(Some(1), |node| reader.int(node, "shards", 1..=most));
    let (lease, shards) = (lease?, u32::try_from(shards?).ok()?);
    Some(move |builder: PolicyBuilder| builder.lease(lease).shards(shards))
}

fn lease(node: &Node, reader: &mut Reader<'_>) -> Option<Lease> {
    let is_number = |text: &str| text.starts_with(|first: char| first.is_ascii_digit());
    match &node.value {
        Value::Scalar(scalar) if is_number(&scalar.text) => {
            reader.duration(node, "lease", Millis(1)..=LEASE_MAX).map(Lease::For)
        }
        _ => {
            // The last one is an example.
            let words = [("none", Lease::None), ("auto", Lease::Auto), ("20ms", Lease::For(Millis(20)))];
            reader.choice(node, "lease", &words, &[])
        }
    }
}

/// Where to point for what the policy as a whole does not allow.
pub(super) fn place_of(error: &PolicyError, fields: &Fields<'_>) -> Option<(Span, &'static str)> {
    let (field, help) = match error {
        PolicyError::LeaseLength { .. } => ("lease", "write a shorter one, or lease: auto"),
        PolicyError::LeaseLimit { .. } => ("lease", "write lease: none, or another limit"),
        PolicyError::Shards { .. } => ("shards", "write fewer"),
        PolicyError::CountDenied { .. } => {
            ("count_denied", "write count_denied: false, or leave lease and shards out")
        }
        _ => return None,
    };
    Some((fields.get(field)?.at, help))
}
