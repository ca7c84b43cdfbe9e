//! The seed's scene (P8 in docs/benchmarks.md): eight gateways that share one limit of 5000/s in one Redis, and twice
//! as many requests as that. What clients see, proved from outside, and what the store was asked.
//!
//! The same crowd goes to a route without a policy, too, in turn with the limited one: the difference is what limiting
//! adds. A crowd that is not measured comes first: connections, and what is done once in the life of an instance, are
//! no part of any figure. Fewer gateways and fewer requests follow, to tell the limiter from a machine that
//! has no time for it.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;
use slidegate_testbed::crowd::{Answer, Crowd, Outcome};
use slidegate_testbed::instance::Instance;
use slidegate_testbed::redis::Server;

use cpu::Cpu;

mod cpu;
mod scrape;

const INSTANCES: usize = 8;
const PERMITS: u32 = 5_000;
const WINDOW: Duration = Duration::from_secs(1);
const OFFERED: u64 = 10_000;
const LASTS: Duration = Duration::from_secs(10);
const ROUNDS: u64 = 3;
/// Each connection has been used some ten times then, and the processors' caches are warm.
const WARM: Duration = Duration::from_secs(1);

/// Gateways and requests each second, beside the scene itself.
const OTHERS: [(usize, u64); 4] = [(4, 10_000), (2, 10_000), (8, 5_000), (8, 2_500)];
const OTHERS_LAST: Duration = Duration::from_secs(5);

fn main() {
    let scene = Scene::start();
    scene.crowd(INSTANCES, OFFERED, WARM, "/free", 0);
    scene.crowd(INSTANCES, OFFERED, WARM, "/limited", 0);

    println!("{INSTANCES} instances, limit {PERMITS}/s, {OFFERED}/s offered for {} s", LASTS.as_secs());
    let rounds: Vec<Turn> = (1..=ROUNDS).map(|round| scene.turn(INSTANCES, OFFERED, LASTS, round)).collect();
    report(&rounds);

    println!(
        "\n| gateways | offered each second | 99th percentile, ms: free | limited | added | sent late: free | limited | failed |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    for (instances, offered) in OTHERS {
        let Turn { free, limited, cpu, .. } = scene.turn(instances, offered, OTHERS_LAST, 1);
        let (of_free, of_limited) = (p99_ms(&free), p99_ms(&limited));
        println!(
            "| {instances} | {offered} | {of_free:.2} | {of_limited:.2} | {:.2} | {:.2} | {:.2} | {} | <!-- free: {}; limited: {} -->",
            of_limited - of_free,
            late_ms(&free),
            late_ms(&limited),
            free.failed() + limited.failed(),
            cpu[0],
            cpu[1]
        );
    }
}

/// Who takes part.
struct Scene {
    redis: Server,
    gateways: Vec<Instance>,
    addresses: Vec<String>,
    admins: Vec<String>,
}

/// The crowd once without a policy and once limited.
struct Turn {
    free: Outcome,
    limited: Outcome,
    /// Of each crowd.
    cpu: [String; 2],
    /// Of the limited one.
    commands: u64,
    /// Why the store did not decide, as the gateways count it.
    reasons: Vec<(String, u64)>,
}

impl Scene {
    fn start() -> Self {
        let redis = Server::start();
        let configuration = format!(
            "store: {{ url: \"{}\" }}\n\
             policies: [{{ name: all, limits: [{PERMITS}/1s] }}]\n\
             admin: {{ listen: \"127.0.0.1:0\" }}\n\
             gateway:\n  listen: \"127.0.0.1:0\"\n  routes:\n\
             \x20   - {{ match: {{ prefix: /limited }}, policies: [all], upstream: echo }}\n\
             \x20   - {{ match: {{ prefix: / }}, upstream: echo }}\n",
            redis.url()
        );
        let program = env!("CARGO_BIN_EXE_slidegate");
        let gateways: Vec<Instance> =
            (0..INSTANCES).map(|_| Instance::start(program.as_ref(), &configuration)).collect();
        let all = |what: &str| gateways.iter().map(|gateway| gateway.address(what)).collect();
        let (addresses, admins) = (all("gateway"), all("admin"));
        Self { redis, gateways, addresses, admins }
    }

    fn crowd(&self, instances: usize, offered: u64, lasts: Duration, path: &str, round: u64) -> Outcome {
        // Out of phase, and not evenly: as clients are.
        let crowd = Crowd::offering(offered, lasts).shares(&[3, 2, 2, 1, 1, 1, 1, 1]);
        crowd.path(path).seed(20_261_130 + 100 * round).run(&self.addresses[..instances])
    }

