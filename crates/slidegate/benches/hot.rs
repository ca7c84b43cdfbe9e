//! One hot key, asked by 1 to 8 instances as fast as one core can: what it costs the server, how much of the limit is
//! used, and what others on the same server feel. With flights alone, with leases, and with shards.
//!
//! An instance is a `RedisStore`: its own connection, identity and ledger; all of them run in one process, on one thread, so
//! that the other core is the server's and the probe's. Callers ask again as soon as they are answered. The limit is
//! 5000/1s, leases last 20 ms, there are 8 shards, and a check may take a second, as nothing here is about timeouts.
//! The denial cache is off, unless the row says otherwise: it keeps most denials from the server whatever else is done. In
//! the rows `never full` nothing is denied.
//!
//! *Used* is W over the mean time from an admission to the N-th after it, which can't be shorter than W. *Largest
//! window* counts admissions that were both sent and answered within one W: more than N is proof of a fault, and ends
//! this with an error. *Probe* is another instance with 10,000 keys of its own, asked every 2 ms.
//!
//! `--json FILE` saves the figures. Real time, since a real server is measured.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a benchmark")]

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use slidegate::core::time::Millis;
use slidegate::policy::{Lease, Policy, PolicyBuilder};
use slidegate::store::redis::{OnSlowStore, RedisConfig, RedisFigures, RedisStore};
use slidegate::{Limiter, Mode};
use slidegate_testbed::crowd::{Answer, Record, largest_window};
use slidegate_testbed::redis::Server;
use tokio::runtime::Runtime;
use tokio::task::{JoinHandle, coop};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

const PERMITS: u32 = 5000;
/// More than one core can ask for.
const NEVER: u32 = 1_000_000_000;
const WINDOW_US: u64 = 1_000_000;
const LEASE: Millis = Millis(20);
const SHARDS: u32 = 8;
/// Callers of each instance.
const CALLERS: usize = 32;
/// Until purses know how busy the key is, and the first window is over.
const WARM_UP: Duration = Duration::from_millis(1500);
const MEASURED: Duration = Duration::from_secs(5);

#[derive(Clone, Copy)]
struct Variant {
    name: &'static str,
    leases: bool,
    shards: bool,
    denial_cache: bool,
    /// So many permits that the limit is never reached: what leases save where nothing is denied.
    never_full: bool,
}

const fn variant(name: &'static str) -> Variant {
    Variant { name, leases: false, shards: false, denial_cache: false, never_full: false }
}

const VARIANTS: [Variant; 7] = [
    variant("flights alone"),
    Variant { leases: true, ..variant("leases") },
    Variant { shards: true, ..variant("shards") },
    Variant { leases: true, shards: true, ..variant("leases and shards") },
    Variant { denial_cache: true, ..variant("flights, denial cache") },
    Variant { never_full: true, ..variant("flights, never full") },
    Variant { leases: true, never_full: true, ..variant("leases, never full") },
];

/// How many instances the pictures show; the table shows the last.
const INSTANCES: [usize; 4] = [1, 2, 4, 8];

struct Figures {
    instances: usize,
    variant: &'static str,
    checks: f64,
    calls: f64,
    used: f64,
    largest: u32,
    degraded: u64,
    probe_us: [u64; 2],
}

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let mut file = None;
    while let Some(arg) = args.next() {
        if arg == "--json" {
            file = args.next();
        }
    }
    let server = Server::start();
    println!(
        "{:<9} {:<22} {:>10} {:>9} {:>7} {:>8} {:>9} {:>12}",
        "instances", "", "checks/s", "calls/s", "used", "largest", "degraded", "probe p50/99"
    );
    let mut rows = Vec::new();
    for instances in INSTANCES {
        for variant in VARIANTS {
            let figures = run(&server, instances, variant);
            println!(
                "{:<9} {:<22} {:>10.0} {:>9.0} {:>6.2}% {:>8} {:>9} {:>5}/{} us",
                figures.instances,
                figures.variant,
                figures.checks,
                figures.calls,
                figures.used * 100.0,
                figures.largest,
                figures.degraded,
                figures.probe_us[0],
                figures.probe_us[1],
            );
            rows.push(figures);
        }
    }
    if let Some(file) = file {
        std::fs::write(&file, json!(rows.iter().map(saved).collect::<Vec<_>>()).to_string()).expect("a file");
    }
    let calls = |name: &str| rows.iter().rfind(|row| row.variant == name).map_or(0.0, |row| row.calls);
    println!(
        "\nleases: {:.1} times fewer calls than flights alone",
        calls("flights alone") / calls("leases")
    );
    let over = rows.iter().any(|row| row.largest > PERMITS);
    if over { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn saved(figures: &Figures) -> Value {
    json!({
        "instances": figures.instances, "variant": figures.variant, "checks": figures.checks,
        "calls": figures.calls, "used": figures.used, "largest": figures.largest,
        "degraded": figures.degraded, "probe_p50_us": figures.probe_us[0], "probe_p99_us": figures.probe_us[1],
    })
}

fn policy(variant: Variant) -> PolicyBuilder {
    let permits = if variant.never_full { NEVER } else { PERMITS };
    let policy = Policy::builder("hot").limits(&format!("{permits}/1s"));
    let policy = if variant.leases { policy.lease(Lease::For(LEASE)) } else { policy };
    if variant.shards { policy.shards(SHARDS) } else { policy }
}

/// What callers share.
struct Scene {
    started: Instant,
    stopped: AtomicBool,
    checks: AtomicU64,
    degraded: AtomicU64,
    /// Then admissions are not remembered: there are millions, and nothing to prove.
    never_full: bool,
}

impl Scene {
    fn now_us(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_micros()).unwrap()
    }
}

