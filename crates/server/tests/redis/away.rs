//! What clients see while the store is away: the policies' answers, soon, with who decided; and exact ones again
//! once it is back.

use std::time::Duration;

use serde_json::{Value, json};
use slidegate_testbed::instance::Instance;
use slidegate_testbed::redis::Server;
use slidegate_testbed::wait;

use crate::client::{Reply, get, post};
use crate::instance;

const STRICT: &str = r#"{"policy":"strict"}"#;

/// Long beside a check of 500 ms at the most, short beside what hung callers of other limiters waited.
const SOON: Duration = Duration::from_secs(3);

fn soon(ask: impl FnOnce() -> Reply) -> Reply {
    #[expect(clippy::disallowed_methods, reason = "another process is measured")]
    let asked = std::time::Instant::now();
    let reply = ask();
    assert!(asked.elapsed() < SOON, "{:?} for {reply:?}", asked.elapsed());
    reply
}

/// Every check is answered as its policy says. Returns what was reserved meanwhile.
fn decides_by_policy(instance: &Instance) -> Value {
    let (gateway, api) = (instance.address("gateway"), instance.address("api"));
    let denied = soon(|| get(&gateway, "/strict"));
    assert_eq!((denied.status, &*denied.mode()), (503, "deny_all"));
    assert_eq!((denied.header("retry-after"), denied.header("ratelimit")), (None, None));
    assert!(denied.json()["type"].as_str().unwrap().ends_with("#temporary-reduced-capacity"));
    let allowed = soon(|| get(&gateway, "/lenient"));
    assert_eq!((allowed.status, &*allowed.mode()), (200, "allow_all"));
    assert_eq!(allowed.header("ratelimit-policy"), Some(r#""lenient";q=5;w=3600"#));

    let denied = soon(|| post(&api, "/v1/check", STRICT));
    assert_eq!((denied.status, &denied.json()["mode"]), (503, &json!("deny_all")));
    assert_eq!(denied.json()["limits"][0]["remaining"], json!(null));
    let batch =
        soon(|| post(&api, "/v1/check/batch", r#"{"checks":[{"policy":"lenient"},{"policy":"strict"}]}"#));
    let answers = &batch.json()["answers"];
    assert_eq!((&answers[0]["status"], &answers[1]["status"]), (&json!(200), &json!(503)));
    assert_eq!(answers[0]["decision"]["mode"], "allow_all");
    let reserved = soon(|| post(&api, "/v1/reserve", r#"{"policy":"lenient","cost":2}"#)).json();
    assert_eq!(reserved["mode"], "allow_all");
    let ready = get(&instance.address("admin"), "/readyz");
    let told = ready.json();
    assert_eq!((ready.status, &told["ready"], &told["store"]), (200, &json!(true), &json!("degraded")));
    // Five checks have failed by now.
    assert_eq!(told["nodes"][0]["step"], "failing");
    reserved["reservation"].clone()
}

/// What asks for numbers is told that there are none.
fn is_without_numbers(instance: &Instance, reservation: &Value) {
    let (api, admin) = (instance.address("api"), instance.address("admin"));
    let commit = json!({"reservation": reservation, "cost": 1}).to_string();
    for (address, path, body) in
        [(&api, "/v1/commit", &*commit), (&admin, "/v1/peek", STRICT), (&admin, "/v1/reset", STRICT)]
    {
        let reply = soon(|| post(address, path, body));
        assert_eq!(reply.status, 503, "{path}: {reply:?}");
        assert!(reply.json()["detail"].as_str().unwrap().starts_with("the store"), "{reply:?}");
    }
}

/// Peeks charge nothing, and ask a node that fails as well: so it must be found to be well besides.
fn until_it_decides(instance: &Instance) {
    let admin = instance.address("admin");
    wait::until("the store decides again", wait::PATIENCE, || {
        post(&admin, "/v1/peek", STRICT).status == 200 && get(&admin, "/readyz").json()["nodes"].is_null()
    });
}

/// Exactly what an empty store gives, and then denied.
fn is_exact_again(instance: &Instance) {
    until_it_decides(instance);
    let answers: Vec<_> = (0..6).map(|_| get(&instance.address("gateway"), "/strict")).collect();
    let statuses: Vec<u16> = answers.iter().map(|reply| reply.status).collect();
    assert_eq!(statuses, [200, 200, 200, 200, 200, 429]);
    assert!(answers.iter().all(|reply| reply.mode() == "normal"), "{answers:?}");
}

// R049: without the store, clients were told `X-RateLimit-Remaining: -1`. F6, F11: the HTTP door answered 400, or
// what callers took for "allowed".
#[test]
fn it_starts_without_its_store_answers_by_the_policies_and_is_exact_once_that_is_there() {
    let server = Server::start();
    server.kill();
    let instance = instance(&format!("url: \"{}\", timeout: 500ms", server.url()));
    wait::until("it says that the store is away", wait::PATIENCE, || {
        instance.log().contains("the store can't be reached yet: policies say what is answered")
    });
    is_without_numbers(&instance, &decides_by_policy(&instance));
    server.restart();
    is_exact_again(&instance);
    let metrics = get(&instance.address("admin"), "/metrics").body;
    assert!(metrics.contains("slidegate_store_bypassed_checks_total{outcome=\"denied\"} 3\n"), "{metrics}");
    assert!(metrics.contains("outcome=\"denied\",mode=\"deny_all\"} 3\n"), "{metrics}");
}

/// A fourth of eight, whatever the store does: it has never been there.
#[test]
fn it_starts_without_its_store_and_serves_its_share_if_it_knows_it() {
    let server = Server::start();
    server.kill();
    let instance = instance(&format!("url: \"{}\", timeout: 500ms, instances: 4", server.url()));
    let answers: Vec<_> = (0..6).map(|_| soon(|| get(&instance.address("gateway"), "/sharing"))).collect();
    let statuses: Vec<u16> = answers.iter().map(|reply| reply.status).collect();
    assert_eq!(statuses, [200, 200, 429, 429, 429, 429]);
    assert!(answers.iter().all(|reply| reply.mode() == "local"), "{answers:?}");
    assert_eq!(answers[0].header("ratelimit-policy"), Some(r#""sharing";q=2;w=3600"#));
    assert!(answers[0].header("ratelimit").unwrap().starts_with(r#""sharing";r=1;t=36"#), "{answers:?}");
    assert!(answers[2].header("retry-after").is_some(), "{answers:?}");
    let metrics = get(&instance.address("admin"), "/metrics").body;
    let told = [
        "outcome=\"allowed\",mode=\"local\"} 2\n",
        "outcome=\"denied\",mode=\"local\"} 4\n",
        "to=\"failing\",cause=\"failures_in_a_row\"} 1\n",
        "step=\"failing\"} 1\n",
    ];
    assert!(told.iter().all(|line| metrics.contains(line)), "{metrics}");
    let log = instance.log();
    assert_eq!(log.matches("the node fails: policies say what is answered").count(), 1, "{log}");
}

// R054: each request waited 1 to 10 seconds.
#[test]
fn a_store_that_falls_silent_costs_a_timeout_and_no_more() {
    let server = Server::start();
    let instance = instance(&format!("url: \"{}\", timeout: 500ms", server.url()));
    assert_eq!(get(&instance.address("gateway"), "/strict").mode(), "normal");
    server.stop();
    is_without_numbers(&instance, &decides_by_policy(&instance));
    server.cont();
    until_it_decides(&instance);
    // What was sent while the store was frozen may have been executed once it went on. Nobody was told so:
    // it may count, or be taken back, but five is the most that clients are told to have.
    let peek = post(&instance.address("admin"), "/v1/peek", STRICT).json();
    let left = peek["limits"][0]["remaining"].as_u64().unwrap();
    let mut admitted = 0;
    let denied = loop {
        let reply = get(&instance.address("gateway"), "/strict");
        assert_eq!(reply.mode(), "normal");
        if reply.status != 200 {
            break reply;
        }
        admitted += 1;
        assert!(admitted <= 4, "{reply:?}");
    };
    assert_eq!(denied.status, 429);
    assert!(admitted >= left, "{admitted} admitted, and {left} were left");
    assert!(instance.log().contains("the store fails"), "{}", instance.log());
}

// R048: what a full store did depended on the order of commands in a script, and no metric told of it.
#[test]
fn a_full_store_is_named_by_its_fault_and_the_policies_decide() {
    let server = Server::options().max_memory(1, "noeviction").start();
    let instance = instance(&format!("url: \"{}\", timeout: 5s", server.url()));
    decides_by_policy(&instance);
    let metrics = get(&instance.address("admin"), "/metrics").body;
    let told = ["slidegate_store_connected 1\n", "slidegate_store_failing 1\n", "slidegate_store_evicts 0\n"];
    assert!(told.iter().all(|line| metrics.contains(line)), "{metrics}");
    let failures = metrics.lines().find_map(|line| {
        line.strip_prefix("slidegate_store_failures_total{fault=\"out_of_memory\"} ")?.parse::<u64>().ok()
    });
    assert!(failures >= Some(5), "{metrics}");
    server.ask::<()>(&["CONFIG", "SET", "maxmemory", "0"]);
    is_exact_again(&instance);
}
