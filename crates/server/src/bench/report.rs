//! What is made of a run: figures with their units, in the form that `--json` prints.
//!
//! The three figures that a limiter is usually asked for come first, with their targets: the 99th percentile of a
//! check with the store's round trip, the deviation of the admitted rate from the limit, the store's operations each
//! second. A figure that a run can't give is `null`, with the reason.

use std::collections::BTreeMap;

use serde::Serialize;
use slidegate::Mode;
use slidegate::core::decision::Cost;
use slidegate::core::limit::Limit;

use super::drive::Raw;
use super::plan::{self, Load, Plan, Target};
use super::recorder::{Counts, Latencies, Totals};
use super::redis_info::ServerCost;
use super::window::{self, Admitted};

/// Milliseconds.
const P99_TARGET: f64 = 5.0;
/// Percent.
const DEVIATION_TARGET: f64 = 5.0;
/// Each second.
const OPERATIONS_TARGET: f64 = 40_000.0;

#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(super) version: &'static str,
    pub(super) input: Input,
    pub(super) ended_early: bool,
    pub(super) ran_ms: f64,
    pub(super) targets: [Aim; 3],
    pub(super) latency_us: Latency,
    /// How late checks of an open loop began; it is part of their latency. `null` for a closed loop.
    pub(super) delay_us: Option<Latency>,
    pub(super) checks: Checks,
    /// `null` where no limit is known, or no key is asked often enough to say anything about one.
    pub(super) admission: Option<Admission>,
    /// As this side counts it; `null` without a shared store.
    pub(super) store: Option<StoreCost>,
    /// As the server counts it; `null` without one that does.
    pub(super) server: Option<ServerCost>,
    pub(super) admitted_per_100ms: Vec<u32>,
    /// For the picture: one check in so many took longer than so many microseconds.
    #[serde(skip)]
    pub(super) tail: Vec<(f64, f64)>,
}

/// What was asked for, defaults included.
#[derive(Debug, Serialize)]
pub(super) struct Input {
    pub(super) target: String,
    pub(super) limit: Option<String>,
    pub(super) algorithm: Option<&'static str>,
    pub(super) limit_is_default: bool,
    /// `closed` or `open`.
    #[serde(rename = "loop")]
    pub(super) shape: &'static str,
    pub(super) callers: u32,
    /// Arrivals each second, of an open loop.
    pub(super) rate: Option<u32>,
    pub(super) duration_ms: u64,
    pub(super) keys: String,
    pub(super) cost: Cost,
    /// Whether these stages stood before the store; `null` where there are none.
    pub(super) flights: Option<bool>,
    pub(super) denial_cache: Option<bool>,
    pub(super) seed: u64,
}

/// A figure that has a target.
#[derive(Debug, Serialize)]
pub(super) struct Aim {
    pub(super) name: &'static str,
    pub(super) value: Option<f64>,
    pub(super) target: f64,
    pub(super) met: Option<bool>,
    /// Why there is no value.
    pub(super) reason: Option<&'static str>,
}

/// Microseconds.
#[derive(Debug, Serialize)]
pub(super) struct Latency {
    pub(super) p50: f64,
    pub(super) p90: f64,
    pub(super) p99: f64,
    pub(super) p99_9: f64,
    pub(super) max: f64,
    pub(super) mean: f64,
}

#[derive(Debug, Serialize)]
pub(super) struct Checks {
    /// Arrived: answered ones, and those of an open loop that never began.
    pub(super) offered: u64,
    pub(super) allowed: u64,
    pub(super) denied: u64,
    pub(super) failed: u64,
    /// One of the failures.
    pub(super) failure: Option<String>,
    pub(super) unsent: u64,
    /// Decisions by mode, those that occurred.
    pub(super) modes: BTreeMap<&'static str, u64>,
    /// Decisions that the exact promise does not cover: the store was away, or full.
    pub(super) degraded: u64,
    pub(super) offered_per_s: f64,
    pub(super) allowed_per_s: f64,
}

/// What a limit let through, for the key that is watched.
#[derive(Debug, Serialize)]
pub(super) struct Admission {
    /// Permits, provably within one window.
    pub(super) largest_window: u64,
    /// The most that the algorithm promises; `null` where it promises nothing.
    pub(super) bound: Option<u64>,
    /// More than promised.
    pub(super) over: bool,
    /// Whether every admitted request was remembered; else the largest window may have been larger.
    pub(super) complete: bool,
    /// Permits in each second, of the windows that the deviation is measured over.
    pub(super) permits_per_s: Option<f64>,
    pub(super) windows: u64,
    /// Of the permits from those of the limit: positive is too many.
    pub(super) deviation_percent: Option<f64>,
    #[serde(skip)]
    no_deviation: Option<&'static str>,
}