fn run(server: &Server, instances: usize, variant: Variant) -> Figures {
    let _: String = server.ask(&["FLUSHALL"]);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let scene = Arc::new(Scene {
        started: runtime.block_on(async { Instant::now() }),
        stopped: AtomicBool::new(false),
        checks: AtomicU64::new(0),
        degraded: AtomicU64::new(0),
        never_full: variant.never_full,
    });
    let limiters: Vec<_> =
        (0..instances).map(|_| limiter(server, &runtime, policy(variant), variant.denial_cache)).collect();
    let probe = std::thread::spawn({
        let (url, scene) = (server.url(), scene.clone());
        move || probe(&url, &scene)
    });
    let callers: Vec<JoinHandle<Vec<Record>>> = (limiters.iter().enumerate())
        .flat_map(|(instance, limiter)| (0..CALLERS).map(move |_| (instance, limiter.clone())))
        .map(|(instance, limiter)| runtime.spawn(ask(scene.clone(), instance, limiter)))
        .collect();
    let (calls, checks) = runtime.block_on(async {
        sleep(WARM_UP).await;
        let (calls_before, checks_before) = (calls(&limiters), scene.checks.load(Ordering::Relaxed));
        sleep(MEASURED).await;
        let (calls_after, checks_after) = (calls(&limiters), scene.checks.load(Ordering::Relaxed));
        scene.stopped.store(true, Ordering::Relaxed);
        (calls_after - calls_before, checks_after - checks_before)
    });
    let records: Vec<Record> = runtime.block_on(async {
        let mut records = Vec::new();
        for caller in callers {
            records.extend(caller.await.unwrap());
        }
        records
    });
    let per_second = |count: u64| count as f64 / MEASURED.as_secs_f64();
    Figures {
        instances,
        variant: variant.name,
        checks: per_second(checks),
        calls: per_second(calls),
        used: used(&records),
        largest: largest_window(&records, WINDOW_US),
        degraded: scene.degraded.load(Ordering::Relaxed),
        probe_us: probe.join().unwrap(),
    }
}

fn limiter(
    server: &Server,
    runtime: &Runtime,
    policy: PolicyBuilder,
    denial_cache: bool,
) -> Limiter<RedisStore> {
    runtime.block_on(connected(&server.url(), policy, denial_cache))
}

async fn connected(url: &str, policy: PolicyBuilder, denial_cache: bool) -> Limiter<RedisStore> {
    let config = RedisConfig::parse(url).unwrap().timeout(Millis(1000)).denial_cache(denial_cache);
    // The one core is so busy that the server looks slow, and then all would lease.
    let config = config.on_slow_store(OnSlowStore::None);
    let store = RedisStore::start(&config).unwrap();
    assert!(store.connected(Millis(5000)).await, "no connection");
    Limiter::builder().policy(policy.build().unwrap()).store(store).build().unwrap()
}

fn calls(limiters: &[Limiter<RedisStore>]) -> u64 {
    let of_one = |limiter: &Limiter<RedisStore>| -> u64 {
        let RedisFigures { calls, .. } = limiter.store().figures();
        calls
    };
    limiters.iter().map(of_one).sum()
}

/// Asks again and again, and remembers what was admitted.
async fn ask(scene: Arc<Scene>, instance: usize, limiter: Limiter<RedisStore>) -> Vec<Record> {
    let mut records = Vec::new();
    while !scene.stopped.load(Ordering::Relaxed) {
        let sent_us = scene.now_us();
        let decision = limiter.check("hot", &[]).await.unwrap();
        scene.checks.fetch_add(1, Ordering::Relaxed);
        if decision.mode().is_degraded() || decision.mode() == Mode::Full {
            scene.degraded.fetch_add(1, Ordering::Relaxed);
        } else if decision.is_allowed() && !scene.never_full {
            let answered_us = scene.now_us();
            records.push(Record {
                instance,
                intended_us: sent_us,
                sent_us,
                answered_us,
                answer: Answer::Allowed,
            });
        }
        // What is decided on this side waits for nothing.
        coop::consume_budget().await;
    }
    records
}

/// How much of the limit was used: the time from an admission to the N-th after it is a window at the least.
fn used(records: &[Record]) -> f64 {
    let warm_us = u64::try_from(WARM_UP.as_micros()).unwrap();
    let mut times: Vec<u64> =
        records.iter().map(|record| record.answered_us).filter(|at| *at > warm_us).collect();
    times.sort_unstable();
    let spans: Vec<u64> =
        times.iter().zip(times.iter().skip(PERMITS as usize)).map(|(one, nth)| nth - one).collect();
    let mean = spans.iter().sum::<u64>() as f64 / spans.len().max(1) as f64;
    if spans.is_empty() { 0.0 } else { WINDOW_US as f64 / mean }
}

/// Median and 99th percentile of another instance's checks, on a thread and a connection of its own.
fn probe(url: &str, scene: &Scene) -> [u64; 2] {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut took = runtime.block_on(async {
        let policy = Policy::builder("others").limits("1000/1s").key("{header:x-user}");
        let limiter = connected(url, policy, false).await;
        let mut ticks = interval(Duration::from_millis(2));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut took, mut number) = (Vec::new(), 0u32);
        while !scene.stopped.load(Ordering::Relaxed) {
            ticks.tick().await;
            number = (number + 7919) % 10_000;
            let begun = Instant::now();
            let _ = limiter.check("others", &[&number.to_string()]).await.unwrap();
            if scene.started.elapsed() > WARM_UP {
                took.push(u64::try_from(begun.elapsed().as_micros()).unwrap());
            }
        }
        took
    });
    took.sort_unstable();
    let at = |part: usize| took.get(took.len() * part / 100).copied().unwrap_or_default();
    [at(50), at(99)]
}
