//! Decisions from this instance's share, and checks that do not wait for a node that fails.

use slidegate_core::limit::{Algorithm, Limit, parse_limit};
use slidegate_core::time::Millis;
use tokio::time::advance;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn sharing() -> PolicyBuilder {
    Policy::builder("sharing").limits("80/1s")
}

fn of_80() -> Limit {
    parse_limit("80/1s").unwrap()
}

/// Asks until something is denied, and says how many passed.
async fn allowed(limiter: &Guarded, policies: &[&str]) -> u32 {
    for passed in 0..10_000 {
        if !ask(limiter, policies).await.is_allowed() {
            return passed;
        }
    }
    panic!("nothing is denied");
}

#[tokio::test(start_paused = true)]
async fn with_the_breaker_tripped_no_check_waits() {
    let peers = Peers::new();
    peers.is(0, 8);
    let limiter = limiter_among(peers.clone(), [sharing(), denying(), allowing()]);
    breaks(&limiter, Does::Stall);
    peers.fail(Some(Fault::Timeout));
    let asked = Instant::now();
    for (policy, mode) in [("sharing", Mode::Local), ("denying", Mode::DenyAll), ("allowing", Mode::AllowAll)]
    {
        assert_eq!(ask(&limiter, &[policy]).await.mode(), mode);
    }
    assert_eq!(asked.elapsed(), Duration::ZERO);
    // Counted as what they would have failed with.
    let figures = limiter.store().figures();
    assert_eq!((figures.failing, figures.faults[Fault::Timeout as usize]), (true, 3));
    breaks(&limiter, Does::Answer);
    peers.recover();
    assert_eq!(ask(&limiter, &["sharing"]).await.mode(), Mode::Normal);
}

#[tokio::test(start_paused = true)]
async fn shares_of_all_places_add_up_to_the_limit_to_the_permit() {
    let mut total = 0;
    for place in 0..7 {
        let peers = Peers::new();
        peers.is(place, 7);
        let limiter = limiter_among(peers.clone(), [sharing()]);
        peers.fail(Some(Fault::Disconnected));
        total += allowed(&limiter, &["sharing"]).await;
    }
    assert_eq!(total, 80);
}

#[tokio::test(start_paused = true)]
async fn numbers_are_those_of_the_share_and_so_is_the_time_to_wait() {
    let peers = Peers::new();
    peers.is(0, 8);
    let limiter = limiter_among(peers.clone(), [sharing()]);
    peers.fail(Some(Fault::Disconnected));
    let first = ask(&limiter, &["sharing"]).await;
    let state = first.limits().next().unwrap();
    assert!(first.is_counted(&state));
    assert_eq!((state.outcome.limit, state.outcome.used, state.outcome.remaining), (10, 1, 9));
    assert_eq!(allowed(&limiter, &["sharing"]).await, 9);
    let denied = ask(&limiter, &["sharing"]).await;
    let answer = answer::denied(&denied, AnswerOptions::default(), 0, None);
    assert_eq!(answer.status(), 429);
    let wait = denied.retry_after().unwrap();
    advance(Duration::from(wait) - Duration::from_millis(1)).await;
    assert!(!ask(&limiter, &["sharing"]).await.is_allowed());
    advance(Duration::from_millis(1)).await;
    assert!(ask(&limiter, &["sharing"]).await.is_allowed());
}

