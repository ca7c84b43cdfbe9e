//! The load behind `slidegate bench`: drives a store or a server, and measures what limiting costs and admits.
//!
//! Not a test: it fails nothing for being slow. Not a general load generator either: it knows two answers, allowed
//! and denied, and counts over-admission only where it is proven ([`window`]).
//!
//! ```text
//! cli/bench -> Plan -> drive (callers, schedule, keys) -> Raw -> Report -> table, JSON, picture
//! ```
//! Callers share nothing that they write to while they run, and allocate nothing for each check of a store: what is
//! measured must not be the measuring. Times are nanoseconds since the start on one monotonic clock, unless a name
//! says otherwise. Figures are for people, so they are floating point where they are ratios.

use std::time::Duration;

use slidegate::RedisStore;
use tokio::time::Instant;

mod drive;
pub(crate) mod http;
pub(crate) mod keys;
mod picture;
pub(crate) mod plan;
mod recorder;
mod redis_info;
pub(crate) mod report;
mod schedule;
mod store;
mod subject;
mod table;
mod window;

use plan::{Plan, Target};
use redis_info::Info;
use report::Report;
use store::Opened;
use subject::Direct;

/// Runs a plan until its end, or until `told_to_stop` is ready.
pub(crate) async fn run(plan: &Plan, told_to_stop: impl Future<Output = ()>) -> Result<Report, String> {
    let mut server = None;
    let raw = match &plan.target {
        Target::Http(url) => drive::run(plan, &http::Server(url.clone()), told_to_stop).await?,
        Target::Store(choice) => {
            let limit = plan.limit.ok_or("a store needs a limit: name it with --limit")?;
            match store::open(choice, plan.keys).await? {
                Opened::Memory(store) => {
                    drive::run(plan, &Direct::new(store, limit, plan.cost)?, told_to_stop).await?
                }
                Opened::Redis(store) => {
                    let before = info(&store).await;
                    let raw = drive::run(plan, &Direct::new(store.clone(), limit, plan.cost)?, told_to_stop)
                        .await?;
                    server = before.zip(info(&store).await).and_then(|(before, after)| after.since(&before));
                    raw
                }
            }
        }
    };
    Report::new(plan, raw, server)
}

/// A server's own counts. Without the right to ask for them, a run has everything else.
async fn info(store: &RedisStore) -> Option<Info> {
    Info::parse(&store.info().await.ok()?)
}

/// When the run began.
#[derive(Clone, Copy, Debug)]
struct Clock(Instant);

impl Clock {
    fn start() -> Self {
        Self(Instant::now())
    }

    fn now_ns(self) -> u64 {
        nanos(self.0.elapsed())
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
