//! `slidegate bench`: load against a store or a server, and what came of it.
//!
//! Here is what the command line may say; the load itself is in [`crate::bench`].

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::ValueEnum;
use slidegate::core::decision::Cost;
use slidegate::core::limit::{Algorithm, Limit, parse_limit};
use slidegate::core::time::Millis;

use super::FAILED;
use crate::bench::http::Url;
use crate::bench::keys::Keys;
use crate::bench::plan::{
    CALLERS_MAX, DURATION_MAX, DURATION_MIN, Load, Plan, RATE_MAX, StoreChoice, Target,
};
use crate::bench::report::Report;
use crate::{bench, signals};

/// More was admitted in a window than the limit allows. Away from 1 and 2, which mean that nothing was measured, and
/// from 10, which `check` uses.
const EXIT_VIOLATION: u8 = 3;

/// For one key: far below what any store decides in a second, so that nearly all is denied.
const LIMIT_HOT: &str = "5000/1s";

/// For many keys: never reached, so that every check is charged.
const LIMIT_MANY: &str = "1000000/1s";

const AFTER_HELP: &str = "\
The limit is the same for each key. Without --limit it is 5000/1s for one key, far below the load, and \
1000000/1s for many, which denies nobody.

Ctrl-C ends the run early, and prints what was measured until then.
Exit codes: 0 measured, 1 not measured, 2 wrong usage, 3 measured, and more was admitted in one window than the \
limit allows.

Examples:
  $ slidegate bench --hot
  $ slidegate bench --keys zipf:1000000:1.1 --callers 64 --duration 30s
  $ slidegate bench --hot --rate 10000 --json=run.json --svg run.svg
  $ slidegate bench --target http://127.0.0.1:8080/ --limit 5000/1s --rate 10000";

/// Measure a store or a server under load
#[derive(Debug, clap::Args)]
#[command(
    long_about = "Measure a store or a server under load: latency, the admitted rate and how far it is from the \
        limit, the largest number admitted in any window, and what a check costs the store.",
    after_help = AFTER_HELP
)]
pub(crate) struct Args {
    /// The store to ask, through a limiter in this process
    #[arg(long, value_name = "URL", default_value = "memory", conflicts_with = "target")]
    store: String,

    /// A server to ask instead, with GET: 2xx is allowed, 429 denied. {key} stands for the key's number
    #[arg(long, value_name = "URL")]
    target: Option<Url>,

    /// What each key is held to; for a --target, what it is known to enforce
    #[arg(long, value_name = "LIMIT", value_parser = parse_limit)]
    limit: Option<Limit>,

    /// How permits are counted: token_bucket has a burst of the limit's permits, leaky_bucket a max_delay of its
    /// window
    #[arg(long, value_name = "NAME", value_enum, default_value_t = AlgorithmName::SlidingWindow)]
    algorithm: AlgorithmName,

    /// Open loop: this many checks arrive each second, however slowly they are answered. Without it, a closed loop
    #[arg(long, value_name = "N", value_parser = parse_rate)]
    rate: Option<u32>,

    /// Closed loop: so many callers, each of which asks again when it is answered. Open loop: the most checks under
    /// way at once. With --target, each has a connection
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = parse_callers)]
    callers: u32,

    /// How long
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_duration)]
    duration: Duration,

    /// Whose counters: hot, uniform:N, or zipf:N:EXPONENT [default: hot]
    #[arg(long, value_name = "KEYS", conflicts_with_all = ["hot", "uniform"])]
    keys: Option<Keys>,

    /// Short for --keys hot: one key
    #[arg(long, conflicts_with = "uniform")]
    hot: bool,

    /// Short for --keys uniform:100000
    #[arg(long)]
    uniform: bool,

    /// What a check charges
    #[arg(long, value_name = "N", default_value_t = 1, allow_negative_numbers = true, value_parser = parse_cost)]
    cost: Cost,

    /// Leave out the stage that joins equal checks into one call of a shared store
    #[arg(long)]
    no_flights: bool,

    /// Leave out the stage that remembers who is denied, and until when
    #[arg(long)]
    no_denial_cache: bool,

    /// Print JSON instead of the table; with =FILE, write it there and print the table too
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "-")]
    json: Option<PathBuf>,

    /// Draw latency and admitted rate into this file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,

    /// Of keys and arrivals: the same seed draws the same
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

/// Algorithms by the names that configurations use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
enum AlgorithmName {
    SlidingWindow,
    SlidingLog,
    FixedWindow,
    TokenBucket,
    LeakyBucket,
}

/// Measures, and writes what came of it.
pub(crate) fn run(args: &Args) -> ExitCode {
    match measure(args) {
        Ok(false) => ExitCode::SUCCESS,
        Ok(true) => ExitCode::from(EXIT_VIOLATION),
        Err(message) => {
            eprintln!("error: {message}");
            ExitCode::from(FAILED)
        }
    }
}

