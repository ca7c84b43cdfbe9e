//! Counters in Redis or Valkey, shared by all instances.

mod config;
#[cfg_attr(not(test), expect(dead_code, reason = "used from here on by the store, which is not here yet"))]
mod link;
mod url;

pub use config::{RedisConfig, RedisConfigError, Retry, Tls};
