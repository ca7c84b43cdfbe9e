//! Counters in Redis or Valkey, shared by all instances.

mod config;
mod link;
mod url;

pub use config::{RedisConfig, RedisConfigError, Retry, Tls};
