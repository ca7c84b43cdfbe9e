//! R11: faults of all kinds, one after another, for as long as asked; and nothing grows.

use std::time::Duration;

use slidegate_testbed::crowd::Running;
use slidegate_testbed::instance::Instance;
use slidegate_testbed::random::Random;
use slidegate_testbed::redis::{Sentinels, Server};
use slidegate_testbed::wait;

use crate::exact::{broken, largest_permille, latency_us, modes, of_n, seed};
use crate::fleet::{Fleet, INSTANCES, Plan};
use crate::processes::Usage;
use crate::table::{Length, Table, ms};
use crate::topology::{Kind, Topology};

/// From one fault to the next: longer than any of them takes to heal.
const BETWEEN_US: u64 = 10_000_000;

/// What is counted at one moment, of all instances.
#[derive(Clone, Copy, Debug)]
struct Sample {
    at_us: u64,
    usage: Usage,
    /// Connections to the data servers.
    clients: u64,
}

fn minutes() -> u64 {
    std::env::var("SOAK_MINUTES").ok().and_then(|text| text.parse().ok()).unwrap_or(30)
}

fn sample(fleet: &Fleet, sentinels: &Sentinels, crowd: &Running) -> Sample {
    let clients = |server: &Server| server.info("connected_clients").parse().unwrap_or(0);
    let running = sentinels.servers().iter().filter(|server| server.runs());
    Sample {
        at_us: crowd.now_us(),
        usage: Usage::of(fleet.instances.iter().map(Instance::pid)),
        clients: running.map(clients).sum(),
    }
}

/// One of the faults, and that it is over.
fn fail(random: &mut Random, fleet: &Fleet, sentinels: &Sentinels, crowd: &Running) -> &'static str {
    let master = sentinels.master();
    let pause = |ms: u64| {
        let until = crowd.now_us() + ms * 1000;
        wait::until("the end of a fault", wait::PATIENCE, || crowd.now_us() >= until);
    };
    match random.below(6) {
        0 => {
            master.kill();
            sentinels.wait_for_other_master(master.port());
            // Whoever was master comes back empty; the Sentinels make it a replica.
            master.restart();
            "master killed"
        }
        1 => {
            master.stop();
            sentinels.wait_for_other_master(master.port());
            master.cont();
            "master frozen until it was replaced"
        }
        2 => {
            master.stop();
            pause(300);
            master.cont();
            "master frozen for 300 ms"
        }
        3 => {
            sentinels.failover();
            "planned failover"
        }
        4 => {
            master.ask::<()>(&["CLIENT", "PAUSE", "200", "ALL"]);
            pause(200);
            "clients paused for 200 ms"
        }
        _ => {
            master.ask::<i64>(&["CLIENT", "KILL", "TYPE", "normal"]);
            master.ask::<()>(&["SCRIPT", "FLUSH"]);
            let index = usize::try_from(random.below(INSTANCES as u64)).unwrap();
            assert!(fleet.admin(index, "/readyz").contains("200 OK"), "instance {index} is there");
            "connections cut and scripts forgotten"
        }
    }
}

/// How much the line of best fit through these rises within an hour.
fn slope_an_hour(points: &[(f64, f64)]) -> f64 {
    let count = points.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (mean_x, mean_y) = (mean(|point| point.0), mean(|point| point.1));
    let rise: f64 = points.iter().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum();
    let run: f64 = points.iter().map(|(x, _)| (x - mean_x).powi(2)).sum();
    if run == 0.0 { 0.0 } else { rise / run * 3600.0 }
}

/// The first fifth is for what grows once: pools, tables, the allocator.
fn verdict(table: &mut Table, samples: &[Sample]) {
    let settled = &samples[samples.len() / 5..];
    let line = |of: fn(&Sample) -> u64| {
        let points: Vec<_> =
            settled.iter().map(|one| (one.at_us as f64 / 1e6, of(one) as f64 / INSTANCES as f64)).collect();
        let range = settled.iter().map(of).min().zip(settled.iter().map(of).max()).unwrap_or_default();
        (slope_an_hour(&points), range)
    };
    let (slope, (least, most)) = line(|one| one.usage.resident_kib);
    let told = format!("{slope:.0} KiB an hour; all together {least} to {most} KiB");
    table.row("memory of an instance", told, "< 2 MiB an hour", slope < 2048.0);
    let (slope, (least, most)) = line(|one| one.usage.files);
    let told = format!("{slope:.1} an hour; all together {least} to {most}");
    table.row("open files of an instance", told, "< 2 an hour", slope < 2.0);
    let (slope, (least, most)) = line(|one| one.usage.threads);
    table.row("threads of an instance", format!("{slope:.1} an hour; {least} to {most}"), "< 1", slope < 1.0);
    let (slope, (least, most)) = line(|one| one.clients);
    let told = format!("{slope:.1} an hour and instance; all together {least} to {most}");
    table.row("connections to the servers", told, "< 2 an hour", slope < 2.0);
}

#[test]
#[ignore = "half an hour: cargo xtask soak"]
fn r11_soak() {
    let seed = seed();
    let mut random = Random::new(seed);
    let lasts = Duration::from_secs(60 * minutes());
    let topology = Topology::start(Kind::Sentinel);
    let Topology::Sentinel(sentinels) = &topology else { unreachable!("just started") };
    let plan = Plan::new(200, Duration::from_secs(1));
    let fleet = Fleet::start(&plan, &topology.url());
    let crowd = plan.offered(2, lasts, seed).start(&fleet.addresses());
    let (mut samples, mut faults) = (Vec::new(), Vec::new());
    let lasts_us = u64::try_from(lasts.as_micros()).unwrap();
    while crowd.now_us() + BETWEEN_US < lasts_us {
        let next_us = crowd.now_us() + BETWEEN_US;
        let fault = fail(&mut random, &fleet, sentinels, &crowd);
        sentinels.settle();
        wait::until("the next fault", wait::PATIENCE, || crowd.now_us() >= next_us);
        let now = sample(&fleet, sentinels, &crowd);
        println!("{:>5} s  {fault:<40} {:?} clients {}", now.at_us / 1_000_000, now.usage, now.clients);
        samples.push(now);
        faults.push(fault);
    }
    let outcome = crowd.finish();
    drop(fleet);
    println!("{}\nmodes: {}", outcome.summary(), modes(&outcome));
    let mut table = Table::new(
        "R11",
        &format!("{} min, {} faults, 200/1 s, 2 N offered", minutes(), faults.len()),
        Length::Whole,
    );
    verdict(&mut table, &samples);
    table.row("5xx and unanswered", broken(&outcome), "0", broken(&outcome) == 0);
    let permille = largest_permille(&outcome, &plan);
    // Planned failovers of a Sentinel have two masters for a moment.
    table.row(
        "most in a window",
        of_n(&outcome, &plan),
        "<= 1.5 N (two masters for a moment)",
        permille <= 1500,
    );
    table.told("99.9th percentile of checks", ms(latency_us(&outcome, 0.999)));
    table.end();
}
