//! R4: each way in which a server can refuse or not answer, through the whole stack: what policies that deny and
//! policies that allow without the store are answered, what is counted, and how soon it is over.
//!
//! Not made to happen here: a release before 6.2, which there is none of ([`Fault::TooOld`] is the link's own test), and
//! clocks that differ ([`Fault::ClockSkew`] is among the outages).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use slidegate::core::time::Millis;
use slidegate::error::Fault;
use slidegate::store::redis::RedisStore;
use slidegate::{Limiter, Mode};
use slidegate_testbed::proxy::{FaultProxy, Way};
use slidegate_testbed::redis::{Options, Server};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;

use crate::asking::{
    PATIENCE, RECOVERY, beside, check, config, denying_and_allowing, eventually, faults, limiter, recovers,
};

/// A server, and a limiter whose checks wait for it for 50 ms.
struct Scene {
    server: Arc<Server>,
    limiter: Limiter<RedisStore>,
}

impl Scene {
    async fn on(options: Options) -> Self {
        let server = Arc::new(options.start());
        let limiter = limiter(&config(&server.url(), Millis(50)), denying_and_allowing()).await;
        let scene = Self { server, limiter };
        scene.recovers().await;
        scene
    }

    /// Sees a fault: soon, policies are answered as they say, for this reason.
    async fn sees(&self, fault: Fault) {
        for (policy, expected) in [("denying", Mode::DenyAll), ("allowing", Mode::AllowAll)] {
            let before = faults(&self.limiter, fault);
            let seen = || async {
                let decision = check(&self.limiter, policy, &["a"]).await;
                let mode = decision.mode();
                if mode.is_degraded() {
                    assert_eq!((mode, decision.is_allowed()), (expected, expected == Mode::AllowAll));
                    // R049: nobody counted, so nothing is claimed.
                    let claims =
                        decision.limits().any(|limit| limit.outcome.used + limit.outcome.remaining > 0);
                    assert!(!claims && decision.retry_after().is_none());
                }
                (faults(&self.limiter, fault) > before).then_some(())
            };
            eventually(fault.name(), PATIENCE, seen).await;
        }
        assert!(self.limiter.store().figures().failing);
    }

    async fn recovers(&self) {
        for policy in ["denying", "allowing"] {
            recovers(&self.limiter, policy, &["a"], RECOVERY).await;
        }
    }

    /// As soon as the server says so itself: a fault has ended then.
    fn ask(&self, words: &[&str]) {
        self.server.command(words).unwrap();
    }
}

