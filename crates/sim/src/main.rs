//! `slidegate-sim`: runs seeds, or one again with all that happens in it. `cargo xtask simulate` calls it.

use std::process::ExitCode;

use slidegate_sim::{Broken, Figures, Size, run, scale};

const USAGE: &str = "Usage: slidegate-sim [--seeds N] [--from S] [--seed X] [--broken NAME] [--scale]
  --seeds N      so many seeds (default 200)
  --from S       the first of them (default: a random one)
  --seed X       only this one, and tell all that happens
  --scale        1000 instances, a million keys, 16 nodes: load and precision, as a table
  --broken NAME  with something broken on purpose, until it is caught: ledger-off, totals, no-roll-call,
                 leases-without-span, floored-twice";

struct Args {
    seeds: u64,
    from: Option<u64>,
    seed: Option<u64>,
    broken: Broken,
    scale: bool,
}

fn main() -> ExitCode {
    match parse() {
        Some(Args { scale: true, from, .. }) => at_scale(from.unwrap_or(1)),
        Some(Args { seed: Some(seed), broken, .. }) => replay(seed, broken),
        Some(Args { seeds, from, broken, .. }) => {
            many(from.unwrap_or_else(|| fastrand::u64(..1 << 48)), seeds, broken)
        }
        None => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
    }
}

fn parse() -> Option<Args> {
    let mut args = Args { seeds: 200, from: None, seed: None, broken: Broken::Nothing, scale: false };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        if word == "--scale" {
            args.scale = true;
            continue;
        }
        let value = words.next()?;
        match word.as_str() {
            "--seeds" => args.seeds = value.parse().ok()?,
            "--from" => args.from = Some(value.parse().ok()?),
            "--seed" => args.seed = Some(value.parse().ok()?),
            "--broken" => args.broken = Broken::ALL.into_iter().find(|broken| broken.name() == value)?,
            _ => return None,
        }
    }
    Some(args)
}

fn replay(seed: u64, broken: Broken) -> ExitCode {
    let report = run(seed, broken, true);
    report.trace.iter().for_each(|line| println!("{line}"));
    println!("{:?}, excepted: {:?}", report.figures, report.rules);
    match report.fault {
        Some(fault) => {
            println!("seed {seed}: {fault}");
            ExitCode::FAILURE
        }
        None => {
            println!("seed {seed}: all promises were kept");
            ExitCode::SUCCESS
        }
    }
}

fn many(from: u64, seeds: u64, broken: Broken) -> ExitCode {
    println!("seeds {from} to {}", from + seeds - 1);
    let mut sum = Figures::default();
    let mut failed = 0_u64;
    for (count, seed) in (1..).zip(from..from + seeds) {
        let report = run(seed, broken, false);
        sum.add(&report.figures);
        let Some(fault) = report.fault else { continue };
        println!("seed {seed}: {fault}");
        failed += 1;
        if broken != Broken::Nothing {
            println!("{broken}: caught after {count} seeds");
            return ExitCode::SUCCESS;
        }
    }
    println!("{sum:?}");
    println!("{failed} of {seeds} seeds broke a promise");
    if failed == 0 && broken == Broken::Nothing { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn at_scale(seed: u64) -> ExitCode {
    let size = Size { instances: 1_000, keys: 1_000_000, nodes: 16, rate: 500_000, seconds: 10 };
    println!("{size:?}, seed {seed}");
    let load = scale(size, seed);
    println!("{load}");
    if load.violation.is_none() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
