//! Instances that say that they are there, and hear who else is: once in a second, beside the traffic.
//!
//! All instances of a store and prefix are members of one sorted set, scored by the server's time of their last beat.
//! A member is text: `<identity> <format> <host> <start>`, so `ZRANGE sg:{instances} 0 -1 WITHSCORES` shows operators
//! who shares these counters. Beside it is a hash of what each is in sync with: the masters to which it has put back, after
//! they took over, what they did not know of ([`Masters`]). While there is a roll call, instances
//! beat ten times a second.
//!
//! # Formats
//! A release reads counters of two formats, its own and the one before ([`FORMAT`](scripts::FORMAT)), and writes the older until
//! everybody who is alive reads the newer ([`writes`]). So in a rolling upgrade, and when it is rolled back, old and
//! new instances count in the same place. Who knows nothing of the others (no beat has been answered, or none for
//! [`LIFE`]) writes the older, which all can read.
//!
//! # Shares
//! While the store is away, each instance grants its share of a limit. Of how many is the highest count of the
//! last [`REMEMBERED`] before it went: an instance that restarts is missing for a moment, and must not make the others'
//! shares grow. Which of them is its rank among the identities that are alive, as everybody sees them in one order.
//!
//! # What it is not
//! It decides no check, and a check never waits for it. That a server refuses it is no fault of the store's.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use ::redis::{Cmd, Value};
use parking_lot::Mutex;
use slidegate_core::instance::share::Place;
use slidegate_core::time::Millis;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep};

use super::link::{Link, Masters, OwnedTask, Told, jittered};
use super::scripts;

/// Between two beats, less a random part: instances that were started together must not beat together.
const BEAT: Duration = Duration::from_secs(1);
/// The same while others wait for it.
const BEAT_URGENT: Duration = Duration::from_millis(100);
/// Whoever has not been heard of for so long counts as gone: four beats may get lost.
const LIFE: Millis = Millis(5_000);
/// Nobody waits for a beat, but one that hangs must not keep the next from being sent.
const BEAT_MAX: Duration = Duration::from_secs(1);
/// For how long a count is remembered, up to the last beat that was answered.
const REMEMBERED: Millis = Millis(60_000);
/// The most that are told: 60 kB. Beyond, nobody is known to be of the newer format.
const INSTANCES_MAX: u32 = 1_000;
/// The longest host name that is shown.
const HOST_LEN_MAX: usize = 64;

/// What is known of the instances that share the counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Instances {
    /// How many are alive, this one included; 0 as long as nobody was heard.
    pub(super) count: u32,
    /// The lowest of the formats that they have introduced; 0 as long as nobody was heard.
    pub(super) format: u8,
    /// How many of them come before this one, by their identities.
    pub(super) rank: u32,
}

impl Instances {
    /// Reads what the server told. A member that can't be read is one of the oldest kind.
    fn read(members: &[&[u8]], own: &[u8]) -> Self {
        let format = members.iter().map(|member| format_of(member).unwrap_or(1)).min().unwrap_or(0);
        let count = u32::try_from(members.len()).unwrap_or(u32::MAX);
        // Members begin with their identities.
        let before = members.iter().filter(|member| **member < own).count();
        let rank = u32::try_from(before).unwrap_or(u32::MAX);
        // Whoever was not told may be of any format.
        Self { count, format: if count >= INSTANCES_MAX { format.min(1) } else { format }, rank }
    }
}

fn format_of(member: &[u8]) -> Option<u8> {
    std::str::from_utf8(member).ok()?.split(' ').nth(1)?.parse().ok()
}

/// The format that an instance writes whose release introduced `own`, where `lowest` is the lowest that anybody alive
/// has introduced (0: not known).
const fn writes(own: u8, lowest: u8) -> u8 {
    if lowest >= own || own <= 1 { own } else { own - 1 }
}

/// Beats until it is dropped; then the instance is taken from the set, if the server can be reached.
#[derive(Debug)]
pub(super) struct Heartbeat {
    newest: u8,
    heard: Arc<Heard>,
    farewell: Mutex<Option<Farewell>>,
    task: Mutex<Option<OwnedTask>>,
}

/// What was last heard, and when.
#[derive(Debug)]
struct Heard {
    started: Instant,
    /// Milliseconds since `started`, and one more; 0: nothing yet.
    at: AtomicU64,
    count: AtomicU32,
    format: AtomicU8,
    rank: AtomicU32,
    /// The highest count that is remembered.
    highest: AtomicU32,
    counts: Mutex<Counts>,
}

