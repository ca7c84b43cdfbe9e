//! R3: a store that does not answer and does not say so.

use std::time::Duration;

use slidegate_testbed::crowd::Outcome;
use slidegate_testbed::instance::Instance;
use slidegate_testbed::proxy::{FaultProxy, Way};
use slidegate_testbed::redis::Server;
use slidegate_testbed::wait;

use crate::exact::{
    bound, broken, exact_after_us, largest_permille, latency_us, modes, of_n, seed, within_us,
};
use crate::fleet::{Fleet, INSTANCES, Plan};
use crate::processes::Usage;
use crate::table::{Length, Table, ms};

#[derive(Clone, Copy, Debug)]
enum Silence {
    /// The server is frozen (SIGSTOP): the kernel goes on to accept.
    Frozen,
    /// Whatever is sent is lost.
    BlackHole,
    /// `CLIENT PAUSE`.
    Paused,
}

/// By then every breaker has tripped: five calls of 10 ms each, one after another, and what was queued.
const TRIPPED_AFTER_US: u64 = 300_000;

/// How long Envoy waits for an answer by default.
const ENVOY_WAITS_US: u64 = 20_000;

fn usage(fleet: &Fleet) -> Usage {
    Usage::of(fleet.instances.iter().map(Instance::pid))
}

/// What was seen of a silence.
struct Seen {
    outcome: Outcome,
    plan: Plan,
    /// When it began and ended.
    from: u64,
    until: u64,
    /// Before, and at its end.
    usage: [Usage; 2],
    /// In which time checks were decided once breakers had tripped.
    decided_within_us: u64,
}

fn fall_silent(silence: Silence, lasts: Duration) -> Seen {
    let seed = seed();
    let server = Server::start();
    let proxy = FaultProxy::start(&server.address());
    let plan = Plan::new(400, Duration::from_secs(1));
    let fleet = Fleet::start(&plan, &format!("redis://{}", proxy.address()));
    let silent_us = u64::try_from(lasts.as_micros()).unwrap();
    // Before, meanwhile, and after.
    let crowd = plan.offered(2, lasts + Duration::from_secs(6), seed).start(&fleet.addresses());
    let wait_until = |what: &str, us: u64| {
        wait::until(what, lasts + wait::PATIENCE, || crowd.now_us() >= us);
    };
    wait_until("a crowd in full swing", 2_000_000);
    let before = usage(&fleet);
    match silence {
        Silence::Frozen => server.stop(),
        Silence::BlackHole => proxy.black_hole(Way::Both),
        Silence::Paused => server.ask(&["CLIENT", "PAUSE", &(silent_us / 1000).to_string(), "ALL"]),
    }
    let from = crowd.now_us();
    wait_until("tripped breakers", from + TRIPPED_AFTER_US);
    let tripped = fleet.check_times_us();
    wait_until("the last of the silence", from + silent_us - 200_000);
    let decided_within_us = within_us(&tripped, &fleet.check_times_us(), 990);
    let usage = [before, usage(&fleet)];
    wait_until("the end of the silence", from + silent_us);
    match silence {
        Silence::Frozen => server.cont(),
        Silence::BlackHole => proxy.pass(),
        Silence::Paused => {}
    }
    let until = crowd.now_us();
    let outcome = crowd.finish();
    println!("{}\nmodes: {}", outcome.summary(), modes(&outcome));
    Seen { outcome, plan, from, until, usage, decided_within_us }
}

fn falls_silent(silence: Silence, length: Length, lasts: Duration) {
    let seen = fall_silent(silence, lasts);
    let case = format!("{silence:?} for {} s, 400/1 s, 2 N offered", lasts.as_secs());
    let mut table = Table::new("R3", &case, length);
    seen.times(&mut table);
    let (outcome, plan) = (&seen.outcome, &seen.plan);
    table.row("5xx and unanswered", broken(outcome), "0", broken(outcome) == 0);
    table.told("every instance exact again after the end", ms(exact_after_us(outcome, seen.until)));
    // All were cut off, and local shares add up to N; what was granted by the store before is in each one's history.
    let cut_off = outcome.between(0, seen.until - 100_000);
    let permille = largest_permille(&cut_off, plan);
    table.row("most in a window, until the end", of_n(&cut_off, plan), "<= 1.01 N", permille <= 1010);
    let permille = largest_permille(outcome, plan);
    table.row("most in a window, the return included", of_n(outcome, plan), "<= 1.01 N", permille <= 1010);
    seen.usages(&mut table);
    table.end();
}

impl Seen {
    fn times(&self, table: &mut Table) {
        let Self { outcome, from, until, .. } = self;
        let parts = [
            outcome.between(0, *from),
            outcome.between(*from, from + TRIPPED_AFTER_US),
            outcome.between(from + TRIPPED_AFTER_US, *until),
        ];
        let [before, tripping, tripped] = parts.each_ref().map(|part| latency_us(part, 0.99));
        table.told("99th percentile before, with all of the machine's noise", ms(before));
        table.timed(
            "99th percentile until breakers have tripped",
            ms(tripping),
            "< 15 ms",
            tripping < 15_000,
        );
        let within = self.decided_within_us;
        table.timed(
            "99th percentile after that, by the instances' own histogram",
            bound(within),
            "< 1 ms",
            within <= 1_000,
        );
        table.told("99th percentile after that, with all of the machine's noise", ms(tripped));
        let late = parts.map(|part| {
            part.records.iter().filter(|one| one.answered_us - one.intended_us > ENVOY_WAITS_US).count()
        });
        table.told("longer than Envoy's 20 ms: before, until tripped, after that", format!("{late:?}"));
    }

    fn usages(&self, table: &mut Table) {
        let [before, meanwhile] = self.usage;
        let grown = meanwhile.resident_kib.saturating_sub(before.resident_kib) / INSTANCES as u64;
        table.timed("memory of an instance, grown by", format!("{grown} KiB"), "< 1024 KiB", grown < 1024);
        let more_files = meanwhile.files.saturating_sub(before.files) / INSTANCES as u64;
        table.row("open files of an instance, more by", more_files, "< 4", more_files < 4);
        let threads = meanwhile.threads.abs_diff(before.threads);
        table.row("threads of all instances, more or less by", threads, "< 8", threads < 8);
    }
}

#[test]
fn a_frozen_store_costs_nobody_a_wait() {
    falls_silent(Silence::Frozen, Length::Slice, Duration::from_secs(2));
}

#[test]
#[ignore = "minutes: cargo xtask failure r3"]
fn r3_frozen() {
    falls_silent(Silence::Frozen, Length::Whole, Duration::from_secs(10));
}

#[test]
#[ignore = "minutes: cargo xtask failure r3"]
fn r3_black_hole() {
    falls_silent(Silence::BlackHole, Length::Whole, Duration::from_secs(10));
}

#[test]
#[ignore = "minutes: cargo xtask failure r3"]
fn r3_paused() {
    falls_silent(Silence::Paused, Length::Whole, Duration::from_secs(10));
}
