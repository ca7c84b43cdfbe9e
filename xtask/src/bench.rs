//! `cargo xtask bench NAME...`: benchmarks that print ratios measured side by side in one run. None of them
//! passes or fails; the figures to reach are in `docs/benchmarks.md`.

use crate::step::{self, Done, Failure};
use crate::usage;

struct Bench {
    name: &'static str,
    summary: &'static str,
    line: &'static str,
}

const BENCHES: [Bench; 1] = [Bench {
    name: "memory",
    summary: "the embedded store against governor's keyed limiter, and as keys and permits grow",
    line: "cargo bench --package slidegate --bench memory",
}];

pub(crate) fn run(args: &[String]) -> Done {
    if args.is_empty() {
        for bench in &BENCHES {
            println!("{:<8} {}", bench.name, bench.summary);
        }
        return Ok(());
    }
    // All names first: an unknown one should not come to light after an hour of the others.
    let benches: Vec<&Bench> = args.iter().map(|arg| find(arg)).collect::<Result<_, _>>()?;
    benches.iter().try_for_each(|bench| step::run(bench.line))
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
