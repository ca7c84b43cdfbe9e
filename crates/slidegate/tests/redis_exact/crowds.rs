//! Many callers at once, of one process and of several.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::Arc;

use slidegate::core::time::Millis;
use slidegate::store::redis::RedisStore;
use slidegate::testing::FakeClock;
use slidegate::{Limiter, Mode};
use slidegate_testbed::process::{Process, guarded};
use slidegate_testbed::redis::Server;
use tokio::task::JoinSet;

use crate::asking::{beside, check, config, limiter, policy, used};

const TASKS: usize = 64;
const CHECKS: usize = 1000;
const LIMIT: u32 = 1000;

/// Where the process of a test finds its server.
const URL: &str = "SLIDEGATE_TEST_URL";

/// What precedes the number that such a process prints.
const ADMITTED: &str = "admitted: ";

async fn ask_from_many_tasks(limiter: &Limiter<RedisStore>) -> u32 {
    let mut tasks = JoinSet::new();
    for _ in 0..TASKS {
        let limiter = limiter.clone();
        tasks.spawn(async move {
            let mut admitted = 0;
            for _ in 0..CHECKS {
                let decision = check(&limiter, "p", &[]).await;
                assert!(!decision.mode().is_degraded(), "{:?}", limiter.store().figures());
                admitted += u32::from(decision.is_allowed());
            }
            admitted
        });
    }
    tasks.join_all().await.iter().sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a process of `four_processes_admit_exactly_the_limit`, which starts it"]
async fn one_of_several_processes() {
    let url = std::env::var(URL).unwrap();
    let limiter = limiter(&config(&url, Millis(60_000)), vec![policy("p", &format!("{LIMIT}/1h"))]).await;
    let admitted = ask_from_many_tasks(&limiter).await;
    assert!(admitted <= LIMIT);
    println!("\n{ADMITTED}{admitted}");
}

/// Runs the test above in a process of its own.
fn process(url: &str) -> Process {
    let mut command: Command = guarded(&std::env::current_exe().unwrap());
    command
        .args(["--exact", "crowds::one_of_several_processes", "--ignored", "--nocapture"])
        .env(URL, url)
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    Process::spawn(command).unwrap()
}

fn admitted_by(mut process: Process) -> u32 {
    let lines = BufReader::new(process.stdout().unwrap()).lines().map_while(Result::ok);
    let printed: Vec<String> = lines.collect();
    let admitted = printed.iter().find_map(|line| line.strip_prefix(ADMITTED));
    admitted.unwrap_or_else(|| panic!("a process printed {printed:?}")).parse().unwrap()
}

// F18: check and increment were two round trips.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn four_processes_admit_exactly_the_limit() {
    let server = Server::start();
    let processes: Vec<Process> = (0..4).map(|_| process(&server.url())).collect();
    let admitted = beside(move || processes.into_iter().map(admitted_by).collect::<Vec<u32>>()).await;
    assert_eq!(admitted.iter().sum::<u32>(), LIMIT, "{admitted:?}");
    let here =
        limiter(&config(&server.url(), Millis(10_000)), vec![policy("p", &format!("{LIMIT}/1h"))]).await;
    assert_eq!(used(&here, "p", &[]).await, LIMIT);
}

// R001: all that came at one instant was one entry.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_the_clock_stands_still_exactly_the_limit_passes() {
    for denial_cache in [true, false] {
        let server = Server::start();
        let clock = Arc::new(FakeClock::default());
        let frozen =
            config(&server.url(), Millis(20_000)).denial_cache(denial_cache).clock(clock, Millis(3_600_000));
        let limiter = limiter(&frozen, vec![policy("p", "10/s")]).await;
        let mut callers = JoinSet::new();
        for _ in 0..1000 {
            let limiter = limiter.clone();
            callers.spawn(async move { check(&limiter, "p", &[]).await });
        }
        let decisions = callers.join_all().await;
        assert_eq!(decisions.iter().filter(|decision| decision.is_allowed()).count(), 10);
        assert!(decisions.iter().all(|decision| matches!(decision.mode(), Mode::Normal | Mode::Cached)));
        assert_eq!(used(&limiter, "p", &[]).await, 10);
    }
}
