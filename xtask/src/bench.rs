//! `cargo xtask bench NAME...`: benchmarks that print ratios measured side by side in one run, and pictures
//! of what they measured. What each figure is for is in `docs/benchmarks.md`.

use crate::step::{self, Done, Failure};
use crate::usage;

mod hot;
mod memory;
mod scripts;

struct Bench {
    name: &'static str,
    summary: &'static str,
    run: fn() -> Done,
}

const BENCHES: [Bench; 7] = [
    Bench {
        name: "crowd",
        summary: "eight gateways that share a limit in one Redis, asked for twice as much",
        run: || step::run("cargo bench --package slidegate-server --bench crowd"),
    },
    Bench {
        name: "hot",
        summary: "calls to Redis for one hot key, with flights alone, leases and shards; fails if the limit is exceeded",
        run: hot::run,
    },
    Bench {
        name: "memory",
        summary: "the embedded store against governor's keyed limiter, and as keys and permits grow",
        run: memory::run,
    },
    Bench {
        name: "memory_bound",
        summary: "five million addresses through a store of one million keys; fails if it outgrows its bound",
        run: || step::run("cargo bench --package slidegate --bench memory_bound"),
    },
    Bench {
        name: "scripts",
        summary: "server time of a check and memory of a key in Redis, against the plain sorted-set script",
        run: scripts::run,
    },
    Bench {
        name: "scripts_bars",
        summary: "of these the server time alone, where a bar is set for it",
        run: || step::run("cargo bench --package slidegate --bench scripts -- --only bars"),
    },
    Bench {
        name: "uniform",
        summary: "checks each second of many keys in Redis, against one-check calls pipelined as deep",
        run: || step::run("cargo bench --package slidegate-server --bench uniform"),
    },
];

pub(crate) fn run(args: &[String]) -> Done {
    if args.is_empty() {
        for bench in &BENCHES {
            println!("{:<13} {}", bench.name, bench.summary);
        }
        return Ok(());
    }
    // All names first: an unknown one should not come to light after an hour of the others.
    let benches: Vec<&Bench> = args.iter().map(|arg| find(arg)).collect::<Result<_, _>>()?;
    benches.iter().try_for_each(|bench| (bench.run)())
}

fn find(name: &str) -> Result<&'static Bench, Failure> {
    BENCHES.iter().find(|bench| bench.name == name).ok_or_else(|| {
        Failure::Usage(usage::unknown("benchmark", name, BENCHES.iter().map(|bench| bench.name)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistyped_benchmark_is_told_the_nearest_before_any_runs() {
        let failure = run(&["memory".into(), "memroy".into()]).unwrap_err();
        let expected = "no benchmark `memroy`: did you mean `memory`?";
        assert_eq!(failure, Failure::Usage(expected.into()));
    }
}
