//! R1: the master is killed while its replicas have not heard of what it granted last. And R2 of the same runs.

use std::time::Duration;

use slidegate_testbed::crowd::Outcome;
use slidegate_testbed::random::Random;
use slidegate_testbed::wait;

use crate::exact::{
    admitted_between, broken, degraded_since, degraded_times, exact_after_us, largest_permille, modes,
    moment_us, of_n, p999, seed, within_us,
};
use crate::fleet::{Fleet, Plan};
use crate::table::{Length, Table, ms};
use crate::topology::{Kind, Topology, used};

/// How many moments are tried until something is at stake. At one in two, nothing is: clients were just denied for a
/// while, or the window was over when the failover was.
const MOMENTS_MAX: usize = 8;

/// One run.
#[derive(Clone, Copy, Debug)]
struct Case {
    kind: Kind,
    permits: u32,
    window: Duration,
    /// Offered, in limits.
    times: u64,
    /// A failover is begun as soon as the master is dead. A window of a second is over before Sentinels and nodes
    /// have found that out for themselves, and nothing that was lost in it would matter any more.
    at_once: bool,
    /// When replication is held back, in ms from the start, and for how long at the least.
    held_after: [u64; 2],
    held_for_ms: u64,
    /// How long the crowd goes on after that.
    goes_on: Duration,
}

/// What a run came to.
struct Run {
    outcome: Outcome,
    plan: Plan,
    /// Counted by the master when it died, and by its replicas then.
    counted: [Option<u32>; 2],
    /// In which time all but one in a thousand checks were decided.
    decided_within_us: u64,
    /// Granted after replication was held back, within the last window of the master's life.
    lost: usize,
    killed_us: u64,
    promoted_us: u64,
}

impl Case {
    fn second(kind: Kind, times: u64) -> Self {
        Self {
            kind,
            permits: 200,
            window: Duration::from_secs(1),
            times,
            at_once: true,
            held_after: [1500, 2500],
            held_for_ms: 800,
            goes_on: Duration::from_secs(8),
        }
    }

    fn minute(kind: Kind, times: u64) -> Self {
        Self {
            permits: 3000,
            window: Duration::from_secs(60),
            at_once: false,
            held_after: [500, 1500],
            // Until more than half of the limit was granted.
            held_for_ms: 40_000 / times,
            goes_on: Duration::from_secs(70),
            ..Self::second(kind, times)
        }
    }

    fn name(&self, failover: &str) -> String {
        let by_whom = if self.at_once { "told to fail over" } else { "left alone" };
        format!(
            "{:?}, {}/{} s, {} N offered, {by_whom}, `{failover}`",
            self.kind,
            self.permits,
            self.window.as_secs(),
            self.times
        )
    }

    fn run(&self, failover: &str, seed: u64) -> Run {
        let mut random = Random::new(seed);
        let topology = Topology::start(self.kind);
        let plan = Plan::new(self.permits, self.window).failover(failover);
        let fleet = Fleet::start(&plan, &topology.url());
        let held_us = moment_us(&mut random, self.held_after[0], self.held_after[1]);
        let killed_after_us = moment_us(&mut random, self.held_for_ms, self.held_for_ms + 400);
        let lasts = Duration::from_micros(held_us + killed_after_us) + self.goes_on;
        let before = fleet.check_times_us();
        let crowd = plan.offered(self.times, lasts, seed).start(&fleet.addresses());
        let (master, replicas) = (topology.master(), topology.replicas());

        let patience = lasts + wait::PATIENCE;
        wait::until("the moment to hold replication back", patience, || crowd.now_us() >= held_us);
        let running: Vec<_> = replicas.into_iter().filter(|replica| replica.runs()).collect();
        master.hold_back_replication(&running);
        let held_us = crowd.now_us();
        wait::until("the moment to kill", patience, || crowd.now_us() >= held_us + killed_after_us);
        let by_master = used(master);
        let killed_us = crowd.now_us();
        let by_replica = topology.kill_master(&running, self.at_once);
        let promoted_us = crowd.now_us();
        let outcome = crowd.finish();
        let decided_within_us = within_us(&before, &fleet.check_times_us(), 999);
        let window_us = u64::try_from(self.window.as_micros()).unwrap();
        let lost = admitted_between(&outcome, held_us.max(killed_us.saturating_sub(window_us)), killed_us);
        if std::env::var_os("FAILURE_LOGS").is_some() {
            println!("the first instance said:\n{}", fleet.instances[0].log());
        }
        println!("{}", outcome.summary());
        println!("modes: {}; not exact: {}", modes(&outcome), degraded_times(&outcome));
        let counted = [by_master, by_replica];
        Run { outcome, plan, counted, lost, decided_within_us, killed_us, promoted_us }
    }

