//! Stores of several servers, as a configuration names them.

use serde_json::json;
use slidegate_testbed::redis::{Cluster, Sentinels};

use crate::client::post;
use crate::instance;

/// Two policies, whose counters lie in different slots.
const BOTH: &str = r#"{"policies":["strict","lenient"],"cost":2}"#;

fn is_shared_by_two(store: &str) {
    let (one, other) = (instance(store), instance(store));
    let ask = |address: String| {
        let reply = post(&address, "/v1/check", BOTH);
        (reply.status, reply.json()["mode"].clone())
    };
    let answers = [one.address("api"), other.address("api"), one.address("api")].map(ask);
    assert_eq!(answers, [(200, json!("normal")), (200, json!("normal")), (429, json!("normal"))]);
    for policy in ["strict", "lenient"] {
        let question = json!({"policy": policy}).to_string();
        let peek = post(&other.address("admin"), "/v1/peek", &question).json();
        assert_eq!(peek["limits"][0]["used"], 4, "{peek}");
    }
}

#[test]
fn instances_share_a_cluster() {
    let cluster = Cluster::start();
    is_shared_by_two(&format!("url: \"redis-cluster://{}\", timeout: 5s", cluster.addresses()));
}

#[test]
fn instances_share_the_master_that_sentinels_name() {
    let started = Sentinels::start();
    let sentinels: Vec<String> = started.sentinels().iter().map(|sentinel| sentinel.address()).collect();
    let store = format!("url: \"redis-sentinel://{}/{}\", timeout: 5s", sentinels.join(","), Sentinels::NAME);
    is_shared_by_two(&store);
}
