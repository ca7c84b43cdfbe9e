//! Runs the load: prepares the callers, starts the clock, stops at the end or when told, and adds up what they saw.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use fastrand::Rng;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tokio::task::{JoinSet, coop};
use tokio::time::MissedTickBehavior;

use super::keys::Draw;
use super::plan::{Load, Plan};
use super::recorder::{Recorder, STEP, Timeline, Times, Totals};
use super::schedule::{self, Arrivals, Schedule};
use super::store::StoreFigures;
use super::subject::{Caller, Subject};
use super::{Clock, nanos};

/// What a run came to, before anything is made of it.
#[derive(Debug)]
pub(super) struct Raw {
    pub(super) totals: Totals,
    /// Checks that arrived and never began.
    pub(super) unsent: u64,
    /// How long it ran, in nanoseconds. What was under way then was still waited for.
    pub(super) ran_ns: u64,
    pub(super) ended_early: bool,
    /// In each step of 100 ms.
    pub(super) admitted: Vec<u32>,
    pub(super) figures: Option<StoreFigures>,
}

/// What callers share, and only read while they run.
#[derive(Debug)]
struct Shared {
    clock: Clock,
    end_ns: u64,
    stopped: AtomicBool,
    timeline: Timeline,
    /// `None` in a closed loop.
    arrivals: Option<Arc<Arrivals>>,
}

impl Shared {
    fn is_over(&self, now_ns: u64) -> bool {
        now_ns >= self.end_ns || self.stopped.load(Ordering::Relaxed)
    }
}

/// Runs a plan against a subject, until its end or until `told_to_stop` is ready.
pub(super) async fn run<S: Subject>(
    plan: &Plan,
    subject: &S,
    told_to_stop: impl Future<Output = ()>,
) -> Result<Raw, String> {
    let mut callers = Vec::new();
    let mut seeds = Rng::with_seed(plan.seed);
    for _ in 0..plan.load.callers() {
        callers.push((subject.caller().await?, Draw::new(plan.keys, Rng::with_seed(seeds.u64(..)))));
    }
    let schedule = match plan.load {
        Load::Open { rate, .. } => Some(Schedule::new(rate, seeds.u64(..))),
        Load::Closed { .. } => None,
    };
    let before = subject.figures();
    let shared = Arc::new(Shared {
        clock: Clock::start(),
        end_ns: nanos(plan.duration),
        stopped: AtomicBool::new(false),
        timeline: Timeline::new(plan.duration),
        arrivals: schedule.clone().map(|schedule| Arc::new(Arrivals::new(schedule))),
    });
    let watches = plan.keys.has_watched_key();
    let mut running = JoinSet::new();
    for (caller, keys) in callers {
        let recorder = Recorder::new(plan.load, watches);
        running.spawn(ask(shared.clone(), caller, keys, recorder));
    }
    let pacer = schedule.map(|schedule| Pacer::start(schedule, &shared)).transpose()?;
    let ended_early = wait(&shared, plan.duration, told_to_stop).await;
    let ran_ns = shared.clock.now_ns().min(shared.end_ns);
    shared.stopped.store(true, Ordering::Relaxed);
    drop(pacer);
    let due = shared.arrivals.as_ref().map(|arrivals| arrivals.close()).unwrap_or_default();
    let mut totals = Totals::new();
    while let Some(recorder) = running.join_next().await {
        totals.add(recorder.map_err(|error| format!("a caller ended: {error}"))?);
    }
    totals.add_unsent(&due, ran_ns);
    let figures = before.zip(subject.figures()).map(|(before, after)| after.since(before));
    let admitted = shared.timeline.admitted(ran_ns);
    Ok(Raw { totals, unsent: count(&due), ran_ns, ended_early, admitted, figures })
}

fn count(due: &[u64]) -> u64 {
    u64::try_from(due.len()).unwrap_or(u64::MAX)
}

/// One caller's life.
async fn ask(
    shared: Arc<Shared>,
    mut caller: impl Caller,
    mut keys: Draw,
    mut recorder: Recorder,
) -> Recorder {
    loop {
        let intended = match &shared.arrivals {
            Some(arrivals) => arrivals.next_ns().await,
            None => None,
        };
        let sent = shared.clock.now_ns();
        if shared.arrivals.is_some() && intended.is_none() || intended.is_none() && shared.is_over(sent) {
            break;
        }
        let key = keys.key();
        let answer = caller.ask(key).await;
        let times = Times { intended: intended.unwrap_or(sent), sent, answered: shared.clock.now_ns() };
        recorder.note(&shared.timeline, key, times, answer);
        // A store in this process never makes a caller wait, and the others would never get their turn.
        coop::consume_budget().await;
    }
    recorder.flush(&shared.timeline);
    recorder
}