/// The counts of a while, as far as they can still be the highest: they fall from front to back.
///
/// Time without answers does not count: who comes back first after an hour would else be alone, in its own eyes,
/// until the others are back.
#[derive(Debug, Default)]
struct Counts {
    heard: VecDeque<(u64, u32)>,
    /// For how long beats have been answered, in milliseconds.
    in_touch_ms: u64,
    last_ms: u64,
}

impl Counts {
    /// Adds a count, and tells the highest that is remembered.
    fn add(&mut self, now_ms: u64, count: u32) -> u32 {
        self.in_touch_ms += now_ms.saturating_sub(self.last_ms).min(LIFE.get());
        self.last_ms = now_ms;
        while self.heard.back().is_some_and(|(_, last)| *last <= count) {
            self.heard.pop_back();
        }
        self.heard.push_back((self.in_touch_ms, count));
        while self.heard.front().is_some_and(|(at_ms, _)| at_ms + REMEMBERED.get() < self.in_touch_ms) {
            self.heard.pop_front();
        }
        self.heard.front().map_or(count, |(_, highest)| *highest)
    }
}

/// What it takes to say goodbye.
#[derive(Debug)]
struct Farewell {
    link: Arc<Link>,
    runtime: Handle,
    key: Arc<[u8]>,
    member: Arc<[u8]>,
}

impl Heartbeat {
    /// Begins to beat, with tasks of the runtime at hand. `newest` is the format that this release introduced.
    pub(super) fn start(
        link: &Arc<Link>,
        runtime: Handle,
        key: Arc<[u8]>,
        identity: [u8; 8],
        newest: u8,
    ) -> Self {
        let heard = Arc::new(Heard {
            started: Instant::now(),
            at: AtomicU64::new(0),
            count: AtomicU32::new(0),
            format: AtomicU8::new(0),
            rank: AtomicU32::new(0),
            highest: AtomicU32::new(0),
            counts: Mutex::default(),
        });
        let start_ms = crate::clock::Clock::now(&crate::clock::SystemClock).floor_ms();
        let member: Arc<[u8]> =
            format!("{:016x} {newest} {} {start_ms}", u64::from_be_bytes(identity), host())
                .into_bytes()
                .into();
        let identity = u64::from_be_bytes(identity);
        let task = OwnedTask::spawn(beat(link.clone(), heard.clone(), key.clone(), member.clone(), identity));
        let farewell = Mutex::new(Some(Farewell { link: link.clone(), runtime, key, member }));
        Self { newest, heard, farewell, task: Mutex::new(Some(task)) }
    }

    /// Beats no more, and takes the instance from the set; says whether the server has done so. The second time there is
    /// nothing to do.
    pub(super) async fn leave(&self) -> bool {
        // A beat under way is executed before what follows it.
        drop(self.task.lock().take());
        let farewell = self.farewell.lock().take();
        match farewell {
            Some(farewell) => farewell.say().await,
            None => true,
        }
    }

    /// Who is there, by the last beat that was answered.
    pub(super) fn instances(&self) -> Instances {
        let Heard { count, format, rank, .. } = &*self.heard;
        Instances { count: count.load(Relaxed), format: format.load(Relaxed), rank: rank.load(Relaxed) }
    }

    /// Which of how many this instance is, of the highest count that is remembered and the one that was
    /// `configured`; `None` if neither is known.
    pub(super) fn place(&self, configured: Option<u32>) -> Option<Place> {
        let highest = self.heard.highest.load(Relaxed).max(configured.unwrap_or(0));
        // Whoever was never told its rank takes the first place: nobody has less.
        (highest > 0).then(|| Place::new(self.heard.rank.load(Relaxed), highest))
    }

    /// The format to write counters in.
    pub(super) fn writes(&self) -> u8 {
        self.heard.writes(self.newest)
    }

    /// The same, for who asks from elsewhere.
    pub(super) fn formats(&self) -> Formats {
        Formats { heard: self.heard.clone(), newest: self.newest }
    }
}

/// Which format to write counters in.
#[derive(Clone, Debug)]
pub(super) struct Formats {
    heard: Arc<Heard>,
    newest: u8,
}

impl Formats {
    pub(super) fn writes(&self) -> u8 {
        self.heard.writes(self.newest)
    }
}

