//! A scene: everything that a seed decides before the first event.
//!
//! Windows are short and limits small, so that they are full all the time; delays, outages and lags are of the size of
//! windows, so that they matter. Each scene has a few kinds of fault, seldom all: with everything at once, nothing would
//! be admitted that could be one too many.

use fastrand::Rng;
use slidegate_core::limit::{Algorithm, Limit};
use slidegate_core::time::Millis;

use crate::broken::Broken;

/// What becomes of a check that the store can't be asked about (`on_store_failure`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnFailure {
    Deny,
    Local,
}

/// Something that goes wrong, or is done by somebody.
#[derive(Clone, Debug)]
pub(crate) enum Fault {
    /// The master is killed, and a replica promoted so much later.
    Kill { promoted_after_us: u64 },
    /// The master waits until a replica has everything, and hands over.
    Planned { takes_us: u64 },
    /// A replica is promoted, and the old master is not told for so long.
    SplitBrain { overlap_us: u64 },
    /// The master is killed, and comes back without its data.
    Restart { after_us: u64 },
    /// The clock of a server is set, by so much.
    Step { server: usize, by_us: i64 },
    /// An instance and the store don't hear each other.
    CutOff { who: usize, for_us: u64 },
    /// Nobody hears the store.
    Silence { for_us: u64 },
    /// Replicas don't hear from the master.
    HoldReplication { for_us: u64 },
    /// A counter is emptied.
    Reset { key: usize },
    /// A limit is changed, on each instance at some time within this.
    Limit { key: usize, limit: Limit, within_us: u64 },
    /// An instance is killed, and another one started in its place.
    Die { who: usize, started_after_us: u64 },
    /// An instance is shut down in order, and another one started in its place.
    Stop { who: usize, started_after_us: u64 },
}

/// All that is known before the first event.
#[derive(Clone, Debug)]
pub(crate) struct Scene {
    pub(crate) instances: usize,
    pub(crate) servers: usize,
    pub(crate) limits: Vec<Limit>,
    /// Until when faults happen; then the network is quiet, and the end is at `end_us`.
    pub(crate) quiet_us: u64,
    pub(crate) end_us: u64,
    /// Checks asked for, in hundredths of the limit.
    pub(crate) load: u64,
    /// Checks of more than one permit.
    pub(crate) costs: bool,
    /// One way through the network, from and to.
    pub(crate) way_us: (u64, u64),
    /// From the master to a replica, from and to.
    pub(crate) lag_us: (u64, u64),
    /// A call's deadline.
    pub(crate) timeout_us: u64,
    /// Of a thousand messages: lost, late, doubled.
    pub(crate) lost: u32,
    pub(crate) late: u32,
    pub(crate) doubled: u32,
    /// Of a thousand callers: gone before their answer.
    pub(crate) gone: u32,
    /// Clocks of instances run fast or slow by up to so many millionths.
    pub(crate) drift_ppm: u64,
    /// `failover: exact`.
    pub(crate) exact: bool,
    /// Zero: no leases. At most this part of a window: the product's longest is a fiftieth, the core promises more.
    pub(crate) lease: Millis,
    pub(crate) lease_parts: u64,
    pub(crate) on_failure: OnFailure,
    /// How many instances are configured; 0: that is not.
    pub(crate) configured: u32,
    /// In order of time.
    pub(crate) faults: Vec<(u64, Fault)>,
}

/// How clocks of instances drift at the most: as far as NTP slews them. Millionths.
const DRIFT_MAX_PPM: u64 = 500;

impl Scene {
    /// The scene of a seed. What is broken takes part: its scene has what it takes to show.
    pub(crate) fn draw(rng: &mut Rng, broken: Broken) -> Self {
        let window = Millis(*choose(rng, &[40, 100, 250, 500, 1_000, 1_000, 2_000, 5_000]));
        let keys = rng.usize(1..=3);
        let limits: Vec<Limit> = (0..keys).map(|_| limit(rng, window)).collect();
        let window_us = window.get() * 1000;
        let quiet_us = window_us * rng.u64(3..8) + 200_000;
        let way = rng.u64(30..1_500);
        let instances = rng.usize(2..=10);
        let lossy = rng.bool();
        let leases = rng.u8(0..3) == 0;
        let mut of_thousand = |most: u32| if lossy && rng.bool() { rng.u32(0..=most) } else { 0 };
        let (lost, late, doubled, gone) =
            (of_thousand(60), of_thousand(60), of_thousand(60), of_thousand(100));
        let mut scene = Self {
            instances,
            servers: 3,
            limits,
            quiet_us,
            end_us: quiet_us,
            load: rng.u64(80..400),
            costs: !leases && rng.u8(0..3) == 0,
            way_us: (way, way + rng.u64(1..2_000)),
            lag_us: (100, 100 + rng.u64(1..window_us)),
            timeout_us: rng.u64(5_000..30_000),
            lost,
            late,
            doubled,
            gone,
            drift_ppm: if rng.bool() { 0 } else { rng.u64(1..=DRIFT_MAX_PPM) },
            exact: broken != Broken::LedgerOff,
            lease: if leases { Millis(rng.u64(1..=200)) } else { Millis::ZERO },
            lease_parts: *choose(rng, &[50, 50, 10, 5]),
            on_failure: if rng.bool() { OnFailure::Deny } else { OnFailure::Local },
            configured: if rng.bool() { 0 } else { u32::try_from(instances).unwrap_or_default() },
            faults: Vec::new(),
        };
        scene.draw_faults(rng, window_us);
        scene
    }

