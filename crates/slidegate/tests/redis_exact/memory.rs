//! A server that has no memory left.

use std::time::Duration;

use slidegate::Mode;
use slidegate::core::time::Millis;
use slidegate::error::Fault;
use slidegate_testbed::redis::Server;
use tokio::time::Instant;

use crate::asking::{check, config_without_breaker, denying_and_allowing, faults, limiter, recovers};

/// Of each policy.
const CHECKS: u32 = 1000;

// R048: over maxmemory, whether a script was refused depended on its first write, and memory went on growing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_server_refuses_new_keys_and_policies_say_what_is_answered() {
    let server = Server::options().max_memory(0, "noeviction").start();
    // A breaker would keep them from the server.
    let patient = config_without_breaker(&server.url(), Millis(2_000));
    let limiter = limiter(&patient, denying_and_allowing()).await;
    assert_eq!(check(&limiter, "denying", &["first"]).await.mode(), Mode::Normal);
    let full: u64 = server.info("used_memory").parse().unwrap();
    // Half of what is there: buffers of clients come and go, and must make no room.
    server.ask::<()>(&["CONFIG", "SET", "maxmemory", &(full / 2).to_string()]);
    let mut memory = Vec::new();
    for (policy, expected) in [("denying", Mode::DenyAll), ("allowing", Mode::AllowAll)] {
        for key in 0..CHECKS {
            let asked = Instant::now();
            let decision = check(&limiter, policy, &[&key.to_string()]).await;
            assert_eq!((decision.mode(), decision.is_allowed()), (expected, expected == Mode::AllowAll));
            assert!(asked.elapsed() < Duration::from_secs(2), "{:?}", asked.elapsed());
        }
        memory.push(server.info("used_memory").parse::<u64>().unwrap());
    }
    assert_eq!(faults(&limiter, Fault::OutOfMemory), u64::from(2 * CHECKS));
    // Heartbeats are refused as well: their set may end meanwhile.
    assert_eq!(server.ask::<Vec<String>>(&["KEYS", "sg:{client_ip*"]), ["sg:{client_ip=first}:denying:1"]);
    // After the first thousand, Lua and buffers have what they need; another thousand counters would be 200 kB.
    assert!(memory[1] < memory[0] + 100_000, "{full} bytes became {memory:?}");
    server.ask::<()>(&["CONFIG", "SET", "maxmemory", "0"]);
    recovers(&limiter, "denying", &["first"], Duration::from_secs(2)).await;
}
