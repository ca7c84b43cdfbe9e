//! P1 and P2: what a check costs the server, and what a key costs its memory, beside the plain sorted-set script:
//! `cargo xtask bench scripts`.
//!
//! Time is the server's own: `usec` of EVALSHA in INFO commandstats, for each check. Turns of all subjects follow one
//! another in every round, so that a machine that gets slower is slower for all; each turn begins with two windows
//! of load that is not measured, so that windows are full. A ratio is of one round; shown is the median of
//! the rounds with the least and the greatest. Memory is MEMORY USAGE after a window's admissions at a steady
//! rate, by a clock that is moved by hand.
//!
//! Every release that is installed has its bars and its memory measured; the tables and curves beside them, one
//! round of each, are of the first. So all of it takes about six minutes with three releases.
//!
//! `--rounds N` (of the bars), `--seed N`, `--server NAME` (part of it), `--only bars|memory`,
//! `--json FILE`, `--script FILE` (another text for the script that decides).

#![expect(clippy::cast_precision_loss, reason = "a benchmark: figures are shown, nothing is decided by them")]

use std::cell::RefCell;
use std::time::Duration;

use fastrand::Rng;
use serde_json::{Value, json};
use slidegate::core::time::Millis;
use slidegate::store::redis::bench::check_script;
use slidegate_testbed::redis::{Release, Server};
use tokio::time::Instant;

use crate::client::{Client, Reply};
use crate::load::{Load, PERMITS, Subject};
use crate::progress::Progress;

mod client;
mod load;
mod memory;
mod progress;

const WINDOW: Millis = Millis(1000);
/// Longer than the window, so that each of 10,000 keys has seen all instances.
const WARM: Duration = Duration::from_millis(2000);
const MEASURED: Duration = Duration::from_millis(500);
/// Some milliseconds.
const SLICE_BATCHES: u32 = 6;

/// Keys and checks in a call, and what the bar allows for them against the sorted set.
const BARS: [(usize, usize, f64); 4] = [(1, 1, 0.75), (10_000, 1, 1.0), (1, 16, 0.5), (10_000, 16, 0.5)];

/// Checks in a call that are drawn.
const CURVE: [usize; 6] = [1, 2, 4, 8, 16, 32];

struct Options {
    rounds: usize,
    seed: u64,
    server: String,
    only: String,
    json: Option<String>,
    /// Decides in place of the store's.
    script: String,
}

fn options() -> Options {
    let mut options = Options {
        // Odd, so that the median is one of them.
        rounds: 3,
        seed: Rng::new().u64(..),
        server: String::new(),
        only: String::new(),
        json: None,
        script: check_script().to_owned(),
    };
    let mut args = std::env::args().skip(1).filter(|arg| arg != "--bench");
    while let Some(arg) = args.next() {
        let value = args.next().unwrap_or_else(|| panic!("{arg} needs a value"));
        match arg.as_str() {
            "--rounds" => options.rounds = value.parse().expect("a number of rounds"),
            "--seed" => options.seed = value.parse().expect("a seed"),
            "--server" => options.server = value,
            "--only" => options.only = value,
            "--script" => options.script = std::fs::read_to_string(value).expect("a script"),
            "--json" => options.json = Some(value),
            _ => panic!("there is no option {arg}"),
        }
    }
    options
}

fn main() {
    let options = options();
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    println!("seed {}, {} rounds; load of the machine: {}", options.seed, options.rounds, load.trim());
    let (progress, mut results) = (Progress::start(), Vec::new());
    for release in Release::installed() {
        let server = Server::options().release(release).start();
        let mut client = Client::connect(&server.address());
        let name = version(&mut client);
        if !name.contains(&options.server) {
            continue;
        }
        println!("\n{name}");
        let is_first = results.is_empty();
        let mut result = json!({ "server": name });
        if options.only != "memory" {
            result["bars"] = bars(&mut client, &options, &progress);
        }
        if options.only.is_empty() && is_first {
            result["algorithms"] = algorithms(&mut client, &options, &progress);
            result["curves"] = curves(&mut client, &options, &progress);
        }
        if options.only != "bars" {
            result["memory"] = memory::compare(&mut client, &options, &progress);
        }
        results.push(result);
    }
    drop(progress);
    if let Some(path) = options.json {
        std::fs::write(path, Value::from(results).to_string()).expect("a file that can be written");
    }
}

/// What the server calls itself.
fn version(client: &mut Client) -> String {
    let Reply::Bytes(info) = client.command(&["INFO", "server"]) else { panic!("no INFO") };
    let info = String::from_utf8_lossy(&info).into_owned();
    let field = |name: &str| {
        info.lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
            .unwrap_or_default()
            .trim()
            .to_owned()
    };
    match field("valkey_version").as_str() {
        "" => format!("Redis {}", field("redis_version")),
        valkey => format!("Valkey {valkey}"),
    }
}

/// Microseconds of the server for each check: the median of many short slices, since one in which the machine gave
/// the server's core to somebody else says nothing.
fn turn(client: &mut Client, load: &mut Load, rng: &mut Rng) -> f64 {
    run(client, load, rng, WARM);
    let started = Instant::now();
    let mut slices = Vec::new();
    while started.elapsed() < MEASURED {
        client.command(&["CONFIG", "RESETSTAT"]);
        let calls = run(client, load, rng, Duration::ZERO);
        slices.push(usec(client) / calls as f64 / load.per_call as f64);
    }
    median(&slices)
}

/// Load for so long, and at least a slice of it; returns how many calls.
fn run(client: &mut Client, load: &mut Load, rng: &mut Rng, time: Duration) -> u64 {
    let (started, load, mut batches) = (Instant::now(), RefCell::new(load), 0);
    client.pipeline(
        || {
            batches += 1;
            batches <= SLICE_BATCHES || started.elapsed() < time
        },
        |out| load.borrow_mut().push_call(rng, None, out),
        |reply| load.borrow_mut().look_at(reply),
    )
}

