//! What a store has done, as metrics. Each kind of store has its own, so that none is always 0 for want of meaning.
//!
//! Of a label only `outcome` and `fault` have values, and all of those are there from the start.

use std::fmt;

use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use slidegate::error::Fault;
use slidegate::store::memory::MemoryFigures;
use slidegate::store::redis::RedisFigures;

use crate::store::AnyStore;

/// Writes the figures of a store.
pub(super) fn encode(store: &AnyStore, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    match store {
        AnyStore::Memory(store) => memory(store.figures(), encoder),
        AnyStore::Redis(store) => redis(&store.figures(), encoder),
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
        ],
        encoder,
    )?;
    let without = [("allowed", figures.allowed_without), ("denied", figures.denied_without)];
    family("store_bypassed_checks", "Checks decided without the store.", "outcome", &without, encoder)?;
    let faults: Vec<_> = Fault::ALL.iter().map(|fault| fault.name()).zip(figures.faults).collect();
    family("store_failures", "Checks and other questions that failed.", "fault", &faults, encoder)
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
