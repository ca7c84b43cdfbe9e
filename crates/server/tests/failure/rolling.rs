//! R10: all instances are restarted one after another under full load.

use std::time::Duration;

use slidegate_testbed::redis::Server;
use slidegate_testbed::wait;

use crate::exact::{broken, largest_permille, latency_us, modes, of_n, seed};
use crate::fleet::{Fleet, INSTANCES, Plan};
use crate::table::{Length, Table, ms};

/// A store that a busy machine makes slow is not what is tested here: shares would be granted beside what it grants.
fn plan(permits: u32, seconds: u64) -> Plan {
    Plan::new(permits, Duration::from_secs(seconds)).store("timeout: 500ms, ladder: { slow: 500ms }")
}

fn restarted(plan: &Plan, case: &str, lasts: Duration) {
    let seed = seed();
    let server = Server::start();
    let mut fleet = Fleet::start(plan, &server.url());
    let crowd = plan.offered(2, lasts, seed).elsewhere().start(&fleet.addresses());
    wait::until("a crowd in full swing", wait::PATIENCE, || crowd.now_us() >= 1_000_000);
    let lasts_us = u64::try_from(lasts.as_micros()).unwrap();
    let mut restarts = 0;
    while crowd.now_us() + 1_500_000 < lasts_us {
        let instance = &mut fleet.instances[restarts % INSTANCES];
        instance.terminate();
        let status = instance.wait();
        assert_eq!(status.code(), Some(0), "{}", instance.log());
        instance.restart();
        // As whoever restarts a fleet does: the next one when this one has joined the others, and takes its share.
        fleet.wait_for_each_other();
        restarts += 1;
    }
    let outcome = crowd.finish();
    drop(fleet);
    println!("{}\nmodes: {}", outcome.summary(), modes(&outcome));
    let mut table = Table::new("R10", &format!("{case}, {restarts} restarts"), Length::Whole);
    table.row("failed requests", broken(&outcome), "0", broken(&outcome) == 0);
    let permille = largest_permille(&outcome, plan);
    table.row("most in a window", of_n(&outcome, plan), "<= N", permille <= 1000);
    table.told("sent again, as the connection ended unanswered", outcome.sent_again());
    table.told("99.9th percentile of checks", ms(latency_us(&outcome, 0.999)));
    assert!(restarts > 0, "nothing was restarted");
    table.end();
}

#[test]
fn a_rolling_restart_fails_no_request_and_forgets_nothing() {
    restarted(&plan(400, 1), "400/1 s, 2 N offered", Duration::from_secs(5));
}

#[test]
#[ignore = "minutes: cargo xtask failure r10"]
fn r10_rolling_restart() {
    restarted(&plan(500, 1), "500/1 s, 2 N offered", Duration::from_secs(30));
}

#[test]
#[ignore = "minutes: cargo xtask failure r10"]
fn r10_rolling_restart_minute() {
    restarted(&plan(6000, 60), "6000/60 s, 2 N offered", Duration::from_secs(70));
}
