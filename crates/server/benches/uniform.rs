//! P4: checks each second of many keys through a limiter, against one-check calls of the same script that one raw
//! connection pipelines just as deep: `cargo xtask bench uniform`.
//!
//! `redis-benchmark` can't send the script's binary arguments. In its place stands the client of the benchmark of
//! scripts: it keeps as many calls under way as there are callers, builds each as the store does, and does nothing else.
//! Both take turns on one server, with the same number of keys, limit and window; a ratio is of one round.
//!
//! `--rounds N`, `--seconds N` (of each turn), `--seed N`.

#![expect(clippy::cast_precision_loss, reason = "a benchmark: figures are shown, nothing is decided by them")]

use std::cell::RefCell;
use std::process::Command;
use std::time::Duration;

use fastrand::Rng;
use slidegate::core::time::Millis;
use slidegate::store::redis::bench::check_script;
use slidegate_testbed::redis::Server;
use tokio::time::Instant;

use client::Client;
use load::{Load, Subject};

#[path = "../../slidegate/benches/scripts/client.rs"]
mod client;
#[expect(dead_code, reason = "the benchmark of scripts names its rows and looks at its keys")]
#[path = "../../slidegate/benches/scripts/load.rs"]
mod load;

/// Those of `slidegate bench --uniform`.
const KEYS: usize = 100_000;
const PERMITS: u64 = 1_000_000;
const WINDOW: Millis = Millis(1000);
const CALLERS: u64 = 512;

/// Until the window is full and every value has its length.
const WARM: Duration = Duration::from_millis(1500);

struct Options {
    rounds: usize,
    seconds: u64,
    seed: u64,
}

fn options() -> Options {
    let mut options = Options { rounds: 5, seconds: 5, seed: Rng::new().u64(..) };
    let mut args = std::env::args().skip(1).filter(|arg| arg != "--bench");
    while let Some(arg) = args.next() {
        let value = args.next().and_then(|value| value.parse().ok());
        let value: u64 = value.unwrap_or_else(|| panic!("{arg} needs a number"));
        match arg.as_str() {
            "--rounds" => options.rounds = value.try_into().expect("some rounds"),
            "--seconds" => options.seconds = value,
            "--seed" => options.seed = value,
            _ => panic!("there is no option {arg}"),
        }
    }
    options
}

fn main() {
    let options = options();
    let server = Server::start();
    let mut client = Client::connect(&server.address()).depth(CALLERS);
    let load = Load::new(&mut client, check_script(), Subject::EXACT, KEYS, 1, PERMITS, WINDOW);
    let (mut load, mut rng) = (load.by_instances(1), Rng::with_seed(options.seed));
    println!(
        "seed {}, {KEYS} keys, {CALLERS} callers or calls under way, {} s each\n",
        options.seed, options.seconds
    );
    println!(
        "| round | one-check calls each second | of the server for one, us | checks each second | in a call | \
         not decided, % | ratio |"
    );
    println!("|---|---|---|---|---|---|---|");
    let mut rounds = Vec::new();
    for round in 1..=options.rounds {
        server.ask::<()>(&["FLUSHALL"]);
        let (raw, usec) = raw(&mut client, &server, &mut load, &mut rng, options.seconds);
        server.ask::<()>(&["FLUSHALL"]);
        let Ours { allowed, per_call, undecided } = ours(&server, options.seconds);
        let row = [raw, usec, allowed, per_call, undecided, allowed / raw];
        show(&round.to_string(), row);
        rounds.push(row);
    }
    let median = std::array::from_fn(|column| {
        let mut values: Vec<f64> = rounds.iter().map(|round| round[column]).collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    });
    show("**median**", median);
    println!("\nbar of the ratio: 1.0");
}

fn show(name: &str, [raw, usec, allowed, per_call, undecided, ratio]: [f64; 6]) {
    println!(
        "| {name} | {raw:.0} | {usec:.2} | {allowed:.0} | {per_call:.1} | {undecided:.2} | {ratio:.2} |"
    );
}

/// Calls each second, and what one takes the server.
fn raw(client: &mut Client, server: &Server, load: &mut Load, rng: &mut Rng, seconds: u64) -> (f64, f64) {
    run(client, load, rng, WARM);
    server.ask::<()>(&["CONFIG", "RESETSTAT"]);
    let started = Instant::now();
    let calls = run(client, load, rng, Duration::from_secs(seconds));
    let rate = calls as f64 / started.elapsed().as_secs_f64();
    let stats = server.info("cmdstat_evalsha");
    let usec = stats.split(',').find_map(|field| field.strip_prefix("usec_per_call="));
    (rate, usec.and_then(|usec| usec.parse().ok()).unwrap_or(f64::NAN))
}

fn run(client: &mut Client, load: &mut Load, rng: &mut Rng, time: Duration) -> u64 {
    let (started, load) = (Instant::now(), RefCell::new(load));
    client.pipeline(
        || started.elapsed() < time,
        |out| load.borrow_mut().push_call(rng, None, out),
        |reply| load.borrow_mut().look_at(reply),
    )
}

/// What the program itself came to.
struct Ours {
    /// Checks each second that the store allowed.
    allowed: f64,
    per_call: f64,
    /// Percent of all: a machine that has no time for a check within its deadline.
    undecided: f64,
}

fn ours(server: &Server, seconds: u64) -> Ours {
    let callers = CALLERS.to_string();
    let duration = format!("{seconds}s");
    let output = Command::new(env!("CARGO_BIN_EXE_slidegate"))
        .args(["bench", "--store", &server.url(), "--uniform", "--no-denial-cache", "--json"])
        .args(["--callers", &callers, "--duration", &duration])
        .output()
        .expect("the program that was built");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("a report");
    let figure = |pointer: &str| report.pointer(pointer).and_then(serde_json::Value::as_f64);
    let figure = |pointer: &str| figure(pointer).unwrap_or_else(|| panic!("no {pointer} in {report}"));
    // The limit denies nobody: who was denied or failed was not decided by the store.
    let undecided = (figure("/checks/denied") + figure("/checks/failed")) / figure("/checks/offered");
    Ours {
        allowed: figure("/checks/allowed_per_s"),
        per_call: figure("/store/checks_per_call"),
        undecided: undecided * 100.0,
    }
}