/// Time spent in EVALSHA since the last RESETSTAT.
fn usec(client: &mut Client) -> f64 {
    let Reply::Bytes(info) = client.command(&["INFO", "commandstats"]) else { panic!("no INFO") };
    let info = String::from_utf8_lossy(&info).into_owned();
    let line =
        info.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:")).expect("scripts were called");
    let field = line.split(',').find_map(|field| field.strip_prefix("usec=")).expect("their time");
    field.parse().expect("a number")
}

/// All loads in turn, each round; for each load its times.
fn rounds(
    client: &mut Client,
    loads: &mut [Load],
    rounds: usize,
    rng: &mut Rng,
    progress: &Progress,
) -> Vec<Vec<f64>> {
    client.command(&["FLUSHALL"]);
    let mut times = vec![Vec::new(); loads.len()];
    for round in 1..=rounds {
        for (load, times) in loads.iter_mut().zip(&mut times) {
            let (name, keys, per_call) = (load.subject.name(), load.keys, load.per_call);
            progress.step(&format!("{name}, keys {keys}, checks in a call {per_call}: {round} of {rounds}"));
            times.push(turn(client, load, rng));
        }
    }
    times
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

/// The ratio of each round: median, least, greatest.
fn ratio(times: &[f64], base: &[f64]) -> (f64, f64, f64) {
    let ratios: Vec<f64> = times.iter().zip(base).map(|(time, base)| time / base).collect();
    let (least, greatest) =
        ratios.iter().fold((f64::MAX, 0.0_f64), |(low, high), ratio| (low.min(*ratio), high.max(*ratio)));
    (median(&ratios), least, greatest)
}

fn bars(client: &mut Client, options: &Options, progress: &Progress) -> Value {
    let mut rng = Rng::with_seed(options.seed);
    println!(
        "| keys | checks in a call | sorted set, us | sliding_window, us | ratio | of the rounds | bar |"
    );
    println!("|---|---|---|---|---|---|---|");
    let mut rows = Vec::new();
    for (keys, per_call, bar) in BARS {
        let mut loads = [
            Load::new(client, &options.script, Subject::SortedSet, keys, 1, PERMITS, WINDOW),
            Load::new(client, &options.script, Subject::EXACT, keys, per_call, PERMITS, WINDOW),
        ];
        let times = rounds(client, &mut loads, options.rounds, &mut rng, progress);
        let (ratio, least, greatest) = ratio(&times[1], &times[0]);
        let (base, ours) = (median(&times[0]), median(&times[1]));
        let Reply::Number(bytes) = client.command(&["STRLEN", &loads[1].first_key()]) else { panic!() };
        println!(
            "| {keys} | {per_call} | {base:.2} | {ours:.2} | **{ratio:.2}** | {least:.2} to {greatest:.2} | {bar} | \
             <!-- {} calls by check.lua, {bytes} bytes -->",
            loads[1].general
        );
        rows.push(json!({
            "keys": keys, "per_call": per_call, "base": base, "ours": ours, "ratio": ratio, "least": least,
            "greatest": greatest, "bar": bar,
        }));
    }
    Value::from(rows)
}

fn algorithms(client: &mut Client, options: &Options, progress: &Progress) -> Value {
    let mut rng = Rng::with_seed(options.seed);
    println!("\n| us for each check | 1 key, 1 | 10,000 keys, 1 | 1 key, 16 | 10,000 keys, 16 |");
    println!("|---|---|---|---|---|");
    let (mut columns, mut general) = (Vec::new(), Vec::new());
    for (keys, per_call, _) in BARS {
        let mut loads = Subject::ALL.map(|subject| {
            let per_call = if subject == Subject::SortedSet { 1 } else { per_call };
            Load::new(client, &options.script, subject, keys, per_call, PERMITS, WINDOW)
        });
        let times = rounds(client, &mut loads, 1, &mut rng, progress);
        general.push(loads.iter().map(|load| load.general.to_string()).collect::<Vec<_>>());
        columns.push(times.iter().map(|times| median(times)).collect::<Vec<_>>());
    }
    for (place, subject) in Subject::ALL.iter().enumerate() {
        let cells: Vec<String> = columns.iter().map(|column| format!("{:.2}", column[place])).collect();
        let general: Vec<&str> = general.iter().map(|column| &*column[place]).collect();
        println!(
            "| {} | {} | <!-- calls by check.lua: {} -->",
            subject.name(),
            cells.join(" | "),
            general.join(", ")
        );
    }
    json!({ "names": Subject::ALL.map(Subject::name), "columns": columns })
}

/// For each number of checks in a call: with ledgers and without, each divided by the sorted set of its round.
fn curves(client: &mut Client, options: &Options, progress: &Progress) -> Value {
    let mut rng = Rng::with_seed(options.seed);
    let mut curves = Vec::new();
    for keys in [1, 10_000] {
        let mut loads =
            vec![Load::new(client, &options.script, Subject::SortedSet, keys, 1, PERMITS, WINDOW)];
        loads.extend(CURVE.iter().map(|per_call| {
            Load::new(client, &options.script, Subject::EXACT, keys, *per_call, PERMITS, WINDOW)
        }));
        let times = rounds(client, &mut loads, 1, &mut rng, progress);
        let medians: Vec<f64> = times.iter().map(|times| median(times)).collect();
        curves.push(
            json!({ "keys": keys, "base": medians[0], "per_call": CURVE, "ours": medians[1..].to_vec() }),
        );
    }
    Value::from(curves)
}