#[derive(Debug, Serialize)]
pub(super) struct StoreCost {
    pub(super) calls: u64,
    pub(super) calls_per_check: f64,
    pub(super) checks_per_call: f64,
    pub(super) bytes_per_check: f64,
}

impl Report {
    /// What a run came to; `server` is what its Redis server counted meanwhile.
    pub(super) fn new(plan: &Plan, raw: Raw, server: Option<ServerCost>) -> Result<Self, String> {
        let Totals { latencies, delays, counts, admitted } = &raw.totals;
        let latency_us = Latency::of(latencies);
        let answered = counts.allowed + counts.denied + counts.failed;
        if counts.allowed + counts.denied == 0 {
            let why = counts.failure.as_deref().unwrap_or("the run ended before the first answer");
            return Err(format!("no check was decided: {why}"));
        }
        let seconds = ratio(raw.ran_ns, 1_000_000_000).max(1e-9);
        let offered = answered + raw.unsent;
        let checks = Checks {
            offered,
            allowed: counts.allowed,
            denied: counts.denied,
            failed: counts.failed,
            failure: counts.failure.clone(),
            unsent: raw.unsent,
            modes: modes(counts, |_| true).collect(),
            degraded: modes(counts, Mode::is_degraded).map(|(_, count)| count).sum(),
            offered_per_s: offered as f64 / seconds,
            allowed_per_s: counts.allowed as f64 / seconds,
        };
        let watched = plan.limit.filter(|_| plan.keys.has_watched_key());
        let admission = watched.map(|limit| {
            let overloaded = counts.watched_denied > 0
                && counts.watched as f64 / seconds * f64::from(plan.cost) >= per_second(&limit);
            let complete = counts.forgotten == 0;
            Admission::of(&limit, plan.cost, admitted, raw.ran_ns / 1000, overloaded, complete)
        });
        let store = raw.figures.map(|figures| StoreCost {
            calls: figures.calls,
            calls_per_check: ratio(figures.calls, answered),
            checks_per_call: ratio(figures.checks, figures.calls),
            bytes_per_check: ratio(figures.bytes, answered),
        });
        Ok(Self {
            version: env!("CARGO_PKG_VERSION"),
            input: Input::of(plan),
            ended_early: raw.ended_early,
            ran_ms: ratio(raw.ran_ns, 1_000_000),
            targets: [
                Aim::new("p99_ms", Ok(latency_us.p99 / 1000.0), P99_TARGET),
                deviation(plan, admission.as_ref()),
                Aim::new("store_operations_per_s", operations(plan, server, seconds), OPERATIONS_TARGET),
            ],
            latency_us,
            delay_us: (!delays.is_empty()).then(|| Latency::of(delays)),
            checks,
            admission,
            store,
            server,
            tail: tail(&raw.totals),
            admitted_per_100ms: raw.admitted,
        })
    }

    /// Whether more was admitted than the limit promises.
    pub(crate) fn is_violation(&self) -> bool {
        self.admission.as_ref().is_some_and(|admission| admission.over)
    }
}

impl Input {
    fn of(plan: &Plan) -> Self {
        let (target, flights, denial_cache) = match &plan.target {
            Target::Http(url) => (url.as_str().to_owned(), None, None),
            Target::Store(store) if store.is_embedded() => (store.url.clone(), None, None),
            // A URL may hold a password.
            Target::Store(store) => (without_user(&store.url), Some(store.flights), Some(store.denial_cache)),
        };
        let (shape, rate) = match plan.load {
            Load::Closed { .. } => ("closed", None),
            Load::Open { rate, .. } => ("open", Some(rate)),
        };
        Self {
            target,
            limit: plan.limit.map(|limit| limit.to_string()),
            algorithm: plan.limit.map(|limit| limit.algorithm().name()),
            limit_is_default: plan.limit_is_default,
            shape,
            callers: plan.load.callers(),
            rate,
            duration_ms: u64::try_from(plan.duration.as_millis()).unwrap_or(u64::MAX),
            keys: plan.keys.to_string(),
            cost: plan.cost,
            flights,
            denial_cache,
            seed: plan.seed,
        }
    }
}

