//! What instances share: counters, on every door, and reservations.

use serde_json::json;
use slidegate_testbed::redis::Server;
use slidegate_testbed::wait;

use crate::client::{get, post};
use crate::instance;

fn store(server: &Server) -> String {
    format!("url: \"{}\", timeout: 5s", server.url())
}

#[test]
fn two_instances_share_a_limit_on_every_door() {
    let server = Server::start();
    let (one, other) = (instance(&store(&server)), instance(&store(&server)));
    let strict = r#"{"policy":"strict"}"#;
    for admitted in 1..=2 {
        assert_eq!(get(&one.address("gateway"), "/strict").status, 200);
        let reply = post(&other.address("api"), "/v1/check", strict);
        assert_eq!((reply.status, &reply.json()["limits"][0]["used"]), (200, &json!(2 * admitted)));
        assert_eq!(reply.mode(), "normal");
    }
    let batch = r#"{"checks":[{"policy":"strict"},{"policy":"strict"},{"policy":"lenient"}]}"#;
    let answers = post(&one.address("api"), "/v1/check/batch", batch).json();
    let statuses: Vec<_> = (0..3).map(|index| answers["answers"][index]["status"].clone()).collect();
    assert_eq!(statuses, [200, 429, 200]);
    assert_eq!(answers["answers"][0]["decision"]["mode"], "normal");

    let denied = get(&other.address("gateway"), "/strict");
    assert_eq!((denied.status, &*denied.mode()), (429, "normal"));
    assert!(denied.header("retry-after").is_some());
    wait::until("a denial is repeated without the store", wait::PATIENCE, || {
        let again = get(&other.address("gateway"), "/strict");
        assert_eq!(again.status, 429);
        again.mode() == "cached"
    });

    let peek = post(&one.address("admin"), "/v1/peek", strict);
    assert_eq!((peek.status, &peek.json()["limits"][0]["used"]), (200, &json!(5)));
    assert_eq!(post(&one.address("admin"), "/v1/reset", strict).status, 200);
    assert_eq!(get(&one.address("gateway"), "/strict").status, 200);
    // The other one may repeat its denial for a second.
    wait::until("a reset elsewhere is noticed", wait::PATIENCE, || {
        get(&other.address("gateway"), "/strict").status == 200
    });
    assert!(server.ask::<i64>(&["DBSIZE"]) > 0);
}

#[test]
fn a_reservation_is_settled_by_whichever_instance_is_told() {
    let server = Server::start();
    let (one, other) = (instance(&store(&server)), instance(&store(&server)));
    let reserved = post(&one.address("api"), "/v1/reserve", r#"{"policy":"strict","cost":4}"#);
    assert_eq!((reserved.status, &*reserved.mode()), (200, "normal"));
    let id = reserved.json()["reservation"].as_str().unwrap().to_owned();
    let commit = json!({"reservation": id, "cost": 1}).to_string();
    let settled = post(&other.address("api"), "/v1/commit", &commit);
    assert_eq!(
        (settled.status, settled.json()),
        (200, json!({"settled": true, "given_back": 3, "charged": 0}))
    );
    for instance in [&one, &other] {
        let peek = post(&instance.address("admin"), "/v1/peek", r#"{"policy":"strict"}"#);
        assert_eq!(peek.json()["limits"][0]["used"], 1);
        assert_eq!(post(&instance.address("api"), "/v1/commit", &commit).status, 404);
    }
    let again = post(&other.address("api"), "/v1/reserve", r#"{"policy":"strict","cost":4}"#);
    let refund = json!({"reservation": again.json()["reservation"]}).to_string();
    assert_eq!(post(&one.address("api"), "/v1/refund", &refund).json()["given_back"], 4);
}

#[test]
fn the_metrics_tell_what_the_store_was_asked() {
    let server = Server::start();
    let instance = instance(&store(&server));
    for _ in 0..3 {
        assert_eq!(get(&instance.address("gateway"), "/strict").status, 200);
    }
    assert_eq!(get(&instance.address("admin"), "/readyz").json(), json!({"ready": true, "store": "ok"}));
    let metrics = get(&instance.address("admin"), "/metrics").body;
    for line in [
        "slidegate_store_connected 1\n",
        "slidegate_store_failing 0\n",
        "slidegate_store_checks_total 3\n",
        "slidegate_store_failures_total{fault=\"timeout\"} 0\n",
        "slidegate_decisions_total{policy=\"strict\",outcome=\"allowed\",mode=\"normal\"} 3\n",
    ] {
        assert!(metrics.contains(line), "{line}{metrics}");
    }
    let of = |name: &str| -> u64 {
        let value = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.unwrap().parse().unwrap()
    };
    assert!(of("slidegate_store_calls_total") >= 3, "{metrics}");
    assert!(of("slidegate_store_sent_bytes_total") > 100, "{metrics}");
    assert!(!metrics.contains("slidegate_store_keys"), "{metrics}");
}
