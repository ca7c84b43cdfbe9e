//! Leases and shards on a real server: several instances, and what the server holds in the end.

#![expect(clippy::unwrap_used, reason = "tests")]

use slidegate::core::time::Millis;
use slidegate::policy::{Lease, PolicyBuilder};
use slidegate::store::redis::{RedisConfig, RedisStore};
use slidegate::{Limiter, Policy};
use slidegate_testbed::redis::Server;

async fn instance(server: &Server, policy: PolicyBuilder) -> Limiter<RedisStore> {
    // A busy machine must not look like a slow store.
    let config = RedisConfig::parse(&server.url()).unwrap().timeout(Millis(5000)).denial_cache(false);
    let store = RedisStore::start(&config).unwrap();
    assert!(store.connected(Millis(5000)).await);
    Limiter::builder().policy(policy.build().unwrap()).store(store).build().unwrap()
}

/// `each` checks of every instance, by 8 callers of each; returns how many were allowed.
async fn ask(instances: &[Limiter<RedisStore>], each: usize) -> usize {
    let callers = instances.iter().flat_map(|instance| (0..8).map(|_| instance.clone()));
    let callers: Vec<_> = callers
        .map(|instance| {
            tokio::spawn(async move {
                let mut allowed = 0;
                for _ in 0..each / 8 {
                    allowed += usize::from(instance.check("hot", &[]).await.unwrap().is_allowed());
                }
                allowed
            })
        })
        .collect();
    let mut allowed = 0;
    for caller in callers {
        allowed += caller.await.unwrap();
    }
    allowed
}

async fn used(instance: &Limiter<RedisStore>) -> u32 {
    let decision = instance.peek("hot", &[]).await.unwrap();
    decision.limits().next().unwrap().outcome.used
}

fn hot(limits: &str) -> PolicyBuilder {
    Policy::builder("hot").limits(limits).lease(Lease::For(Millis(20)))
}

/// Nothing granted is lost: what the server holds after they have closed is what they have spent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_instances_have_closed_the_server_holds_what_they_spent() {
    let server = Server::start();
    let policy = || Policy::builder("hot").limits("100000/1h").lease(Lease::For(Millis(72_000)));
    let mut instances = Vec::new();
    for _ in 0..3 {
        instances.push(instance(&server, policy()).await);
    }
    let watching = instance(&server, policy()).await;
    let allowed = ask(&instances, 400).await;
    assert_eq!(allowed, 1200);
    assert!(used(&watching).await > 1200, "leases are held, and last for a minute");
    for instance in &instances {
        assert!(instance.store().close(Millis(5000)).await);
        let figures = instance.store().figures();
        assert!(figures.leased > 300 && figures.lease_calls < figures.leased / 5, "{figures:?}");
        assert!(figures.leases_given_back > 0);
    }
    assert_eq!(used(&watching).await, 1200);
}

/// The window is so long that none ends: of all that asked exactly the limit passed, from leases and without, whole or
/// split.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_more_than_the_limit_passes_whoever_leases() {
    for shards in [1, 3] {
        let server = Server::start();
        let policy = || hot("1000/1h").shards(shards);
        let instances = [
            instance(&server, policy()).await,
            instance(&server, policy()).await,
            instance(&server, policy().lease(Lease::None)).await,
        ];
        let mut allowed = 0;
        // Unspent leases come back after 20 ms, and are found by those who ask then.
        for _ in 0..1000 {
            allowed += ask(&instances, 80).await;
            assert!(allowed <= 1000, "{allowed}");
            if allowed == 1000 {
                break;
            }
        }
        assert_eq!(allowed, 1000, "{shards} shards");
        for instance in &instances {
            assert!(instance.store().close(Millis(5000)).await);
        }
        assert_eq!(used(&instances[0]).await, 1000);
    }
}

/// Several limits, several costs and another policy that counts the same key: leased is what can be, and all is
/// counted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn checks_of_several_limits_and_costs_lease_together() {
    let server = Server::start();
    let policy = || hot("100000/1h; 500000/1d");
    let one = instance(&server, policy()).await;
    let mut spent = 0;
    for number in 0..600u32 {
        let cost = 1 + number % 2;
        let asks = [slidegate::Ask::new("hot", &[]).cost(cost)];
        assert!(one.check_all(&asks).await.unwrap().is_allowed());
        spent += cost;
    }
    assert!(one.store().close(Millis(5000)).await);
    let decision = one.peek("hot", &[]).await.unwrap();
    let both: Vec<u32> = decision.limits().map(|state| state.outcome.used).collect();
    assert_eq!(both, [spent, spent]);
}
