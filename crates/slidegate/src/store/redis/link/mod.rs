//! Connections to Redis.

pub(crate) mod tls;

use ::redis::{Cmd, Value};
use tokio::time::Instant;

use super::config::{RedisConfig, RedisConfigError};
use crate::error::{Fault, StoreError};

/// A script with the name that servers know it by.
#[derive(Clone, Debug)]
pub(crate) struct Script {
    /// SHA-1 of the text, 40 hex digits.
    pub(crate) sha: String,
    /// What EVAL is given.
    pub(crate) text: String,
}

/// Connections to everything that a store's URL names.
#[derive(Debug)]
pub(crate) struct Link {}

/// What went over a link since its start.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LinkFigures {
    pub(crate) calls: u64,
    pub(crate) bytes_out: u64,
    pub(crate) bytes_in: u64,
    pub(crate) reconnects: u64,
    /// In the order of [`Fault::ALL`].
    pub(crate) faults: [u64; Fault::ALL.len()],
    pub(crate) connected: bool,
}

#[expect(dead_code, unused_variables, clippy::unused_async, reason = "signatures first")]
impl Link {
    pub(crate) fn start(config: &RedisConfig) -> Result<Self, RedisConfigError> {
        Ok(Self {})
    }
    pub(crate) const fn is_cluster(&self) -> bool {
        false
    }
    pub(crate) fn slot(name: &[u8]) -> u16 {
        0
    }
    pub(crate) async fn script(
        &self,
        slot: u16,
        script: &Script,
        keys: &[&[u8]],
        args: &[&[u8]],
        deadline: Instant,
    ) -> Result<Value, StoreError> {
        Err(StoreError::Unavailable { fault: Fault::Disconnected })
    }
    pub(crate) async fn command(&self, slot: u16, cmd: &Cmd, deadline: Instant) -> Result<Value, StoreError> {
        Err(StoreError::Unavailable { fault: Fault::Disconnected })
    }
    pub(crate) fn figures(&self) -> LinkFigures {
        LinkFigures::default()
    }
}
