//! Links against real servers: each fault is made to happen, and comes to what the table of the module says.

mod acl;
mod cluster;
mod faults;
mod network;
mod sentinel;
mod transport;

use std::future::Future;
use std::time::Duration;

use ::redis::{Cmd, Value};
use tokio::time::{Instant, interval, timeout_at};

use super::{Link, LinkFigures, Script};
use crate::error::{Fault, StoreError};
use crate::store::redis::config::RedisConfig;
use slidegate_core::time::Millis;

/// After a fault has ended, calls succeed again within this time.
const RECOVERY: Duration = Duration::from_secs(2);
/// For what is not measured: machines that run tests are busy.
const PATIENCE: Duration = Duration::from_secs(20);
/// A call's deadline where the server is well.
const GENEROUS: Duration = Duration::from_secs(5);
/// A call's deadline where it is not.
const SHORT: Duration = Duration::from_millis(30);

/// Between two looks at what is waited for.
const LOOK_EVERY: Duration = Duration::from_millis(2);

fn config(url: &str) -> RedisConfig {
    RedisConfig::parse(url).expect("a URL").timeout(Millis(20))
}

fn link(url: &str) -> Link {
    Link::start(&config(url)).expect("a link")
}

/// A link that has connected.
async fn connected(url: &str) -> Link {
    let link = link(url);
    assert!(link.connected(Instant::now() + PATIENCE).await, "no connection to {url}");
    link
}

fn script(text: &str) -> Script {
    Script { sha: sha1_smol::Sha1::from(text).digest().to_string(), text: text.to_owned() }
}

/// Adds one to the key; a write, as every charge is.
fn counting() -> Script {
    script("return redis.call('INCR', KEYS[1])")
}

async fn count_within(link: &Link, key: &str, within: Duration) -> Result<i64, StoreError> {
    let slot = Link::slot(key.as_bytes());
    let reply = link.script(slot, &counting(), &[key.as_bytes()], &[], Instant::now() + within).await?;
    match reply {
        Value::Int(count) => Ok(count),
        other => panic!("{other:?} is no count"),
    }
}

async fn count(link: &Link, key: &str) -> Result<i64, StoreError> {
    count_within(link, key, GENEROUS).await
}

async fn command(link: &Link, words: &[&str]) -> Result<Value, StoreError> {
    let mut command = Cmd::new();
    for word in words {
        command.arg(*word);
    }
    link.command(Link::slot(words[1].as_bytes()), &command, Instant::now() + GENEROUS).await
}

/// `unavailable read_only`, `lost timeout`.
fn outcome<T: std::fmt::Debug>(result: &Result<T, StoreError>) -> String {
    match result {
        Ok(_) => "done".to_owned(),
        Err(StoreError::Unavailable { fault }) => format!("unavailable {}", fault.name()),
        Err(StoreError::Lost { fault }) => format!("lost {}", fault.name()),
        Err(other) => format!("{other:?}"),
    }
}

/// Looks until there is something; `within` is what is promised, so it fails after that.
async fn eventually<T, F: Future<Output = Option<T>>>(
    what: &str,
    within: Duration,
    mut look: impl FnMut() -> F,
) -> T {
    let end = Instant::now() + within;
    let mut looks = interval(LOOK_EVERY);
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(Instant::now() < end, "{what}: not within {within:?}");
        looks.tick().await;
    }
}

/// Counts until it works again.
async fn recovers(link: &Link, key: &str) {
    eventually("calls succeed again", RECOVERY, || async { count_within(link, key, SHORT).await.ok() }).await;
}

/// Counts until the outcome is this one.
async fn comes_to(link: &Link, key: &str, expected: &str) {
    let mut seen = Vec::new();
    let end = Instant::now() + PATIENCE;
    let mut looks = interval(LOOK_EVERY);
    loop {
        let this = outcome(&count_within(link, key, SHORT).await);
        if this == expected {
            return;
        }
        seen.push(this);
        assert!(Instant::now() < end, "{expected} never came, but {:?}", seen.last());
        looks.tick().await;
    }
}

/// Runs what blocks (the test bed's commands) beside the runtime.
async fn beside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.expect("no panic beside")
}

fn faults(figures: &LinkFigures, fault: Fault) -> u64 {
    let place = Fault::ALL.iter().position(|known| *known == fault).expect("a fault");
    figures.faults[place]
}

#[test]
fn outside_of_a_runtime_a_link_is_refused() {
    let refused = Link::start(&config("redis://127.0.0.1:1"));
    assert_eq!(refused.err(), Some(crate::store::redis::config::RedisConfigError::NoRuntime));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_link_leaves_no_connection_and_no_task_behind() {
    let server = slidegate_testbed::redis::Server::start();
    let link = connected(&server.url()).await;
    count(&link, "sg:a").await.expect("counts");
    let named = || server.ask::<String>(&["CLIENT", "LIST"]).matches("name=slidegate").count();
    assert_eq!(named(), 1, "one connection, by its name");
    drop(link);
    eventually("its connection is closed", PATIENCE, || async { (named() == 0).then_some(()) }).await;
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    eventually("its tasks are gone", PATIENCE, || async { (tasks() == 0).then_some(()) }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_server_a_link_starts_and_calls_fail_at_once() {
    let gone = slidegate_testbed::redis::Server::start().url();
    let link = link(&gone);
    let end = Instant::now() + GENEROUS;
    let failed = timeout_at(end, count(&link, "sg:a")).await.expect("at once");
    assert_eq!(outcome(&failed), "unavailable disconnected");
    assert_eq!(faults(&link.figures(), Fault::Disconnected), 1);
    assert!(!link.figures().connected);
}