impl Heard {
    fn note(&self, instances: Instances) {
        self.count.store(instances.count, Relaxed);
        self.format.store(instances.format, Relaxed);
        self.rank.store(instances.rank, Relaxed);
        self.highest.store(self.counts.lock().add(self.now_ms(), instances.count), Relaxed);
        self.at.store(self.now_ms() + 1, Relaxed);
    }

    fn writes(&self, newest: u8) -> u8 {
        if newest == 1 {
            return 1;
        }
        writes(newest, if self.is_fresh() { self.format.load(Relaxed) } else { 0 })
    }

    fn is_fresh(&self) -> bool {
        let at = self.at.load(Relaxed);
        at > 0 && self.now_ms() < at + LIFE.get()
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX / 2)
    }
}

/// Others need not wait until the instance counts as gone.
impl Drop for Heartbeat {
    fn drop(&mut self) {
        let Some(farewell) = self.farewell.get_mut().take() else { return };
        let runtime = farewell.runtime.clone();
        runtime.spawn(farewell.say());
    }
}

impl Farewell {
    async fn say(self) -> bool {
        let mut leave = Cmd::new();
        leave.arg("ZREM").arg(&*self.key).arg(&*self.member);
        self.link.aside(Link::slot(&self.key), &leave, Instant::now() + BEAT_MAX).await.is_ok()
    }
}

/// Beats for ever.
async fn beat(link: Arc<Link>, heard: Arc<Heard>, key: Arc<[u8]>, member: Arc<[u8]>, identity: u64) {
    let words = [LIFE.get().to_string(), INSTANCES_MAX.to_string()];
    let masters = link.masters().clone();
    let in_sync_key = [&*key, b":sync"].concat();
    // The first one as soon as there is a connection.
    let mut pause = BEAT / 20;
    loop {
        let end = Instant::now() + BEAT_MAX;
        let in_sync = masters.in_sync();
        let args = [&*member, words[0].as_bytes(), words[1].as_bytes(), in_sync.as_bytes()];
        let keys: [&[u8]; 2] = [&key, &in_sync_key];
        match link.script_aside(Link::slot(&key), &scripts::BEAT, &keys, &args, end).await {
            Ok(reply) => {
                if let Some(instances) = take(&reply, &masters, identity, &member) {
                    heard.note(instances);
                    pause = BEAT;
                }
            }
            Err(error) => tracing::debug!(%error, "no heartbeat"),
        }
        let pause = if masters.is_urgent() { pause.min(BEAT_URGENT) } else { pause };
        tokio::select! {
            () = sleep(jittered(pause)) => {}
            () = masters.begun() => {}
        }
    }
}

/// Reads the reply to a beat, and tells the masters' roll calls of it.
fn take(reply: &Value, masters: &Masters, identity: u64, own: &[u8]) -> Option<Instances> {
    let Value::Array(parts) = reply else { return None };
    let [Value::Array(members), Value::Array(scores), Value::Array(in_sync), now] = parts.as_slice() else {
        return None;
    };
    let now_ms = bytes(now).and_then(number)?;
    let told: Vec<Told<'_>> = (members.iter().zip(scores).zip(in_sync))
        .filter_map(|((member, score), in_sync)| {
            let identity = std::str::from_utf8(bytes(member)?.get(..16)?).ok()?;
            Some(Told {
                identity: u64::from_str_radix(identity, 16).ok()?,
                at_ms: bytes(score).and_then(number)?,
                in_sync: bytes(in_sync).and_then(|text| std::str::from_utf8(text).ok()).unwrap_or_default(),
            })
        })
        .collect();
    masters.heard(identity, now_ms, LIFE, &told);
    Some(Instances::read(&members.iter().filter_map(bytes).collect::<Vec<_>>(), own))
}

fn number(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

fn bytes(value: &Value) -> Option<&[u8]> {
    match value {
        Value::BulkString(bytes) => Some(bytes),
        _ => None,
    }
}

/// What this machine is called, for operators; `-` if that can't be found out.
fn host() -> String {
    let name = std::env::var("HOSTNAME").or_else(|_| std::fs::read_to_string("/proc/sys/kernel/hostname"));
    let name: String =
        name.unwrap_or_default().trim().chars().filter(char::is_ascii_graphic).take(HOST_LEN_MAX).collect();
    if name.is_empty() { "-".to_owned() } else { name }
}

#[cfg(test)]
mod tests;
