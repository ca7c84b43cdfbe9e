//! Figures of a crowd's outcome that several bars ask for.

use std::collections::BTreeMap;

use slidegate_testbed::crowd::{Answer, Outcome, Record, Told};
use slidegate_testbed::random::Random;

use crate::fleet::{INSTANCES, Plan};
use crate::table::{Table, ms};

/// A seed of this run, printed; `FAILURE_SEED=7` in the environment gives one again.
pub(crate) fn seed() -> u64 {
    let given = std::env::var("FAILURE_SEED").ok().and_then(|text| text.parse().ok());
    let seed = given.unwrap_or_else(|| u64::from(std::process::id()));
    println!("FAILURE_SEED={seed}");
    seed
}

/// A moment of the seed's choice in these milliseconds, in microseconds.
pub(crate) fn moment_us(random: &mut Random, from_ms: u64, until_ms: u64) -> u64 {
    (from_ms + random.below(until_ms - from_ms)) * 1000
}

/// The largest number proved in any window, as part of the limit: 1000 is all of it.
pub(crate) fn largest_permille(outcome: &Outcome, plan: &Plan) -> u32 {
    outcome.largest_window(plan.window) * 1000 / plan.permits
}

/// `1.004 N (502)`.
pub(crate) fn of_n(outcome: &Outcome, plan: &Plan) -> String {
    let permille = largest_permille(outcome, plan);
    format!("{}.{:03} N ({})", permille / 1000, permille % 1000, outcome.largest_window(plan.window))
}

/// Answers of 5xx, and requests without an answer.
pub(crate) fn broken(outcome: &Outcome) -> usize {
    outcome.failed()
}

/// A quantile of the time from when a request was to be sent to its answer, in microseconds.
pub(crate) fn latency_us(outcome: &Outcome, quantile: f64) -> u64 {
    outcome.latencies_us().value_at_quantile(quantile)
}

/// In how many microseconds so many of a thousand checks were decided, between two readings of all instances' own
/// histograms: the bound of a bucket. From outside, whatever else this machine does is measured too.
pub(crate) fn within_us(before: &[(u64, u64)], after: &[(u64, u64)], permille: u64) -> u64 {
    let counts: Vec<(u64, u64)> =
        before.iter().zip(after).map(|((bound, old), (_, new))| (*bound, new.saturating_sub(*old))).collect();
    let all = counts.last().map_or(0, |(_, count)| *count);
    counts.iter().find(|(_, count)| count * 1000 >= all * permille).map_or(u64::MAX, |(bound, _)| *bound)
}

/// The bound of a bucket, for a row.
pub(crate) fn bound(us: u64) -> String {
    if us == u64::MAX { "> 100 ms".to_owned() } else { format!("<= {us} us") }
}

/// The bar for checks while masters change.
pub(crate) fn p999(table: &mut Table, outcome: &Outcome, decided_within_us: u64) {
    let holds = decided_within_us <= 25_000;
    table.timed(
        "99.9th percentile of checks, by the instances' own histogram",
        bound(decided_within_us),
        "< 25 ms",
        holds,
    );
    table.told(
        "99.9th percentile from outside, with all of the machine's noise",
        ms(latency_us(outcome, 0.999)),
    );
}

/// How long after `moment` until each instance had been answered by the store to a request that was sent since.
pub(crate) fn exact_after_us(outcome: &Outcome, moment: u64) -> u64 {
    let first = |instance: usize| {
        let decided = |record: &&Record| {
            record.instance == instance && record.told == Told::Normal && record.sent_us >= moment
        };
        outcome.records.iter().filter(decided).map(|record| record.answered_us - moment).min()
    };
    // One that never was: longer than any run lasts.
    const NEVER_US: u64 = 3_600_000_000;
    (0..INSTANCES).map(|instance| first(instance).unwrap_or(NEVER_US)).max().unwrap_or(NEVER_US)
}

/// When no store stood behind answers: for each half second of the run, their number of each instance.
pub(crate) fn degraded_times(outcome: &Outcome) -> String {
    let mut counts = BTreeMap::<u64, [u32; INSTANCES]>::new();
    for record in outcome.records.iter().filter(|record| !record.told.is_exact()) {
        counts.entry(record.sent_us / 500_000).or_default()[record.instance] += 1;
    }
    let rows = counts.iter().map(|(half, counts)| format!("{}.{} s {counts:?}", half / 2, half % 2 * 5));
    rows.collect::<Vec<_>>().join(", ")
}

/// Answers to requests sent since `moment` that no store stood behind.
pub(crate) fn degraded_since(outcome: &Outcome, moment: u64) -> usize {
    let degraded = |record: &&Record| !record.told.is_exact() && record.sent_us >= moment;
    outcome.records.iter().filter(degraded).count()
}

/// Admissions that were certainly decided between two moments.
pub(crate) fn admitted_between(outcome: &Outcome, from: u64, until: u64) -> usize {
    let inside =
        |record: &&Record| record.is_admitted() && record.sent_us >= from && record.answered_us < until;
    outcome.records.iter().filter(inside).count()
}

/// The longest time without an admission after this moment, in microseconds.
pub(crate) fn longest_drought_us(outcome: &Outcome, from: u64) -> u64 {
    let mut times: Vec<u64> = outcome
        .records
        .iter()
        .filter(|record| record.answer == Answer::Allowed && record.answered_us >= from)
        .map(|record| record.answered_us)
        .collect();
    times.push(from);
    times.push(outcome.records.iter().map(|record| record.answered_us).max().unwrap_or(from));
    times.sort_unstable();
    times.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0)
}

/// Who decided, counted.
pub(crate) fn modes(outcome: &Outcome) -> String {
    let all = [Told::Normal, Told::Cached, Told::Leased, Told::Local, Told::AllowAll, Told::DenyAll];
    let counted = all.map(|told| (told, outcome.told(told)));
    let some = counted.iter().filter(|(_, count)| *count > 0);
    some.map(|(told, count)| format!("{told:?} {count}")).collect::<Vec<_>>().join(", ")
}