// Eight instances held 125 each of 1000 as the store went away, and then traffic moved to others: 1875 of 1000.
#[tokio::test(start_paused = true)]
async fn for_the_first_window_an_instance_stays_below_what_it_held() {
    for (held, first, then) in [(3, 0, 10), (10, 0, 10), (60, 0, 10)] {
        let peers = Peers::new();
        peers.is(0, 8);
        let limiter = limiter_among(peers.clone(), [sharing()]);
        peers.store_granted(&of_80(), "sharing", held);
        advance(SECOND / 2).await;
        peers.fail(Some(Fault::Timeout));
        assert_eq!(allowed(&limiter, &["sharing"]).await, first, "{held}");
        // What it held has left, and it may hold as much again, up to its share.
        advance(SECOND / 2 + Duration::from_millis(1)).await;
        assert_eq!(allowed(&limiter, &["sharing"]).await, held.min(10), "{held}");
        // A window after the beginning, the share.
        advance(SECOND + Duration::from_millis(2)).await;
        assert_eq!(allowed(&limiter, &["sharing"]).await, then, "{held}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_granted_here_is_remembered_for_the_store() {
    let peers = Peers::new();
    peers.is(0, 8);
    let limiter = limiter_among(peers.clone(), [sharing()]);
    peers.fail(Some(Fault::Timeout));
    assert_eq!(allowed(&limiter, &["sharing"]).await, 10);
    assert_eq!(peers.held("sharing", Millis(1_000)), 10);
    // A second era begins with that: nothing is granted twice.
    peers.recover();
    peers.fail(Some(Fault::Timeout));
    assert_eq!(allowed(&limiter, &["sharing"]).await, 0);
}

#[tokio::test(start_paused = true)]
async fn the_only_instance_knows_of_everything_and_may_use_all() {
    let peers = Peers::new();
    peers.is(0, 1);
    let limiter = limiter_among(peers.clone(), [sharing()]);
    peers.store_granted(&of_80(), "sharing", 30);
    peers.fail(Some(Fault::Timeout));
    assert_eq!(allowed(&limiter, &["sharing"]).await, 50);
}

// One call that was lost must not hand out a share on top of what the store goes on granting.
#[tokio::test(start_paused = true)]
async fn a_check_that_fails_by_itself_grants_nothing_beyond_what_is_held() {
    let peers = Peers::new();
    peers.is(0, 2);
    let limiter = limiter_among(peers.clone(), [sharing()]);
    peers.store_granted(&of_80(), "sharing", 7);
    breaks(&limiter, Does::Lose(Fault::Disconnected));
    for _ in 0..100 {
        let decision = ask(&limiter, &["sharing"]).await;
        assert_eq!((decision.mode(), decision.is_allowed()), (Mode::Local, false));
    }
    assert_eq!(peers.held("sharing", Millis(1_000)), 7);
}

#[tokio::test(start_paused = true)]
async fn without_knowing_how_many_there_are_nothing_is_shared() {
    let peers = Peers::new();
    let watching = Policy::builder("watching").limits("5/1m").shadow(true);
    let limiter = limiter_among(peers.clone(), [sharing(), allowing(), watching]);
    peers.fail(Some(Fault::Disconnected));
    for (policies, mode) in [
        (&["sharing"][..], Mode::DenyAll),
        (&["sharing", "allowing"], Mode::DenyAll),
        (&["watching"], Mode::AllowAll),
        (&["watching", "allowing"], Mode::AllowAll),
    ] {
        let decision = ask(&limiter, policies).await;
        assert_eq!(decision.mode(), mode, "{policies:?}");
        assert!(decision.violated().all(|state| &**state.policy.name() == "sharing"), "{policies:?}");
    }
    assert_eq!(counted(&limiter, "sharing", Mode::DenyAll), [0, 2, 0, 0]);
    peers.is(0, 8);
    assert_eq!(ask(&limiter, &["sharing"]).await.mode(), Mode::Local);
}

#[tokio::test(start_paused = true)]
async fn of_several_policies_one_that_denies_is_enough_and_those_that_allow_are_not_counted() {
    let peers = Peers::new();
    peers.is(0, 8);
    let few = Policy::builder("few").limits("16/1s");
    let limiter = limiter_among(peers.clone(), [sharing(), few, allowing(), denying()]);
    peers.fail(Some(Fault::Disconnected));
    let all = ask(&limiter, &["sharing", "allowing", "denying"]).await;
    assert_eq!(all.mode(), Mode::DenyAll);
    // Only the one that said so denied.
    assert!(all.violated().all(|state| &**state.policy.name() == "denying"));
    assert_eq!(counted(&limiter, "sharing", Mode::DenyAll), [0, 0, 0, 1]);
    assert_eq!(peers.held("sharing", Millis(1_000)), 0, "nothing is charged");

    // All or nothing: the smallest share decides.
    assert_eq!(allowed(&limiter, &["allowing", "few", "sharing"]).await, 2);
    assert_eq!(peers.held("sharing", Millis(1_000)), 2);
    let denied = ask(&limiter, &["allowing", "few", "sharing"]).await;
    assert_eq!(denied.mode(), Mode::Local);
    let names: Vec<_> = denied.violated().map(|state| state.name).collect();
    assert_eq!(names, ["few"]);
    for state in denied.limits() {
        assert_eq!(denied.is_counted(&state), &**state.policy.name() != "allowing");
    }
    let mut headers = http::HeaderMap::new();
    let passed = ask(&limiter, &["allowing", "sharing"]).await;
    fields::apply(&passed, AnswerOptions::default(), 0, &mut headers);
    assert_eq!(headers["ratelimit"], r#""sharing";r=7;t=2"#);
}

#[tokio::test(start_paused = true)]
async fn a_slow_node_is_not_a_failing_one() {
    let peers = Peers::new();
    peers.is(0, 8);
    let limiter = limiter_among(peers.clone(), [sharing()]);
    peers.fail(None);
    assert_eq!(ask(&limiter, &["sharing"]).await.mode(), Mode::Local);
    let figures = limiter.store().figures();
    assert_eq!((figures.failing, figures.faults), (false, [0; Fault::ALL.len()]));
}

#[tokio::test(start_paused = true)]
async fn every_algorithm_has_a_share() {
    let algorithms = [
        Algorithm::SlidingWindow { resolution: Some(Millis(10)) },
        Algorithm::SlidingLog,
        Algorithm::FixedWindow,
        Algorithm::TokenBucket { burst: 80 },
    ];
    for algorithm in algorithms {
        let limits = of_80().with_algorithm(algorithm).unwrap();
        let peers = Peers::new();
        peers.is(3, 8);
        let limiter = limiter_among(peers.clone(), [Policy::builder("p").limit(None, limits)]);
        peers.fail(Some(Fault::Disconnected));
        assert_eq!(allowed(&limiter, &["p"]).await, 10, "{limits}");
        // Another era does not hand the share out again.
        peers.recover();
        peers.fail(Some(Fault::Disconnected));
        assert_eq!(allowed(&limiter, &["p"]).await, 0, "{limits}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_kept_for_an_outage_is_forgotten_after_it() {
    let peers = Peers::new();
    peers.is(0, 1);
    let hourly = parse_limit("5/1h").unwrap().with_algorithm(Algorithm::SlidingLog).unwrap();
    let log = Policy::builder("log").limit(None, hourly);
    let limiter = limiter_among(peers.clone(), [sharing(), log]);
    peers.fail(Some(Fault::Disconnected));
    let _ = ask(&limiter, &["sharing", "log"]).await;
    assert_eq!(limiter.store().local.len(), 2);
    peers.recover();
    advance(2 * SECOND).await;
    let _ = ask(&limiter, &["sharing"]).await;
    // Its hour has not passed, and no ledger remembers it.
    assert_eq!(limiter.store().local.len(), 1);
}
