//! Which masters answer, and the roll calls of those that took over.
//!
//! A master is known by the beginning of its replication id: a promoted replica has a new one, and so has a server that
//! was started again. Where another one answers than before, writes may have been lost with the old one, and a roll
//! call begins ([`roll_call`](slidegate_core::instance::roll_call)) before the first call is sent to it: until all
//! instances have put back what they know of, each takes no more than what it held when it noticed.
//!
//! What it is not: it sends nothing. The heartbeat tells who is in sync, `calls` puts back and stays below the cap.
//!
//! # Invariants
//! * A roll call begins with the first connection, too: an instance that starts after a failover has nothing to put
//!   back, and must not take what others have not put back yet. It is over with the first beat that tells of nobody.
//! * One roll call of a master at a time. A later change of the same place begins another.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use slidegate_core::instance::Era;
use slidegate_core::instance::roll_call::{Beat, RollCall};
use slidegate_core::time::Millis;
use tokio::sync::Notify;
use tokio::time::Instant;
use tracing::info;

/// Masters that a beat names, the latest: 576 bytes. In a larger cluster roll calls of the others end after a window.
const TOLD_MAX: usize = 64;
/// The longest roll call: twice the life of an instance that is gone. So long a store that refuses beats is waited for.
const ROLL_CALL_MAX: Duration = Duration::from_secs(10);
/// For how long after a roll call the instance still beats often: who noticed later is waiting for it.
const AFTERWARDS: Duration = Duration::from_secs(2);

/// The beginning of a replication id: 8 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Master([u8; 8]);

impl Master {
    /// Reads what `INFO replication` says.
    pub(super) fn of_info(text: &str) -> Option<Self> {
        let id = text.lines().find_map(|line| line.strip_prefix("master_replid:"))?;
        Self::read(id.trim())
    }

    fn read(id: &str) -> Option<Self> {
        let begin = id.as_bytes().first_chunk::<8>()?;
        begin.iter().all(u8::is_ascii_hexdigit).then_some(Self(*begin))
    }

    /// One that does not tell who it is: never the same as any other.
    pub(super) fn unknown() -> Self {
        let random = format!("{:032x}", crate::random::u128());
        Self::read(&random).unwrap_or(Self([b'0'; 8]))
    }

    fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

/// The instance's own clock, in microseconds since it began: it never steps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnTime(Instant);

impl OwnTime {
    pub(crate) fn begin() -> Self {
        Self(Instant::now())
    }

    /// Rounded down.
    pub(crate) fn now_us(self) -> u64 {
        self.at_us(Instant::now())
    }

    /// The same of another instant.
    pub(crate) fn at_us(self, at: Instant) -> u64 {
        u64::try_from(at.saturating_duration_since(self.0).as_micros()).unwrap_or(u64::MAX)
    }
}

/// All masters of a link.
pub(crate) struct Masters {
    time: OwnTime,
    /// Roll calls that are not over.
    open: AtomicUsize,
    /// Whether this instance was granted anything yet.
    in_use: AtomicBool,
    eras: AtomicU32,
    begun_so_far: AtomicU64,
    state: Mutex<State>,
    /// Who remembers what was held when an era began.
    listener: OnceLock<Box<dyn Fn(Era) + Send + Sync>>,
    /// A roll call has begun.
    begun: Notify,
}

#[derive(Default)]
struct State {
    /// Everybody of the last heartbeat but this instance.
    others: Vec<u64>,
    /// Masters that answered, the latest last.
    known: Vec<Master>,
    open: Vec<Open>,
    last_over: Option<Instant>,
    life: Millis,
}

struct Open {
    master: Master,
    era: Era,
    roll_call: RollCall,
    /// This instance has put everything back.
    in_sync: bool,
    /// The master is another than before: what it was granted may be lost.
    lossy: bool,
}

/// One instance, as a beat tells of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Told<'a> {
    pub(crate) identity: u64,
    pub(crate) at_ms: u64,
    /// The masters that it is in sync with, as [`Masters::in_sync`] writes them.
    pub(crate) in_sync: &'a str,
}

impl Masters {
    pub(super) fn new(time: OwnTime) -> Arc<Self> {
        Arc::new(Self {
            time,
            open: AtomicUsize::new(0),
            in_use: AtomicBool::new(false),
            eras: AtomicU32::new(0),
            begun_so_far: AtomicU64::new(0),
            state: Mutex::default(),
            listener: OnceLock::new(),
            begun: Notify::new(),
        })
    }

    pub(crate) const fn time(&self) -> OwnTime {
        self.time
    }

    /// Calls this whenever an era begins, before any call of it is sent.
    pub(crate) fn listen(&self, listener: impl Fn(Era) + Send + Sync + 'static) {
        let _ = self.listener.set(Box::new(listener));
    }

    /// The number of an era that begins: of a roll call, or of a time without the store.
    pub(crate) fn new_era(&self) -> u32 {
        self.eras.fetch_add(1, Relaxed).wrapping_add(1).max(1)
    }

