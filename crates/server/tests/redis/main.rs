//! `slidegate serve` and `slidegate check` over a real Redis: what instances share, and what clients see while the
//! store is away.
//!
//! Timeouts are long where the store is there: a busy machine must not look like a slow store.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::path::PathBuf;

use slidegate_testbed::instance::Instance;

mod away;
mod check;
mod client;
mod secrets;
mod sharing;
mod shutdown;
mod topologies;

fn program() -> PathBuf {
    assert_cmd::cargo::cargo_bin("slidegate")
}

/// Three policies, of which one denies without the store, one allows and one has its share, and all doors. `store` are lines of that section.
fn configuration(store: &str) -> String {
    format!(
        "store: {{ {store} }}\n\
         headers: {{ mode: true }}\n\
         policies:\n\
         - {{ name: strict, limits: [5/1h], on_store_failure: deny }}\n\
         - {{ name: lenient, limits: [5/1h], on_store_failure: allow }}\n\
         - {{ name: sharing, limits: [8/1h] }}\n\
         gateway:\n\
         \x20 listen: 127.0.0.1:0\n\
         \x20 routes:\n\
         \x20 - {{ match: {{ prefix: /strict }}, policies: [strict], upstream: echo }}\n\
         \x20 - {{ match: {{ prefix: /lenient }}, policies: [lenient], upstream: echo }}\n\
         \x20 - {{ match: {{ prefix: /sharing }}, policies: [sharing], upstream: echo }}\n\
         api: {{ listen: \"127.0.0.1:0\" }}\n\
         admin: {{ listen: \"127.0.0.1:0\" }}\n"
    )
}

fn instance(store: &str) -> Instance {
    Instance::start(&program(), &configuration(store))
}
