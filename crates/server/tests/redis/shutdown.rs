//! The end of an instance: who is told, and what becomes of what it has leased.

use serde_json::json;
use slidegate_testbed::instance::Instance;
use slidegate_testbed::redis::Server;
use slidegate_testbed::wait;

use crate::client::{get, post};
use crate::program;

/// Leases are so long that no test sees one end.
fn configuration(server: &Server) -> String {
    format!(
        "store: {{ url: \"{}\", timeout: 5s }}\n\
         headers: {{ mode: true }}\n\
         policies: [{{ name: hot, limits: [1000/1h], lease: 72s }}]\n\
         gateway: {{ listen: \"127.0.0.1:0\", routes: [{{ match: {{ prefix: / }}, policies: [hot], upstream: echo }}] }}\n\
         admin: {{ listen: \"127.0.0.1:0\" }}\n\
         shutdown: {{ delay: 2s, grace: 5s }}\n",
        server.url()
    )
}

/// R10 in small: told to stop, it says so and goes on serving until the delay is over; then the store holds what was
/// spent, and nobody counts the instance any more.
#[test]
fn who_is_told_to_stop_says_so_serves_on_and_gives_back_what_it_leased() {
    let server = Server::start();
    let mut leaving = Instance::start(&program(), &configuration(&server));
    let staying = Instance::start(&program(), &configuration(&server));
    let (gateway, admin) = (leaving.address("gateway"), leaving.address("admin"));
    let mut modes = Vec::new();
    for _ in 0..40 {
        let reply = get(&gateway, "/");
        assert_eq!(reply.status, 200);
        modes.push(reply.mode());
    }
    assert!(modes.iter().any(|mode| mode == "leased"), "{modes:?}");
    let used = || {
        let peek = post(&staying.address("admin"), "/v1/peek", r#"{"policy":"hot"}"#);
        peek.json()["limits"][0]["used"].as_u64().unwrap()
    };
    assert!(used() > 40, "more is leased than was spent: {}", used());
    wait::until("both instances are known", wait::PATIENCE, || {
        server.ask::<i64>(&["ZCARD", "sg:{instances}"]) == 2
    });

    leaving.terminate();
    wait::until("it says that it is not ready", wait::PATIENCE, || get(&admin, "/readyz").status == 503);
    assert_eq!(get(&admin, "/readyz").json(), json!({"ready": false, "store": "ok"}));
    // Whoever has not heard of it yet is served.
    assert_eq!(get(&gateway, "/").status, 200);
    assert_eq!(leaving.wait().code(), Some(0));
    assert_eq!(used(), 41);
    assert_eq!(server.ask::<i64>(&["ZCARD", "sg:{instances}"]), 1);
}
