//! A slice of fresh seeds, which must keep every promise, and the faults on purpose, which must not.
//!
//! What is drawn is printed: `cargo xtask simulate --seed X` shows the world of a seed, and all that happened in it.

use slidegate_sim::{Broken, Figures, run};

/// Seeds of one run of the tests.
const SEEDS: u64 = 200;

/// Nobody has tried them yet; or those that `SIM_FROM` begins with.
fn fresh() -> std::ops::Range<u64> {
    let from = std::env::var("SIM_FROM").ok().and_then(|text| text.parse().ok());
    let from = from.unwrap_or_else(|| fastrand::u64(..1 << 48));
    println!("seeds from {from}");
    from..from + SEEDS
}

#[test]
fn every_promise_is_kept_in_200_fresh_seeds() {
    let mut figures = Figures::default();
    for seed in fresh() {
        let report = run(seed, Broken::Nothing, false);
        assert_eq!(report.fault, None, "seed {seed}: replay it with `cargo xtask simulate --seed {seed}`");
        figures.add(&report.figures);
    }
    println!("{figures:?}");
    // Or the worlds were too kind to say anything.
    assert!(figures.writes_lost > 0 && figures.put_back > 0 && figures.roll_calls > 0, "{figures:?}");
    assert!(figures.local > 0 && figures.leased > 0, "{figures:?}");
}

/// A simulation that finds nothing may be blind.
#[test]
fn what_is_broken_on_purpose_is_caught_within_200_seeds() {
    let seeds = fresh();
    for broken in Broken::ALL {
        let caught = seeds.clone().find_map(|seed| run(seed, broken, false).fault.map(|fault| (seed, fault)));
        let Some((seed, fault)) = caught else { panic!("{broken} was not caught from seed {}", seeds.start) };
        println!("{broken}: caught after {} seeds, by {seed}: {fault}", seed - seeds.start + 1);
    }
}

#[test]
fn a_seed_replays_what_happened() {
    let seed = fastrand::u64(..1 << 48);
    println!("seed {seed}");
    let (first, again) = (run(seed, Broken::LedgerOff, true), run(seed, Broken::LedgerOff, true));
    assert_eq!((first.trace, first.fault, first.figures), (again.trace, again.fault, again.figures));
}
