//! What is worth a warning about a server, found out beside the traffic once a connection is there.

use std::time::Duration;

use ::redis::Value;
use ::redis::aio::MultiplexedConnection;
use tokio::time::timeout;

use super::open::{field, text};

/// The eviction policy, if it lets the server drop counters that are in use. Counters have a lifetime, so
/// `volatile-*` evicts them as well. `None` also if the user may not ask: that is no fault.
pub(super) async fn evicts(connection: &mut MultiplexedConnection, patience: Duration) -> Option<String> {
    let policy = timeout(patience, policy(connection)).await.ok()??;
    (policy != "noeviction").then_some(policy)
}

async fn policy(connection: &mut MultiplexedConnection) -> Option<String> {
    let mut get = ::redis::cmd("CONFIG");
    get.arg("GET").arg("maxmemory-policy");
    let reply = connection.send_packed_command(&get).await.ok()?;
    if let Some(policy) = field(&reply, "maxmemory-policy") {
        return Some(policy.to_owned());
    }
    let mut info = ::redis::cmd("INFO");
    info.arg("memory");
    let reply: Value = connection.send_packed_command(&info).await.ok()?;
    let lines = text(&reply)?.lines();
    lines
        .into_iter()
        .find_map(|line| line.strip_prefix("maxmemory_policy:"))
        .map(|policy| policy.trim().to_owned())
}