    fn draw_faults(&mut self, rng: &mut Rng, window_us: u64) {
        let kinds: Vec<u8> = (0..rng.usize(0..4)).map(|_| rng.u8(0..KINDS)).collect();
        for kind in kinds {
            for _ in 0..rng.usize(1..3) {
                let at_us = rng.u64(FIRST_FAULT_US..self.quiet_us);
                let fault = self.fault(rng, kind, window_us);
                self.faults.push((at_us, fault));
            }
        }
        self.faults.sort_by_key(|(at_us, _)| *at_us);
        let longest_us = self.faults.iter().map(|(_, fault)| match fault {
            Fault::Limit { limit, .. } => limit.window().get() * 1000,
            _ => window_us,
        });
        let longest_us = longest_us.max().unwrap_or(window_us).max(window_us);
        self.end_us = self.quiet_us + CALM_US + 6 * longest_us;
    }

    fn fault(&self, rng: &mut Rng, kind: u8, window_us: u64) -> Fault {
        let who = rng.usize(0..self.instances);
        let span_us = |rng: &mut Rng| rng.u64(1_000..window_us.max(2_000));
        match kind {
            0..=3 => Fault::Kill { promoted_after_us: span_us(rng) },
            4 => Fault::Planned { takes_us: rng.u64(500..20_000) },
            5 => Fault::Restart { after_us: span_us(rng) },
            6 => Fault::CutOff { who, for_us: span_us(rng) },
            7 => Fault::Silence { for_us: span_us(rng) },
            8 => Fault::HoldReplication { for_us: span_us(rng) },
            9 => Fault::Reset { key: rng.usize(0..self.limits.len()) },
            10 => Fault::Die { who, started_after_us: span_us(rng) },
            11 => Fault::Step { server: rng.usize(0..self.servers), by_us: step(rng, window_us) },
            12 => {
                let key = rng.usize(0..self.limits.len());
                let window = self.limits[key].window();
                let window = if rng.bool() { window } else { Millis(window.get() * rng.u64(1..5) / 2) };
                Fault::Limit { key, limit: limit(rng, window), within_us: span_us(rng) }
            }
            13 => Fault::SplitBrain { overlap_us: span_us(rng) },
            _ => Fault::Stop { who, started_after_us: span_us(rng) },
        }
    }
}

const KINDS: u8 = 15;

/// Between the last fault and the time in which everything must be used again: whoever died is awaited for its life, 5 s.
const CALM_US: u64 = 6_500_000;

/// By then everybody has beaten for the first time.
const FIRST_FAULT_US: u64 = 20_000;

/// A clock that is set: a little, by about a window, by an hour.
fn step(rng: &mut Rng, window_us: u64) -> i64 {
    let most = *choose(rng, &[50_000, window_us / 2, window_us, 2_000_000, 3_600_000_000]);
    let by_us = i64::try_from(rng.u64(1..=most)).unwrap_or_default();
    if rng.u8(0..3) == 0 { by_us } else { -by_us }
}

fn limit(rng: &mut Rng, window: Millis) -> Limit {
    let permits = *choose(rng, &[1, 2, 5, 10, 20, 50, 100, 200]);
    let resolution = (rng.u8(0..6) == 0).then(|| Millis(rng.u64(1..=window.get() / 20 + 1)));
    let plain = Limit::new(permits, window).unwrap_or(SPARE);
    plain.with_algorithm(Algorithm::SlidingWindow { resolution }).unwrap_or(plain)
}

/// Never needed: every window above is one that a limit may have.
const SPARE: Limit = match Limit::new(1, Millis(1_000)) {
    Ok(limit) => limit,
    Err(_) => panic!("a valid limit"),
};

fn choose<'a, T>(rng: &mut Rng, of: &'a [T]) -> &'a T {
    &of[rng.usize(0..of.len())]
}