    /// Takes note that this instance was granted something.
    pub(crate) fn granted(&self) {
        if !self.in_use.load(Relaxed) {
            self.in_use.store(true, Relaxed);
        }
    }

    /// A connection to a master is about to be used. `only`: there are no others.
    pub(super) fn opened(&self, master: Master, only: bool) {
        let mut state = self.state.lock();
        let known = if only { state.known.last() == Some(&master) } else { state.known.contains(&master) };
        state.known.retain(|known| *known != master);
        if state.known.len() >= TOLD_MAX {
            state.known.remove(0);
        }
        state.known.push(master);
        if only {
            // Whoever was the master before is none any more.
            state.known.retain(|known| *known == master);
            state.open.retain(|open| open.master == master);
            self.open.store(state.open.len(), Relaxed);
        }
        // Whoever has just started, or was granted nothing yet, has nothing to put back; but others may, and it must not
        // take what they have not put back yet.
        if !known {
            self.begin(&mut state, master, self.in_use.load(Relaxed));
        }
    }

    /// The instance comes back from deciding by itself: others may have done so too, and must put it back.
    pub(crate) fn comes_back(&self, master: Master) {
        self.begin(&mut self.state.lock(), master, false);
    }

    fn begin(&self, state: &mut State, master: Master, lossy: bool) {
        let number = self.new_era();
        let era = Era { number, began_us: self.time.now_us() };
        if let Some(listener) = self.listener.get() {
            listener(era);
        }
        let roll_call = RollCall::begin(state.others.iter().copied(), state.life);
        info!(
            master = master.as_str(),
            awaited = roll_call.awaited().len(),
            "another Redis master: roll call"
        );
        let open = Open { master, era, roll_call, in_sync: false, lossy };
        match state.open.iter_mut().find(|open| open.master == master) {
            Some(before) => *before = Open { lossy: lossy || before.lossy, ..open },
            None => state.open.push(open),
        }
        self.open.store(state.open.len(), Relaxed);
        self.begun_so_far.fetch_add(1, Relaxed);
        self.begun.notify_waiters();
    }

    /// How many roll calls have begun.
    pub(crate) fn begun_so_far(&self) -> u64 {
        self.begun_so_far.load(Relaxed)
    }

    /// Whether there is any roll call at all: asked by every call.
    pub(crate) fn is_calm(&self) -> bool {
        self.open.load(Relaxed) == 0
    }

    /// The roll call of a master, if others are awaited. What this instance itself has yet to put back, each of its
    /// checks puts back first.
    pub(crate) fn roll_call(&self, master: Master) -> Option<Era> {
        let state = self.state.lock();
        let open = state.open.iter().find(|open| open.master == master)?;
        (!open.roll_call.is_over()).then_some(open.era)
    }

    /// Whether a master may not know of what this instance was granted, or others were.
    pub(crate) fn may_have_forgotten(&self, master: Master) -> bool {
        !self.is_calm() && self.state.lock().open.iter().any(|open| open.master == master && open.lossy)
    }

    /// Roll calls whose master this instance has yet to put back to.
    pub(crate) fn out_of_sync(&self) -> Vec<(Master, Era)> {
        let state = self.state.lock();
        state.open.iter().filter(|open| !open.in_sync).map(|open| (open.master, open.era)).collect()
    }

    /// This instance has put back everything that it knew of in this era.
    pub(crate) fn has_put_back(&self, era: Era) {
        let mut state = self.state.lock();
        if let Some(open) = state.open.iter_mut().find(|open| open.era == era) {
            open.in_sync = true;
        }
        self.close(&mut state);
    }