fn without_user(url: &str) -> String {
    match url.split_once("://").and_then(|(scheme, rest)| Some((scheme, rest.rsplit_once('@')?))) {
        Some((scheme, (_, place))) => format!("{scheme}://{place}"),
        None => url.to_owned(),
    }
}

impl Latency {
    fn of(nanos: &Latencies<u64>) -> Self {
        let us = |quantile: f64| ratio(nanos.value_at_quantile(quantile), 1000);
        Self {
            p50: us(0.5),
            p90: us(0.9),
            p99: us(0.99),
            p99_9: us(0.999),
            max: ratio(nanos.max(), 1000),
            mean: nanos.mean() / 1000.0,
        }
    }
}

impl Aim {
    fn new(name: &'static str, value: Result<f64, &'static str>, target: f64) -> Self {
        let met = value.ok().map(|value| value.abs() <= target);
        Self { name, value: value.ok(), target, met, reason: value.err() }
    }
}

impl Admission {
    fn of(
        limit: &Limit,
        cost: Cost,
        admitted: &[Admitted],
        end_us: u64,
        overloaded: bool,
        complete: bool,
    ) -> Self {
        let window_us = limit.window().get().saturating_mul(1000);
        let cost = u64::from(cost);
        let largest = u64::try_from(window::largest(admitted, window_us)).unwrap_or(u64::MAX);
        let largest_window = largest.saturating_mul(cost);
        let bound = plan::bound(limit);
        let steady = window::steady(admitted, window_us, end_us);
        // What a cost can't use of a window is no deviation.
        let ideal = u64::from(limit.permits()) / cost * cost;
        let no_deviation = match steady {
            _ if !complete => Some("more was admitted than is remembered"),
            _ if !overloaded => Some("the load stays below the limit"),
            None => Some("the run is shorter than two windows"),
            Some(_) if ideal == 0 => Some("the limit admits nothing"),
            Some(_) => None,
        };
        let steady = steady.filter(|_| no_deviation.is_none());
        let used = |steady: window::Steady| ratio(steady.admitted * cost, steady.windows);
        Self {
            largest_window,
            bound,
            over: bound.is_some_and(|bound| largest_window > bound),
            complete,
            permits_per_s: steady.map(|steady| used(steady) / ratio(limit.window().get(), 1000)),
            windows: steady.map_or(0, |steady| steady.windows),
            deviation_percent: steady.map(|steady| (used(steady) / ideal as f64 - 1.0) * 100.0),
            no_deviation,
        }
    }
}

fn modes(counts: &Counts, which: impl Fn(Mode) -> bool) -> impl Iterator<Item = (&'static str, u64)> {
    let counted = Mode::ALL.into_iter().zip(counts.modes).filter(|(_, count)| *count > 0);
    counted.filter(move |(mode, _)| which(*mode)).map(|(mode, count)| (mode.name(), count))
}

fn deviation(plan: &Plan, admission: Option<&Admission>) -> Aim {
    let value = match admission {
        None if plan.limit.is_none() => Err("say with --limit what the target is held to"),
        None => Err("no key is asked often enough"),
        Some(admission) => {
            admission.deviation_percent.ok_or(admission.no_deviation.unwrap_or("it can't be told"))
        }
    };
    Aim::new("deviation_percent", value, DEVIATION_TARGET)
}

fn operations(plan: &Plan, server: Option<ServerCost>, seconds: f64) -> Result<f64, &'static str> {
    match (server, &plan.target) {
        (Some(server), _) => Ok(server.commands as f64 / seconds),
        (None, Target::Http(_)) => Err("the target's store is not seen from here"),
        (None, Target::Store(store)) if store.is_embedded() => Err("the store is in this process"),
        (None, Target::Store(_)) => Err("not asked of the server"),
    }
}

/// Latencies from the median to the slowest check, closer together where there are fewer.
fn tail(totals: &Totals) -> Vec<(f64, f64)> {
    let latencies = &totals.latencies;
    let last = (latencies.len() as f64).log2().clamp(1.0, 40.0);
    let steps = std::iter::successors(Some(0.0), |step| Some(step + 0.25));
    let points = steps.take_while(|step| *step <= last).map(|step| {
        let one_in = 2_f64.powf(step);
        let slowest = latencies.value_at_quantile(1.0 - 1.0 / one_in);
        (one_in, ratio(slowest.max(1), 1000))
    });
    points.collect()
}

fn per_second(limit: &Limit) -> f64 {
    f64::from(limit.permits()) / ratio(limit.window().get(), 1000)
}

/// `0` of nothing.
fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

#[cfg(test)]
mod tests;