    /// Runs it with `fast` and with `exact` at the same moments: `exact` has to hold. It proves nothing unless `fast` does
    /// not, and unless enough was lost in both: then another moment is tried.
    fn hold(&self, length: Length) {
        let first = seed();
        let tried = (first..).take(MOMENTS_MAX).find(|seed| self.hold_at(*seed, length));
        assert!(tried.is_some(), "void: nothing was at stake at {MOMENTS_MAX} moments");
    }

    /// Whether it was a run at all.
    fn hold_at(&self, seed: u64, length: Length) -> bool {
        println!("moments of seed {seed}");
        let fast = self.run("fast", seed);
        let mut table = Table::new("R1", &self.name("fast"), length);
        let at_stake = fast.what_was_lost(&mut table);
        let permille = largest_permille(&fast.outcome, &fast.plan);
        table.told("most in a window; void unless > 1.2 N", of_n(&fast.outcome, &fast.plan));
        if !at_stake || permille <= 1200 {
            return false;
        }
        let exact = self.run("exact", seed);
        let mut table = Table::new("R1", &self.name("exact"), length);
        let at_stake = exact.what_was_lost(&mut table);
        let permille = largest_permille(&exact.outcome, &exact.plan);
        table.row("most in a window", of_n(&exact.outcome, &exact.plan), "<= 1.01 N", permille <= 1010);
        table.row("5xx and unanswered", broken(&exact.outcome), "0", broken(&exact.outcome) == 0);
        exact.r2(&mut table);
        table.end();
        at_stake
    }
}

impl Run {
    /// Whether that was enough.
    fn what_was_lost(&self, table: &mut Table) -> bool {
        let [by_master, by_replica] = self.counted;
        let told =
            |count: Option<u32>| count.map_or_else(|| "not told".to_owned(), |count| count.to_string());
        table.told(
            "counted by the killed master, by its replicas",
            format!("{}, {}", told(by_master), told(by_replica)),
        );
        table.told("granted in the last window, unknown to the replicas; void unless >= N/2", self.lost);
        self.lost >= usize::try_from(self.plan.permits / 2).unwrap()
    }

    fn r2(&self, table: &mut Table) {
        table.told("promoted after", ms(self.promoted_us - self.killed_us));
        let exact_us = exact_after_us(&self.outcome, self.promoted_us);
        table.timed(
            "every instance exact again after promotion",
            ms(exact_us),
            "< 1 s",
            exact_us < 1_000_000,
        );
        let later = degraded_since(&self.outcome, self.promoted_us + 1_000_000);
        table.told("not exact later than 1 s after promotion", later);
        p999(table, &self.outcome, self.decided_within_us);
    }
}

#[test]
fn a_killed_sentinel_master_takes_nothing_with_it() {
    Case { goes_on: Duration::from_secs(4), permits: 100, ..Case::second(Kind::Sentinel, 10) }
        .hold(Length::Slice);
}

#[test]
#[ignore = "minutes: cargo xtask failure r1"]
fn r1_sentinel_second_2n() {
    Case::second(Kind::Sentinel, 2).hold(Length::Whole);
}

#[test]
#[ignore = "minutes: cargo xtask failure r1"]
fn r1_sentinel_second_10n() {
    Case::second(Kind::Sentinel, 10).hold(Length::Whole);
}

#[test]
#[ignore = "minutes: cargo xtask failure r1"]
fn r1_cluster_second_2n() {
    Case::second(Kind::Cluster, 2).hold(Length::Whole);
}

#[test]
#[ignore = "minutes: cargo xtask failure r1"]
fn r1_cluster_second_10n() {
    Case::second(Kind::Cluster, 10).hold(Length::Whole);
}

#[test]
#[ignore = "minutes: cargo xtask failure r1"]
fn r1_sentinel_minute_2n() {
    Case::minute(Kind::Sentinel, 2).hold(Length::Whole);
}

#[test]
#[ignore = "minutes: cargo xtask failure r1"]
fn r1_sentinel_minute_10n() {
    Case::minute(Kind::Sentinel, 10).hold(Length::Whole);
}

#[test]
#[ignore = "minutes: cargo xtask failure r1"]
fn r1_cluster_minute_2n() {
    Case::minute(Kind::Cluster, 2).hold(Length::Whole);
}

#[test]
#[ignore = "minutes: cargo xtask failure r1"]
fn r1_cluster_minute_10n() {
    Case::minute(Kind::Cluster, 10).hold(Length::Whole);
}