    /// Takes note of who was told of by the store, at its time. `life`: who has not beaten for so long is gone.
    pub(crate) fn heard(&self, own: u64, now_ms: u64, life: Millis, told: &[Told<'_>]) {
        let mut state = self.state.lock();
        state.life = life;
        for open in &mut state.open {
            // Of itself the instance knows better than its last beat.
            let beats: Vec<Beat> = told
                .iter()
                .filter(|told| told.identity != own)
                .map(|told| Beat {
                    identity: told.identity,
                    at_ms: told.at_ms,
                    in_sync: told.in_sync.split(' ').any(|id| id == open.master.as_str()),
                })
                .collect();
            open.roll_call.heard(now_ms, &beats);
        }
        self.close(&mut state);
        state.others.clear();
        state.others.extend(told.iter().map(|told| told.identity).filter(|identity| *identity != own));
    }

    fn close(&self, state: &mut State) {
        let before = state.open.len();
        let now_us = self.time.now_us();
        let took = |open: &Open| Duration::from_micros(now_us.saturating_sub(open.era.began_us));
        let is_over = |open: &Open| open.roll_call.is_over() || took(open) > ROLL_CALL_MAX;
        for open in state.open.extract_if(.., |open| open.in_sync && is_over(open)) {
            let took_ms = took(&open).as_millis();
            info!(master = open.master.as_str(), took_ms, "roll call over");
        }
        if state.open.len() < before {
            self.open.store(state.open.len(), Relaxed);
            state.last_over = Some(Instant::now());
        }
    }

    /// The masters that this instance is in sync with, for its beat.
    pub(crate) fn in_sync(&self) -> String {
        let mut state = self.state.lock();
        self.close(&mut state);
        let out = |master: &&Master| state.open.iter().any(|open| open.master == **master && !open.in_sync);
        let known: Vec<&str> = state.known.iter().filter(|master| !out(master)).map(Master::as_str).collect();
        known.join(" ")
    }

    /// Whether others are waiting for this instance's beats, or it for theirs.
    pub(crate) fn is_urgent(&self) -> bool {
        let recently = || self.state.lock().last_over.is_some_and(|at| at.elapsed() < AFTERWARDS);
        !self.is_calm() || recently()
    }

    /// Waits until a roll call begins.
    pub(crate) async fn begun(&self) {
        self.begun.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIFE: Millis = Millis(5_000);

    fn master(id: &str) -> Master {
        Master::read(id).unwrap()
    }

    /// Everything is put back, and by the store's time `at_ms` nobody else is there, or is in sync.
    fn settle(masters: &Masters, at_ms: u64, told: &[Told<'_>]) {
        for (_, era) in masters.out_of_sync() {
            masters.has_put_back(era);
        }
        masters.heard(1, at_ms, LIFE, told);
    }

    #[tokio::test]
    async fn a_roll_call_begins_whenever_another_master_answers() {
        let masters = Masters::new(OwnTime::begin());
        masters.opened(master("aaaaaaaa"), true);
        assert!(masters.roll_call(master("aaaaaaaa")).is_some(), "who has just started knows of nobody");
        assert!(!masters.may_have_forgotten(master("aaaaaaaa")), "nothing was granted yet");
        settle(&masters, 90_000, &[]);
        assert!(masters.is_calm());
        masters.granted();
        masters.opened(master("aaaaaaaa"), true);
        assert!(masters.is_calm(), "the same again");
        masters.heard(1, 100_000, LIFE, &[Told { identity: 2, at_ms: 99_500, in_sync: "aaaaaaaa" }]);
        masters.opened(master("cccccccc"), true);
        assert!(masters.roll_call(master("cccccccc")).is_some());
        assert_eq!(masters.in_sync(), "", "not yet");
        // Of a single server the one before is over with.
        masters.opened(master("aaaaaaaa"), true);
        assert_eq!(masters.out_of_sync().len(), 1);
        assert!(masters.roll_call(master("cccccccc")).is_none());
    }

    #[tokio::test]
    async fn who_is_alone_puts_back_and_waits_for_nobody() {
        let masters = Masters::new(OwnTime::begin());
        let [old, new] = ["aaaaaaaa", "bbbbbbbb"].map(master);
        masters.opened(old, true);
        settle(&masters, 90_000, &[]);
        masters.granted();
        masters.comes_back(old);
        masters.heard(1, 91_000, LIFE, &[]);
        assert!(masters.roll_call(old).is_none() && !masters.may_have_forgotten(old));
        masters.opened(new, true);
        masters.heard(1, 92_000, LIFE, &[]);
        assert!(masters.roll_call(new).is_none() && masters.may_have_forgotten(new));
        let [(_, era)] = masters.out_of_sync()[..] else { panic!("one") };
        masters.has_put_back(era);
        assert!(masters.is_calm() && !masters.may_have_forgotten(new));
    }

    #[tokio::test]
    async fn it_is_over_when_this_instance_and_all_others_have_put_back() {
        let masters = Masters::new(OwnTime::begin());
        let (old, new) = (master("aaaaaaaa"), master("bbbbbbbb"));
        let told = |identity, at_ms, in_sync| Told { identity, at_ms, in_sync };
        masters.opened(old, false);
        settle(&masters, 99_900, &[]);
        masters.granted();
        masters.heard(1, 100_000, LIFE, &[told(1, 100_000, "aaaaaaaa"), told(2, 99_500, "aaaaaaaa")]);
        masters.opened(new, false);
        let era = masters.roll_call(new).unwrap();
        assert_eq!(masters.in_sync(), "aaaaaaaa");
        masters.has_put_back(era);
        assert_eq!(masters.in_sync(), "aaaaaaaa bbbbbbbb");
        masters.heard(
            1,
            101_000,
            LIFE,
            &[told(1, 101_000, "aaaaaaaa bbbbbbbb"), told(2, 100_900, "aaaaaaaa bbbbbbbb")],
        );
        assert!(!masters.is_calm(), "that beat may be from before");
        masters.heard(
            1,
            101_100,
            LIFE,
            &[told(1, 101_100, "aaaaaaaa bbbbbbbb"), told(2, 101_050, "aaaaaaaa bbbbbbbb")],
        );
        assert!(masters.is_calm() && masters.is_urgent());
    }

    #[test]
    fn the_replication_id_is_read_from_info() {
        let text =
            "# Replication\r\nrole:master\r\nmaster_replid:0123456789abcdef0123456789abcdef01234567\r\n";
        assert_eq!(Master::of_info(text), Some(master("01234567")));
        assert_eq!(Master::of_info("role:master\r\n"), None);
        assert_ne!(Master::unknown(), Master::unknown());
    }
}
