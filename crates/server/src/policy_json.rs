//! Policies as JSON: every one as it is in force, defaults filled in.
//!
//! ```json
//! {"name": "per-user",
//!  "limits": [{"name": "burst", "permits": 100, "window_ms": 10000, "algorithm": "sliding_window"}],
//!  "key": ["{client_ip}"], "missing": "count", "cost": 1, "count_denied": false, "shadow": false,
//!  "on_store_failure": "local", "failover": "exact", "lease": "none", "shards": 1,
//!  "exempt": {"methods": ["OPTIONS"], "client_ip": ["10.0.0.0/8"], "headers": ["x-internal"]},
//!  "overrides": 2}
//! ```
//! Of an exempting header only the name is told: its value may be a secret.

use serde::Serialize;
use slidegate::Policy;
use slidegate::core::decision::Cost;
use slidegate::core::limit::Algorithm;
use slidegate::policy::{CostSource, Exempt, Failover, Lease, Missing, NamedLimit, OnStoreFailure};

/// A policy.
#[derive(Debug, Serialize)]
pub(crate) struct PolicyJson<'a> {
    name: &'a str,
    limits: Vec<LimitJson<'a>>,
    key: Vec<String>,
    missing: &'static str,
    cost: CostJson,
    count_denied: bool,
    shadow: bool,
    on_store_failure: &'static str,
    failover: &'static str,
    lease: String,
    shards: u32,
    exempt: ExemptJson<'a>,
    /// How many there are: a policy may have one for every tenant.
    overrides: usize,
}

#[derive(Debug, Serialize)]
struct LimitJson<'a> {
    name: &'a str,
    permits: u32,
    window_ms: u64,
    algorithm: &'static str,
    /// Absent: automatic.
    #[serde(skip_serializing_if = "Option::is_none")]
    resolution_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    burst: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_delay_ms: Option<u64>,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum CostJson {
    Fixed(Cost),
    From { from: String, min: Cost, max: Cost, default: Cost },
}

#[derive(Debug, Serialize)]
struct ExemptJson<'a> {
    methods: Vec<&'a str>,
    client_ip: Vec<String>,
    headers: Vec<&'a str>,
}

impl<'a> From<&'a Policy> for PolicyJson<'a> {
    fn from(policy: &'a Policy) -> Self {
        Self {
            name: policy.name(),
            limits: policy.limits().iter().map(Into::into).collect(),
            key: policy.key().iter().map(ToString::to_string).collect(),
            missing: missing_name(policy.missing()),
            cost: policy.cost().into(),
            count_denied: policy.counts_denied(),
            shadow: policy.is_shadow(),
            on_store_failure: on_store_failure_name(policy.on_store_failure()),
            failover: failover_name(policy.failover()),
            lease: lease_text(policy.lease()),
            shards: policy.shards(),
            exempt: policy.exempt().into(),
            overrides: policy.override_count(),
        }
    }
}

impl<'a> From<&'a NamedLimit> for LimitJson<'a> {
    fn from(named: &'a NamedLimit) -> Self {
        let (limit, algorithm) = (named.limit(), named.limit().algorithm());
        let (mut resolution_ms, mut burst, mut max_delay_ms) = (None, None, None);
        match algorithm {
            Algorithm::SlidingWindow { resolution } => {
                resolution_ms = resolution.map(|resolution| resolution.get());
            }
            Algorithm::TokenBucket { burst: permits } => burst = Some(permits),
            Algorithm::LeakyBucket { max_delay } => max_delay_ms = Some(max_delay.get()),
            _ => {}
        }
        Self {
            name: named.public_name(),
            permits: limit.permits(),
            window_ms: limit.window().get(),
            algorithm: algorithm.name(),
            resolution_ms,
            burst,
            max_delay_ms,
        }
    }
}

impl From<&CostSource> for CostJson {
    fn from(cost: &CostSource) -> Self {
        match cost {
            CostSource::Fixed(cost) => Self::Fixed(*cost),
            CostSource::From { template, min, max, default } => {
                Self::From { from: template.to_string(), min: *min, max: *max, default: *default }
            }
        }
    }
}

impl<'a> From<&'a Exempt> for ExemptJson<'a> {
    fn from(exempt: &'a Exempt) -> Self {
        Self {
            methods: exempt.methods.iter().map(http::Method::as_str).collect(),
            client_ip: exempt.client_ip.iter().map(ToString::to_string).collect(),
            headers: exempt.headers.iter().map(|(name, _)| name.as_str()).collect(),
        }
    }
}

/// The word for it in configurations.
pub(crate) const fn missing_name(missing: Missing) -> &'static str {
    match missing {
        Missing::Count => "count",
        Missing::Skip => "skip",
        Missing::Deny => "deny",
        Missing::ClientIp => "client_ip",
    }
}

/// The word for it in configurations.
pub(crate) const fn on_store_failure_name(failure: OnStoreFailure) -> &'static str {
    match failure {
        OnStoreFailure::Local => "local",
        OnStoreFailure::Allow => "allow",
        OnStoreFailure::Deny => "deny",
    }
}

/// The text for it in configurations.
pub(crate) fn lease_text(lease: Lease) -> String {
    match lease {
        Lease::None => "none".into(),
        Lease::Auto => "auto".into(),
        Lease::For(length) => length.to_string(),
    }
}

/// The word for it in configurations.
pub(crate) const fn failover_name(failover: Failover) -> &'static str {
    match failover {
        Failover::Exact => "exact",
        Failover::Fast => "fast",
    }
}
