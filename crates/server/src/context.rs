//! What every door of a running server shares.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use slidegate::Limiter;
use slidegate::http::AnswerOptions;
use slidegate::http::client_ip::ClientIpRule;

use crate::metrics::Metrics;
use crate::store::AnyStore;

/// Shared by all doors; cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Context {
    pub(crate) limiter: Limiter<AnyStore>,
    pub(crate) client_ip: Arc<ClientIpRule>,
    pub(crate) answers: AnswerOptions,
    pub(crate) metrics: Arc<Metrics>,
    /// Set once the server was told to stop: balancers shall go elsewhere.
    pub(crate) leaving: Arc<AtomicBool>,
}