    fn turn(&self, instances: usize, offered: u64, lasts: Duration, round: u64) -> Turn {
        let cpu = self.cpu();
        let free = self.crowd(instances, offered, lasts, "/free", round);
        let of_free = cpu.told();
        let (commands, reasons) = (self.commands(), scrape::failures(&self.admins));
        let cpu = self.cpu();
        let limited = self.crowd(instances, offered, lasts, "/limited", round);
        let cpu = [of_free, cpu.told()];
        let reasons = scrape::failures(&self.admins)
            .into_iter()
            .zip(reasons)
            .map(|((name, after), (_, before))| (name, after - before))
            .filter(|(_, count)| *count > 0)
            .collect();
        Turn { free, limited, commands: self.commands() - commands, cpu, reasons }
    }

    fn cpu(&self) -> Cpu {
        let gateways = self.gateways.iter().map(Instance::pid).collect();
        let (redis, clients) = (vec![self.redis.pid()], vec![std::process::id()]);
        Cpu::start(&[("gateways", gateways), ("Redis", redis), ("clients", clients)])
    }

    fn commands(&self) -> u64 {
        self.redis.info("total_commands_processed").parse().expect("INFO counts commands")
    }
}

fn p99_ms(outcome: &Outcome) -> f64 {
    outcome.latencies_us().value_at_quantile(0.99) as f64 / 1e3
}

/// The part of a latency that lies before the request was sent: the crowd had no time, or no connection was free.
fn late_ms(outcome: &Outcome) -> f64 {
    let mut late = Histogram::<u64>::new(3).expect("a precision that there is");
    for record in &outcome.records {
        late.saturating_record(record.sent_us.saturating_sub(record.intended_us));
    }
    late.value_at_quantile(0.99) as f64 / 1e3
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn report(rounds: &[Turn]) {
    for Turn { free, limited, cpu, reasons, .. } in rounds {
        println!("\nwithout a policy: {}", free.summary());
        println!("limited:          {}", limited.summary());
        println!("sent late, 99th percentile: {:.2} and {:.2} ms", late_ms(free), late_ms(limited));
        println!("processors, free:    {}", cpu[0]);
        println!("processors, limited: {}", cpu[1]);
        tell_failures(limited, reasons);
    }
    println!();
    let median_of = |figure: &dyn Fn(&Turn) -> f64| median(rounds.iter().map(figure).collect());
    let limited = || rounds.iter().map(|round| &round.limited);
    let deviation =
        |outcome: &Outcome| outcome.deviation_ppm(PERMITS, WINDOW).map_or(f64::NAN, |ppm| ppm as f64 / 1e4);
    let largest = limited().map(|outcome| outcome.largest_window(WINDOW)).max().unwrap_or_default();
    let commands = median_of(&|round| round.commands as f64 / LASTS.as_secs_f64());
    let added = median_of(&|round| p99_ms(&round.limited) - p99_ms(&round.free));
    let failed: usize = limited().map(Outcome::failed).sum();
    let requests: usize = limited().map(|outcome| outcome.records.len()).sum();
    let rows = [
        (
            "99th percentile",
            format!("{:.2} ms", median_of(&|round| p99_ms(&round.limited))),
            "< 5 ms, aim < 1.5",
        ),
        ("added by limiting", format!("{added:.2} ms"), "< 1 ms"),
        (
            "deviation of the admitted rate",
            format!(
                "{:.2} %",
                limited().map(deviation).fold(0.0, |most, one| if one.abs() > f64::abs(most) {
                    one
                } else {
                    most
                })
            ),
            "<= 5 %, aim <= 0.5",
        ),
        ("largest window, provably", format!("{largest} of {PERMITS}"), "<= the limit"),
        ("Redis commands each second", format!("{commands:.0}"), "<= 40,000, aim < 10,000"),
        ("failed", format!("{failed} of {requests}"), "0"),
    ];
    for (name, measured, bar) in rows {
        println!("{name:<32} {measured:>16}   {bar}");
    }
}

/// By what was answered, with the second in which each was sent; and why, as the gateways know it.
fn tell_failures(outcome: &Outcome, reasons: &[(String, u64)]) {
    let mut kinds: BTreeMap<String, BTreeMap<u64, usize>> = BTreeMap::new();
    for record in &outcome.records {
        let kind = match record.answer {
            Answer::Allowed | Answer::Denied => continue,
            Answer::Status(status) => format!("status {status}"),
            Answer::Broken => "no answer".to_owned(),
        };
        *kinds.entry(kind).or_default().entry(record.sent_us / 1_000_000).or_default() += 1;
    }
    for (kind, seconds) in kinds {
        let count: usize = seconds.values().sum();
        let when: Vec<String> =
            seconds.iter().map(|(second, count)| format!("{second} s: {count}")).collect();
        println!("failed with {kind}: {count} ({})", when.join(", "));
    }
    for (name, count) in reasons {
        println!("as the gateways count: {name} {count}");
    }
}
