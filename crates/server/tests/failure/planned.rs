//! R2: masters that are replaced on purpose, and slots that move, under load.

use std::time::Duration;

use slidegate_testbed::crowd::{Outcome, Running};
use slidegate_testbed::random::Random;
use slidegate_testbed::redis::Server;
use slidegate_testbed::wait;

use crate::exact::{
    broken, degraded_since, degraded_times, exact_after_us, largest_permille, modes, moment_us, of_n, p999,
    seed, within_us,
};
use crate::fleet::{Fleet, Plan};
use crate::table::{Length, Table, ms};
use crate::topology::{Kind, Planned, Topology};

/// For how long the old master is watched: longer than any caller may stay with it.
const WATCHED: Duration = Duration::from_secs(3);

/// When the old master was called for the last time, in microseconds on the crowd's clock.
fn last_call_us(old: &Server, crowd: &Running, from: u64) -> u64 {
    let (mut calls, mut last) = (script_calls(old), from);
    let watched_us = u64::try_from(WATCHED.as_micros()).unwrap();
    wait::until("the old master was watched", WATCHED + wait::PATIENCE, || {
        let now = script_calls(old);
        if now != calls {
            (calls, last) = (now, crowd.now_us());
        }
        crowd.now_us() >= from + watched_us
    });
    last
}

/// `calls=12,usec=...` of EVALSHA, as far as the comma.
fn script_calls(server: &Server) -> String {
    let text: String = server.ask(&["INFO", "commandstats"]);
    let stat = text.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls="));
    stat.and_then(|stat| stat.split_once(',')).map_or_else(String::new, |(calls, _)| calls.to_owned())
}

fn figures(table: &mut Table, outcome: &Outcome, moment: u64, decided_within_us: u64) {
    let exact_us = exact_after_us(outcome, moment);
    table.timed("every instance exact again after promotion", ms(exact_us), "< 1 s", exact_us < 1_000_000);
    table.told("not exact later than 1 s after promotion", degraded_since(outcome, moment + 1_000_000));
    p999(table, outcome, decided_within_us);
    table.row("5xx and unanswered", broken(outcome), "0", broken(outcome) == 0);
}

fn replaced(kind: Kind, how: Planned, lasts: Duration) {
    let seed = seed();
    let topology = Topology::start(kind);
    let plan = Plan::new(500, Duration::from_secs(1));
    let fleet = Fleet::start(&plan, &topology.url());
    let before = fleet.check_times_us();
    let crowd = plan.offered(2, lasts, seed).start(&fleet.addresses());
    let at = moment_us(&mut Random::new(seed), 1500, 2500);
    wait::until("the moment", wait::PATIENCE, || crowd.now_us() >= at);
    let old = topology.master();
    topology.replace_master(how);
    let promoted_us = crowd.now_us();
    let last_us = last_call_us(old, &crowd, promoted_us);
    let outcome = crowd.finish();
    let decided_within_us = within_us(&before, &fleet.check_times_us(), 999);
    drop(fleet);
    println!("{}\nmodes: {}", outcome.summary(), modes(&outcome));
    println!("not exact: {}", degraded_times(&outcome));

    let mut table = Table::new("R2", &format!("{how:?}, 500/1 s, 2 N offered"), Length::Whole);
    figures(&mut table, &outcome, promoted_us, decided_within_us);
    let on_old_us = last_us - promoted_us;
    table.timed("on the old master after promotion", ms(on_old_us), "< 0.5 s", on_old_us < 500_000);
    let permille = largest_permille(&outcome, &plan);
    if how == Planned::SentinelFailover {
        // Both take writes for a moment: what passes in that time, at the rate of the limit, and no more.
        let most = 1010 + u32::try_from(on_old_us / 1000 + 200).unwrap();
        let bound = format!("<= N (1 + overlap) = {}.{:03} N", most / 1000, most % 1000);
        table.row("most in a window", of_n(&outcome, &plan), &bound, permille <= most);
    } else {
        table.row("most in a window", of_n(&outcome, &plan), "<= 1.01 N", permille <= 1010);
    }
    table.end();
}

/// Slots move while all instances ask, the counter's own among them.
fn resharded(length: Length, lasts: Duration) {
    let seed = seed();
    let topology = Topology::start(Kind::Cluster);
    let Topology::Cluster(cluster) = &topology else { unreachable!("just started") };
    let plan = Plan::new(500, Duration::from_secs(1));
    let fleet = Fleet::start(&plan, &topology.url());
    let before = fleet.check_times_us();
    let crowd = plan.offered(2, lasts, seed).start(&fleet.addresses());
    let slot = cluster.slot_of("{all}");
    let at = moment_us(&mut Random::new(seed), 1000, 2000);
    wait::until("the moment", wait::PATIENCE, || crowd.now_us() >= at);
    let mut moves = 0;
    // To each master in turn, until the crowd is nearly through.
    let until = u64::try_from(lasts.as_micros()).unwrap() - 1_500_000;
    while crowd.now_us() < until {
        let to = &cluster.nodes()[moves % 3];
        cluster.move_slot(slot, to);
        cluster.settle();
        moves += 1;
    }
    let outcome = crowd.finish();
    let decided_within_us = within_us(&before, &fleet.check_times_us(), 999);
    drop(fleet);
    println!("{}\nmodes: {}", outcome.summary(), modes(&outcome));
    println!("not exact: {}", degraded_times(&outcome));
    let mut table =
        Table::new("R2", &format!("slot of the counter moved {moves} times, 500/1 s, 2 N offered"), length);
    let permille = largest_permille(&outcome, &plan);
    table.row("most in a window", of_n(&outcome, &plan), "<= 1.01 N", permille <= 1010);
    table.row("5xx and unanswered", broken(&outcome), "0", broken(&outcome) == 0);
    p999(&mut table, &outcome, decided_within_us);
    table.end();
}

#[test]
#[ignore = "minutes: cargo xtask failure r2"]
fn r2_sentinel_failover() {
    replaced(Kind::Sentinel, Planned::SentinelFailover, Duration::from_secs(10));
}

#[test]
#[ignore = "minutes: cargo xtask failure r2"]
fn r2_failover_to() {
    replaced(Kind::Sentinel, Planned::FailoverTo, Duration::from_secs(10));
}

#[test]
#[ignore = "minutes: cargo xtask failure r2"]
fn r2_cluster_failover() {
    replaced(Kind::Cluster, Planned::ClusterFailover, Duration::from_secs(10));
}

#[test]
#[ignore = "minutes: cargo xtask failure r2"]
fn r2_resharding() {
    resharded(Length::Whole, Duration::from_secs(15));
}

#[test]
fn slots_move_under_load_and_nobody_gets_more_for_it() {
    resharded(Length::Slice, Duration::from_secs(5));
}