/// Whether there was a violation.
fn measure(args: &Args) -> Result<bool, String> {
    let plan = plan(args)?;
    // Before the run: ten minutes are not to be lost to a folder that isn't there.
    let json = args.json.as_deref().filter(|path| !is_stdout(path)).map(create).transpose()?;
    let svg = args.svg.as_deref().map(create).transpose()?;
    let runtime = tokio::runtime::Runtime::new().map_err(|error| format!("can't start: {error}"))?;
    let report = runtime.block_on(async {
        let told_to_stop = signals::shutdown();
        bench::run(&plan, told_to_stop).await
    })?;
    if let Some(file) = json {
        file.write(&json_of(&report)?)?;
    }
    if let Some(file) = svg {
        file.write(&report.svg())?;
    }
    let to_stdout = args.json.as_deref().is_some_and(is_stdout);
    let text = if to_stdout { json_of(&report)? } else { report.to_string() };
    // Whoever closed the pipe has read enough; the exit code still counts.
    let _ = io::stdout().write_all(text.as_bytes());
    Ok(report.is_violation())
}

fn plan(args: &Args) -> Result<Plan, String> {
    let keys = match (args.keys, args.uniform) {
        (Some(keys), _) => keys,
        (None, true) => Keys::UNIFORM,
        (None, false) => Keys::Hot,
    };
    let limit = limit(args, keys)?;
    let load = match args.rate {
        Some(rate) => Load::Open { rate, callers: args.callers },
        None => Load::Closed { callers: args.callers },
    };
    let target = match &args.target {
        Some(url) => Target::Http(with_key(url.clone(), keys)?),
        None => Target::Store(StoreChoice {
            url: args.store.clone(),
            flights: !args.no_flights,
            denial_cache: !args.no_denial_cache,
        }),
    };
    if matches!(target, Target::Http(_)) {
        for (given, option) in [
            (args.cost != 1, "--cost"),
            (args.no_flights, "--no-flights"),
            (args.no_denial_cache, "--no-denial-cache"),
        ] {
            if given {
                return Err(format!("{option} is the target's own to decide: leave it out with --target"));
            }
        }
    }
    Ok(Plan {
        target,
        limit,
        limit_is_default: args.limit.is_none(),
        load,
        duration: args.duration,
        keys,
        cost: args.cost,
        seed: args.seed,
    })
}

/// The limit under its algorithm; `None` if nobody knows the target's.
fn limit(args: &Args, keys: Keys) -> Result<Option<Limit>, String> {
    let limit = match args.limit {
        Some(limit) => limit,
        None if args.target.is_some() => return Ok(None),
        None => {
            let text = if keys.count() == 1 { LIMIT_HOT } else { LIMIT_MANY };
            parse_limit(text).map_err(|error| error.to_string())?
        }
    };
    let algorithm = match args.algorithm {
        AlgorithmName::SlidingWindow => Algorithm::SLIDING_WINDOW,
        AlgorithmName::SlidingLog => Algorithm::SlidingLog,
        AlgorithmName::FixedWindow => Algorithm::FixedWindow,
        AlgorithmName::TokenBucket => Algorithm::TokenBucket { burst: limit.permits() },
        AlgorithmName::LeakyBucket => Algorithm::LeakyBucket { max_delay: limit.window() },
    };
    let limit = limit.with_algorithm(algorithm).map_err(|error| error.to_string())?;
    if limit.permits() > 0 && args.cost > limit.capacity() {
        let capacity = limit.capacity();
        return Err(format!("a cost of {} never fits into {limit}: write at most {capacity}", args.cost));
    }
    Ok(Some(limit))
}

fn with_key(url: Url, keys: Keys) -> Result<Url, String> {
    match (url.takes_key(), keys.count() > 1) {
        (false, true) => Err(format!(
            "keys {keys} are many, and the URL has no place for them: write {{key}} into it, as in \
             http://127.0.0.1:8080/?user={{key}}"
        )),
        _ => Ok(url),
    }
}

/// A file that is open, and its name for messages.
struct Output {
    path: PathBuf,
    file: File,
}

fn create(path: &Path) -> Result<Output, String> {
    let file = File::create(path).map_err(|error| format!("{} can't be written: {error}", path.display()))?;
    Ok(Output { path: path.to_owned(), file })
}

impl Output {
    fn write(mut self, text: &str) -> Result<(), String> {
        let written = self.file.write_all(text.as_bytes());
        written.map_err(|error| format!("{} can't be written: {error}", self.path.display()))
    }
}

fn is_stdout(path: &Path) -> bool {
    path.as_os_str() == "-"
}

fn json_of(report: &Report) -> Result<String, String> {
    let json = serde_json::to_string_pretty(report).map_err(|error| error.to_string())?;
    Ok(json + "\n")
}

fn parse_rate(text: &str) -> Result<u32, String> {
    whole(text, RATE_MAX)
        .ok_or_else(|| format!("write a whole number from 1 to {RATE_MAX}, of checks each second"))
}

fn parse_callers(text: &str) -> Result<u32, String> {
    whole(text, CALLERS_MAX).ok_or_else(|| format!("write a whole number from 1 to {CALLERS_MAX}"))
}

fn parse_cost(text: &str) -> Result<Cost, String> {
    whole(text, Cost::MAX).ok_or_else(|| format!("write a whole number from 1 to {}", Cost::MAX))
}

fn whole(text: &str, most: u32) -> Option<u32> {
    text.parse().ok().filter(|number| (1..=most).contains(number))
}

fn parse_duration(text: &str) -> Result<Duration, String> {
    let time = text.parse::<Millis>().map_err(|error| error.to_string())?;
    let time = Duration::from(time);
    if (DURATION_MIN..=DURATION_MAX).contains(&time) {
        return Ok(time);
    }
    Err("write a time from 100ms to 1h, as in 10s".to_owned())
}

#[cfg(test)]
mod tests;