/// The thread that paces an open loop; it ends when this is dropped.
struct Pacer {
    running: Option<mpsc::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Pacer {
    fn start(schedule: Schedule, shared: &Arc<Shared>) -> Result<Self, String> {
        let (running, stop) = mpsc::channel();
        let shared = shared.clone();
        let pace = move || {
            if let Some(arrivals) = &shared.arrivals {
                schedule::pace(schedule, arrivals, shared.clock, shared.end_ns, &stop);
            }
        };
        let thread = std::thread::Builder::new().name("pacer".into()).spawn(pace);
        let thread = thread.map_err(|error| format!("can't start a thread: {error}"))?;
        Ok(Self { running: Some(running), thread: Some(thread) })
    }
}

impl Drop for Pacer {
    fn drop(&mut self) {
        drop(self.running.take());
        // At once: closing the channel wakes it.
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Waits for the end, and shows how far it is. Returns whether the run ended before: because it was told to, or because
/// too many arrivals wait.
async fn wait(shared: &Shared, duration: Duration, told_to_stop: impl Future<Output = ()>) -> bool {
    let bar = progress_bar(shared.end_ns);
    let end = tokio::time::sleep(duration);
    let mut tick = tokio::time::interval(STEP);
    tick.set_missed_tick_behavior(MissedTickBehavior::Skip);
    tokio::pin!(end, told_to_stop);
    loop {
        tokio::select! {
            biased;
            () = &mut told_to_stop => {
                bar.finish_and_clear();
                return true;
            }
            () = &mut end => {
                bar.finish_and_clear();
                return false;
            }
            _ = tick.tick() => {
                bar.set_position(shared.clock.now_ns().min(shared.end_ns));
                bar.set_message(format!("{} checks", shared.timeline.answered()));
                if shared.arrivals.as_ref().is_some_and(|arrivals| arrivals.are_too_many()) {
                    bar.finish_and_clear();
                    return true;
                }
            }
        }
    }
}

/// On standard error, and only where that is a terminal. Without colours, so `NO_COLOR` asks for nothing more.
fn progress_bar(end_ns: u64) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(end_ns), ProgressDrawTarget::stderr());
    match ProgressStyle::with_template("{percent:>3}% [{bar:40}] {eta} left, {msg}") {
        Ok(style) => bar.with_style(style.progress_chars("=> ")),
        Err(_) => bar,
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use tokio::sync::{mpsc, watch};

    use super::*;
    use crate::bench::keys::Keys;
    use crate::bench::plan::{RATE_MAX, StoreChoice, Target};
    use crate::bench::subject::{Answer, Verdict};

    /// Tells of each question, and answers nobody until the gate opens.
    #[derive(Clone)]
    struct Gated(watch::Receiver<bool>, mpsc::UnboundedSender<()>);

    impl Subject for Gated {
        type Caller = Self;

        async fn caller(&self) -> Result<Self, String> {
            Ok(self.clone())
        }

        fn figures(&self) -> Option<StoreFigures> {
            None
        }
    }

    impl Caller for Gated {
        async fn ask(&mut self, _key: u32) -> Answer {
            let _ = self.1.send(());
            let _ = self.0.wait_for(|open| *open).await;
            Answer::of(Verdict::Allowed)
        }
    }

    /// Opens the gate when it is dropped, as the run drops what it waits for.
    struct Opens(watch::Sender<bool>);

    impl Drop for Opens {
        fn drop(&mut self) {
            self.0.send_replace(true);
        }
    }

    fn plan(load: Load) -> Plan {
        Plan {
            target: Target::Store(StoreChoice { url: "memory".into(), flights: true, denial_cache: true }),
            limit: None,
            limit_is_default: false,
            load,
            duration: Duration::from_secs(600),
            keys: Keys::Hot,
            cost: 1,
            seed: 1,
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_target_that_falls_behind_without_end_ends_the_run() {
        let (gate, open) = watch::channel(false);
        let opens = Opens(gate);
        let never = async move {
            let _opens = opens;
            pending::<()>().await;
        };
        let plan = plan(Load::Open { rate: RATE_MAX, callers: 3 });
        let raw = run(&plan, &Gated(open, mpsc::unbounded_channel().0), never).await.unwrap();
        assert!(raw.ended_early && raw.ran_ns < 600_000_000_000, "{}", raw.ran_ns);
        // Three were being answered; all others are told, with the time that they waited.
        assert!(raw.unsent > 1_000_000, "{}", raw.unsent);
        let answered = raw.totals.counts.allowed;
        assert!(answered >= 3);
        assert_eq!(raw.totals.latencies.len(), raw.unsent + answered);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn callers_that_are_being_answered_are_waited_for() {
        let (gate, open) = watch::channel(false);
        let opens = Opens(gate);
        let (asked, mut asking) = mpsc::unbounded_channel();
        let told = async move {
            for _ in 0..5 {
                asking.recv().await;
            }
            drop(opens);
        };
        let raw = run(&plan(Load::Closed { callers: 5 }), &Gated(open, asked), told).await.unwrap();
        assert!(raw.ended_early);
        let answered = raw.totals.counts.allowed;
        assert!(answered >= 5, "{answered}");
        assert_eq!(raw.totals.latencies.len(), answered);
    }
}
