//! The seed's scene (P8 in docs/benchmarks.md): eight gateways that share one limit of 5000/s in one Redis, and twice
//! as many requests as that. What clients see, proved from outside, and what the store was asked.
//!
//! The same crowd goes to a route without a policy, too: the difference is what limiting adds.

use std::time::Duration;

use slidegate_testbed::crowd::{Answer, Crowd, Outcome};
use slidegate_testbed::instance::Instance;
use slidegate_testbed::redis::Server;

const INSTANCES: usize = 8;
const PERMITS: u32 = 5_000;
const WINDOW: Duration = Duration::from_secs(1);
const OFFERED: u64 = 10_000;
const LASTS: Duration = Duration::from_secs(10);

fn main() {
    let redis = Server::start();
    let configuration = format!(
        "store: {{ url: \"{}\" }}\n\
         policies: [{{ name: all, limits: [{PERMITS}/1s] }}]\n\
         gateway:\n  listen: \"127.0.0.1:0\"\n  routes:\n\
         \x20   - {{ match: {{ prefix: /limited }}, policies: [all], upstream: echo }}\n\
         \x20   - {{ match: {{ prefix: / }}, upstream: echo }}\n",
        redis.url()
    );
    let program = env!("CARGO_BIN_EXE_slidegate");
    let instances: Vec<Instance> =
        (0..INSTANCES).map(|_| Instance::start(program.as_ref(), &configuration)).collect();
    let addresses: Vec<String> = instances.iter().map(|instance| instance.address("gateway")).collect();

    let free = crowd("/free").run(&addresses);
    let before = commands(&redis);
    let limited = crowd("/limited").run(&addresses);
    let commands = commands(&redis) - before;

    println!("eight instances, limit {PERMITS}/s, {OFFERED}/s offered for {} s\n", LASTS.as_secs());
    println!("without a policy: {}", free.summary());
    println!("limited:          {}\n", limited.summary());
    report(&limited, &free, commands);
}

fn crowd(path: &str) -> Crowd {
    // Out of phase, and not evenly: as clients are.
    Crowd::offering(OFFERED, LASTS).shares(&[3, 2, 2, 1, 1, 1, 1, 1]).path(path).seed(20_261_130)
}

fn commands(redis: &Server) -> u64 {
    redis.info("total_commands_processed").parse().expect("INFO counts commands")
}

fn report(limited: &Outcome, free: &Outcome, commands: u64) {
    let p99 = |outcome: &Outcome| outcome.latencies_us().value_at_quantile(0.99) as f64 / 1e3;
    let deviation = limited.deviation_ppm(PERMITS, WINDOW).map_or(f64::NAN, |ppm| ppm as f64 / 1e4);
    let rows = [
        ("99th percentile", format!("{:.2} ms", p99(limited)), "< 5 ms, aim < 1.5"),
        ("added by limiting", format!("{:.2} ms", p99(limited) - p99(free)), "< 1 ms"),
        ("deviation of the admitted rate", format!("{deviation:.2} %"), "<= 5 %, aim <= 0.5"),
        (
            "largest window, provably",
            format!("{} of {PERMITS}", limited.largest_window(WINDOW)),
            "<= the limit",
        ),
        ("Redis commands each second", format!("{}", commands / LASTS.as_secs()), "<= 40,000, aim < 10,000"),
        ("failed", format!("{}", limited.failed()), "0"),
        ("allowed", format!("{}", limited.count(Answer::Allowed)), ""),
    ];
    for (name, measured, bar) in rows {
        println!("{name:<32} {measured:>16}   {bar}");
    }
}