/// The counters that the checks here use.
const COUNTERS: [&str; 2] = ["sg:{client_ip=a}:denying:1", "sg:{client_ip=a}:allowing:1"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn disconnected_a_server_that_is_gone() {
    let scene = Scene::on(Server::options()).await;
    scene.server.kill();
    scene.sees(Fault::Disconnected).await;
    scene.server.restart();
    scene.recovers().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn timeout_a_server_that_is_frozen() {
    let scene = Scene::on(Server::options()).await;
    scene.server.stop();
    scene.sees(Fault::Timeout).await;
    scene.server.cont();
    scene.recovers().await;
}

// F7: the timeout was for connecting only, and a network that swallows everything was waited for without end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn timeout_a_network_that_swallows_everything() {
    for way in [Way::Requests, Way::Replies, Way::Both] {
        let server = Arc::new(Server::start());
        let proxy = FaultProxy::start(&server.address());
        let through = config(&format!("redis://{}", proxy.address()), Millis(50));
        let limiter = limiter(&through, denying_and_allowing()).await;
        let scene = Scene { server, limiter };
        scene.recovers().await;
        proxy.black_hole(way);
        scene.sees(Fault::Timeout).await;
        for _ in 0..50 {
            let asked = Instant::now();
            assert_eq!(check(&scene.limiter, "denying", &["a"]).await.mode(), Mode::DenyAll);
            assert!(asked.elapsed() < Duration::from_secs(1), "{:?}", asked.elapsed());
        }
        proxy.pass();
        scene.recovers().await;
    }
}

/// Checks that wait are bounded, and those beyond are told at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queue_full_more_checks_than_may_wait() {
    let server = Arc::new(Server::start());
    let limiter = limiter(&config(&server.url(), Millis(1_000)), denying_and_allowing()).await;
    recovers(&limiter, "denying", &["a"], PATIENCE).await;
    server.stop();
    let mut callers = tokio::task::JoinSet::new();
    for key in 0..12_000_u32 {
        let limiter = limiter.clone();
        callers.spawn(async move { check(&limiter, "denying", &[&key.to_string()]).await.mode() });
    }
    let modes = callers.join_all().await;
    assert!(modes.iter().all(|mode| *mode == Mode::DenyAll));
    assert!(faults(&limiter, Fault::QueueFull) > 0, "{:?}", limiter.store().figures());
    server.cont();
    recovers(&limiter, "denying", &["a"], RECOVERY).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn read_only_a_server_that_was_demoted() {
    let scene = Scene::on(Server::options()).await;
    let other = Server::start();
    scene.ask(&["REPLICAOF", "127.0.0.1", &other.port().to_string()]);
    scene.sees(Fault::ReadOnly).await;
    scene.ask(&["REPLICAOF", "NO", "ONE"]);
    scene.recovers().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn loading_a_server_that_reads_its_data() {
    let slow = Server::options()
        .directive("key-load-delay", &["3000"])
        .directive("loading-process-events-interval-bytes", &["1024"]);
    let scene = Scene::on(slow).await;
    let fill = "for i = 1, 400 do redis.call('SET', 'other:' .. i, string.rep('x', 100)) end";
    scene.ask(&["EVAL", fill, "0"]);
    let server = scene.server.clone();
    let loading = tokio::task::spawn_blocking(move || server.ask::<()>(&["DEBUG", "RELOAD"]));
    scene.sees(Fault::Loading).await;
    loading.await.unwrap();
    scene.recovers().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn master_down_a_replica_without_its_master() {
    let scene = Scene::on(Server::options().directive("replica-serve-stale-data", &["no"])).await;
    let gone = Server::start().port().to_string();
    scene.ask(&["REPLICAOF", "127.0.0.1", &gone]);
    scene.sees(Fault::MasterDown).await;
    scene.ask(&["REPLICAOF", "NO", "ONE"]);
    scene.recovers().await;
}

/// A cluster of one node, which loses a slot and gets it back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cluster_down_a_slot_that_nobody_serves() {
    let server = Arc::new(Server::options().directive("cluster-enabled", &["yes"]).start());
    server.ask::<()>(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]);
    let serves = || async { server.info("cluster_enabled").eq("1").then_some(()) };
    eventually("a node of a cluster", PATIENCE, serves).await;
    let url = server.url().replace("redis://", "redis-cluster://");
    let limiter = limiter(&config(&url, Millis(50)), denying_and_allowing()).await;
    let scene = Scene { server, limiter };
    recovers(&scene.limiter, "denying", &["a"], PATIENCE).await;
    let slot: u16 = scene.server.ask(&["CLUSTER", "KEYSLOT", COUNTERS[0]]);
    scene.ask(&["CLUSTER", "DELSLOTS", &slot.to_string()]);
    scene.sees(Fault::ClusterDown).await;
    scene.ask(&["CLUSTER", "ADDSLOTS", &slot.to_string()]);
    let serves = || async {
        let state: String = scene.server.ask(&["CLUSTER", "INFO"]);
        state.contains("cluster_state:ok").then_some(())
    };
    eventually("a cluster that serves", PATIENCE, serves).await;
    scene.recovers().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_refused_a_server_with_too_few_replicas() {
    let scene = Scene::on(Server::options()).await;
    scene.ask(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    scene.sees(Fault::WritesRefused).await;
    scene.ask(&["CONFIG", "SET", "min-replicas-to-write", "0"]);
    scene.recovers().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn out_of_memory_a_server_that_is_full() {
    let scene = Scene::on(Server::options().max_memory(0, "noeviction")).await;
    scene.ask(&["CONFIG", "SET", "maxmemory", "1"]);
    scene.sees(Fault::OutOfMemory).await;
    scene.ask(&["CONFIG", "SET", "maxmemory", "0"]);
    scene.recovers().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_permission_a_user_who_may_not_run_scripts() {
    let scene = Scene::on(Server::options()).await;
    scene.ask(&["ACL", "SETUSER", "default", "-evalsha"]);
    scene.sees(Fault::NoPermission).await;
    scene.ask(&["ACL", "SETUSER", "default", "+@all"]);
    scene.recovers().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn not_authenticated_a_password_that_was_changed() {
    let scene = Scene::on(Server::options()).await;
    scene.ask(&["CONFIG", "SET", "requirepass", "another"]);
    scene.ask(&["CLIENT", "KILL", "TYPE", "normal"]);
    scene.sees(Fault::NotAuthenticated).await;
    scene.ask(&["CONFIG", "SET", "requirepass", ""]);
    scene.recovers().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn foreign_key_what_another_program_has_put_there_is_left_alone() {
    // A list, a text, and a text that only begins like a counter.
    for foreign in [&["LPUSH", "", "theirs"], &["SET", "", "theirs"], &["SET", "", "\u{1}\u{7}and more"]] {
        let scene = Scene::on(Server::options()).await;
        for key in COUNTERS {
            scene.ask(&["DEL", key]);
            scene.ask(&[foreign[0], key, foreign[2]]);
        }
        scene.sees(Fault::ForeignKey).await;
        for key in COUNTERS {
            let kind: String = scene.server.ask(&["TYPE", key]);
            assert_eq!(kind, if foreign[0] == "SET" { "string" } else { "list" });
            if kind == "string" {
                assert_eq!(scene.server.ask::<String>(&["GET", key]), foreign[2]);
            }
            assert_eq!(scene.server.ask::<i64>(&["PTTL", key]), -1, "not ours to end");
            scene.ask(&["DEL", key]);
        }
        scene.recovers().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn newer_format_what_a_newer_release_has_written_is_not_overwritten() {
    let scene = Scene::on(Server::options()).await;
    // Whatever format comes after those that this release reads.
    let newer = format!("\u{f}\0{}", "x".repeat(100));
    for key in COUNTERS {
        scene.ask(&["SET", key, &newer, "PX", "60000"]);
    }
    scene.sees(Fault::NewerFormat).await;
    for key in COUNTERS {
        assert_eq!(scene.server.ask::<String>(&["GET", key]), newer);
        scene.ask(&["DEL", key]);
    }
    scene.recovers().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn busy_a_server_that_runs_somebody_s_slow_script() {
    let scene = Scene::on(Server::options().directive("busy-reply-threshold", &["20"])).await;
    let server = scene.server.clone();
    let slow = tokio::task::spawn_blocking(move || server.command(&["EVAL", "while true do end", "0"]));
    scene.sees(Fault::Busy).await;
    let server = scene.server.clone();
    beside(move || server.ask::<()>(&["SCRIPT", "KILL"])).await;
    scene.recovers().await;
    assert!(slow.await.unwrap().is_err(), "it was killed");
}

/// For a while, a server of another kind answers at the address.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn protocol_a_server_that_is_no_redis() {
    let server = Arc::new(Server::start());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, behind) = (listener.local_addr().unwrap(), server.address());
    let is_other = Arc::new(AtomicBool::new(false));
    let accepting = tokio::spawn({
        let is_other = is_other.clone();
        async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(answer(stream, behind.clone(), is_other.load(Ordering::SeqCst)));
            }
        }
    });
    let limiter = limiter(&config(&format!("redis://{address}"), Millis(50)), denying_and_allowing()).await;
    let scene = Scene { server, limiter };
    scene.recovers().await;
    is_other.store(true, Ordering::SeqCst);
    scene.ask(&["CLIENT", "KILL", "TYPE", "normal"]);
    scene.sees(Fault::Protocol).await;
    is_other.store(false, Ordering::SeqCst);
    scene.recovers().await;
    accepting.abort();
}

async fn answer(mut client: TcpStream, behind: String, is_other: bool) {
    if !is_other {
        let mut server = TcpStream::connect(behind).await.unwrap();
        let _ = copy_bidirectional(&mut client, &mut server).await;
        return;
    }
    let mut request = [0; 1024];
    while client.read(&mut request).await.is_ok_and(|length| length > 0) {
        let _ = client.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
    }
}

/// All of the above, and no more: a fault that is added has to be made to happen here.
#[test]
fn every_fault_is_made_to_happen() {
    let here = include_str!("faults.rs");
    let elsewhere = [Fault::TooOld, Fault::ClockSkew];
    for fault in Fault::ALL.into_iter().filter(|fault| !elsewhere.contains(fault)) {
        assert!(here.contains(&format!("async fn {}_", fault.name())), "{}", fault.name());
    }
    assert!(RECOVERY <= Duration::from_secs(2));
}
