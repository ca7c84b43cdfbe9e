//! What a store has done, as metrics. Each kind of store has its own, so that none is always 0 for want of meaning.
//!
//! Of a label only `outcome` and `fault` have values, and those of nodes; all of them are there from the start.

use std::fmt;
use std::time::Duration;

use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;
use slidegate::core::instance::ladder::{Step, Transition};
use slidegate::error::Fault;
use slidegate::store::memory::MemoryFigures;
use slidegate::store::redis::{NodeFigures, RedisFigures};

use crate::store::AnyStore;

/// Writes the figures of a store.
pub(super) fn encode(store: &AnyStore, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    match store {
        AnyStore::Memory(store) => memory(store.figures(), encoder),
        AnyStore::Redis(store) => {
            redis(&store.figures(), encoder)?;
            nodes(&store.nodes(), encoder)
        }
    }
}

/// A name without prefix and suffix, what it is, and how much.
type Sample = (&'static str, &'static str, u64);

fn memory(figures: MemoryFigures, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    gauges(
        &[
            ("store_keys", "Counters held.", figures.keys),
            ("store_reservations", "Reservations that wait to be settled.", figures.reservations),
        ],
        encoder,
    )?;
    counters(
        &[
            (
                "store_live_evictions",
                "Counters dropped for lack of space while they held permits.",
                figures.live_evictions,
            ),
            ("store_full_denials", "Checks denied because only denied keys were held.", figures.full_denials),
        ],
        encoder,
    )
}

fn redis(figures: &RedisFigures, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    gauges(
        &[
            ("store_connected", "1 while calls can be sent.", figures.connected.into()),
            ("store_in_roll_call", "1 while this instance is in a roll call.", figures.in_roll_call.into()),
            (
                "store_failing",
                "1 from a check that failed until checks were answered.",
                figures.failing.into(),
            ),
            ("store_evicts", "1 if the server may evict counters that are in use.", figures.evicts.into()),
            ("store_instances", "Instances that share the counters.", figures.instances.into()),
            (
                "store_format",
                "The newest format of counters that all instances read.",
                figures.formats.into(),
            ),
        ],
        encoder,
    )?;
    counters(
        &[
            ("store_checks", "Checks that were put to the store.", figures.checks),
            ("store_calls", "Calls to the server.", figures.calls),
            ("store_sent_bytes", "Bytes of calls.", figures.bytes_sent),
            ("store_received_bytes", "Bytes of replies.", figures.bytes_received),
            (
                "store_coalesced_checks",
                "Checks that an equal one in the same call stood for.",
                figures.coalesced,
            ),
            ("store_cached_denials", "Checks denied from the denial cache.", figures.cached_denials),
            ("store_lease_calls", "Calls that leased permits.", figures.lease_calls),
            ("store_leased_checks", "Checks allowed from a lease.", figures.leased),
            (
                "store_leased_denials",
                "Checks denied without a call, since a lease had just found the limit reached.",
                figures.leased_denials,
            ),
            (
                "store_unspent_checks",
                "Checks that were leased and given back unspent.",
                figures.leases_given_back,
            ),
            ("store_scattered_checks", "Checks of several slots of a cluster.", figures.scattered),
            ("store_given_back", "Counters that were given something back.", figures.given_back),
            (
                "store_unconfirmed",
                "Counters of which it is not known whether they were.",
                figures.unconfirmed,
            ),
            ("store_reconnects", "Connections opened in place of lost ones.", figures.reconnects),
            (
                "store_roll_calls",
                "Roll calls after another master answered, or after an outage.",
                figures.roll_calls,
            ),
        ],
        encoder,
    )?;
    let help = "This machine's clock less the server's, where this machine's decides.";
    let gauge =
        encoder.encode_descriptor("store_clock_skew", help, Some(&Unit::Seconds), MetricType::Gauge)?;
    ConstGauge::new(seconds(figures.clock_skew_ms)).encode(gauge)?;
    let without = [("allowed", figures.allowed_without), ("denied", figures.denied_without)];
    family("store_bypassed_checks", "Checks decided without the store.", "outcome", &without, encoder)?;
    let faults: Vec<_> = Fault::ALL.iter().map(|fault| fault.name()).zip(figures.faults).collect();
    family("store_failures", "Checks and other questions that failed.", "fault", &faults, encoder)
}

/// How each node of the store does. There are as many as the store has masters.
fn nodes(nodes: &[NodeFigures], encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let help = "1 for the step of the ladder at which a node stands.";
    let mut steps = encoder.encode_descriptor("store_node_step", help, None, MetricType::Gauge)?;
    for (node, step) in each(nodes, Step::ALL) {
        let stands = ConstGauge::new(u64::from(node.step == step));
        stands.encode(steps.encode_family(&[("node", &*node.name), ("step", step.name())])?)?;
    }
    let help = "Steps that a node took on the ladder.";
    let mut taken = encoder.encode_descriptor("store_node_transitions", help, None, MetricType::Counter)?;
    for node in nodes {
        for (transition, count) in Transition::ALL.iter().zip(node.transitions) {
            let labels = [
                ("node", &*node.name),
                ("from", transition.from.name()),
                ("to", transition.to.name()),
                ("cause", transition.cause.name()),
            ];
            ConstCounter::new(count).encode(taken.encode_family(&labels)?)?;
        }
    }
    let help = "Time that a node stood at a step.";
    let mut spent =
        encoder.encode_descriptor("store_node_step", help, Some(&Unit::Seconds), MetricType::Counter)?;
    for (node, step) in each(nodes, Step::ALL) {
        let seconds = Duration::from(node.spent[step as usize]).as_secs_f64();
        let labels = [("node", &*node.name), ("step", step.name())];
        ConstCounter::new(seconds).encode(spent.encode_family(&labels)?)?;
    }
    Ok(())
}

fn each<T: Copy, const N: usize>(
    nodes: &[NodeFigures],
    of: [T; N],
) -> impl Iterator<Item = (&NodeFigures, T)> {
    nodes.iter().flat_map(move |node| of.into_iter().map(move |one| (node, one)))
}

/// Milliseconds before or after, as seconds.
fn seconds(ms: i64) -> f64 {
    let size = Duration::from_millis(ms.unsigned_abs()).as_secs_f64();
    if ms < 0 { -size } else { size }
}

fn gauges(samples: &[Sample], encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    for (name, help, value) in samples {
        let gauge = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        ConstGauge::new(*value).encode(gauge)?;
    }
    Ok(())
}

fn counters(samples: &[Sample], encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    for (name, help, value) in samples {
        let counter = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        ConstCounter::new(*value).encode(counter)?;
    }
    Ok(())
}

/// A counter for each value of a label.
fn family(
    name: &'static str,
    help: &'static str,
    label: &'static str,
    values: &[(&'static str, u64)],
    encoder: &mut DescriptorEncoder<'_>,
) -> fmt::Result {
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    for (value, count) in values {
        ConstCounter::new(*count).encode(family.encode_family(&[(label, *value)])?)?;
    }
    Ok(())
}
