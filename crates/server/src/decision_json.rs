//! A decision as JSON, the same on every door: what the API answers, and what the command line reads.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use slidegate::Decision;

use crate::doors::question::Form;

/// A decision. Times are whole milliseconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DecisionJson<'a> {
    pub(crate) allowed: bool,
    /// The policy, when one was asked by its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) policy: Option<Cow<'a, str>>,
    /// The policies, when a list was asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) policies: Option<Vec<Cow<'a, str>>>,
    /// Who answered: `normal`, `cached` and `leased` are exact, all others are degraded.
    pub(crate) mode: Cow<'a, str>,
    /// Whether a shadow policy would have denied it.
    pub(crate) shadow: bool,
    pub(crate) limits: Vec<LimitJson<'a>>,
    /// The names of the limits that denied it.
    pub(crate) violated: Vec<Cow<'a, str>>,
    /// Denied only: when this cost fits. `null` when allowed, when no wait would help, and when nobody knows.
    pub(crate) retry_after_ms: Option<u64>,
    /// Allowed by a `leaky_bucket`: how long to wait before going on.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) delay_ms: u64,
    /// The id to commit or refund, when something was reserved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reservation: Option<String>,
}

/// What a check found and left at one limit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LimitJson<'a> {
    /// Whose limit it is, when a list of policies was asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) policy: Option<Cow<'a, str>>,
    pub(crate) name: Cow<'a, str>,
    pub(crate) limit: u32,
    /// `null` like the next two where nobody counted: the store is away, or full.
    pub(crate) used: Option<u32>,
    pub(crate) remaining: Option<u32>,
    /// Until any more quota appears; 0 when nothing is used.
    pub(crate) reset_after_ms: Option<u64>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
const fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl<'a> DecisionJson<'a> {
    /// A decision about a question of this form.
    pub(crate) fn new(decision: &'a Decision, form: Form) -> Self {
        let many = form == Form::Many;
        let mut policies = decision.policies().map(|policy| Cow::Borrowed(&**policy.name()));
        let (policy, policies) =
            if many { (None, Some(policies.collect())) } else { (policies.next(), None) };
        let limits = decision.limits().map(|state| {
            let counted = decision.is_counted(&state);
            LimitJson {
                policy: many.then(|| Cow::Borrowed(&**state.policy.name())),
                name: state.name.into(),
                limit: state.outcome.limit,
                used: counted.then_some(state.outcome.used),
                remaining: counted.then_some(state.outcome.remaining),
                reset_after_ms: counted.then_some(state.outcome.reset_after.get()),
            }
        });
        Self {
            allowed: decision.is_allowed(),
            policy,
            policies,
            mode: decision.mode().name().into(),
            shadow: decision.is_shadow_denied(),
            limits: limits.collect(),
            violated: decision.violated().map(|state| state.name.into()).collect(),
            retry_after_ms: decision.retry_after().map(|wait| wait.get()),
            delay_ms: decision.delay().get(),
            reservation: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use slidegate::core::limit::{Algorithm, parse_limit};
    use slidegate::core::time::Millis;
    use slidegate::testing::FakeClock;
    use slidegate::{Ask, Limiter, MemoryStore, Policy};

    use super::*;

    fn limiter() -> (Arc<FakeClock>, Limiter<MemoryStore<Arc<FakeClock>>>) {
        let clock = Arc::new(FakeClock::default());
        let limit = |text: &str| parse_limit(text).unwrap();
        let queue = limit("1/1s").with_algorithm(Algorithm::LeakyBucket { max_delay: Millis(60_000) });
        let policies = [
            Policy::builder("per-user").limit(Some("burst"), limit("100/10s")).key("{client_ip}"),
            Policy::builder("global").limits("3/1m; 5/1h"),
            Policy::builder("queue").limit(None, queue.unwrap()),
        ];
        let policies = policies.map(|policy| policy.build().unwrap());
        let store = MemoryStore::builder().max_keys(1000).clock(clock.clone()).build();
        (clock, Limiter::builder().policies(policies).store(store).build().unwrap())
    }

    fn text(decision: &Decision, form: Form) -> String {
        serde_json::to_string(&DecisionJson::new(decision, form)).unwrap()
    }

    #[tokio::test]
    async fn one_policy_reads_as_documented() {
        let (_, limiter) = limiter();
        let decision = limiter.check("per-user", &["203.0.113.7"]).await.unwrap();
        assert_eq!(
            text(&decision, Form::One),
            r#"{"allowed":true,"policy":"per-user","mode":"normal","shadow":false,"limits":[{"name":"burst","limit":100,"used":1,"remaining":99,"reset_after_ms":10000}],"violated":[],"retry_after_ms":null}"#
        );
    }

    #[tokio::test]
    async fn several_policies_say_whose_each_limit_is() {
        let (clock, limiter) = limiter();
        let asks = [Ask::new("per-user", &["203.0.113.7"]).cost(2), Ask::new("global", &[]).cost(3)];
        assert!(limiter.check_all(&asks).await.unwrap().is_allowed());
        clock.advance(std::time::Duration::from_millis(1_500));
        let denied = limiter.check_all(&asks).await.unwrap();
        assert_eq!(
            text(&denied, Form::Many),
            r#"{"allowed":false,"policies":["per-user","global"],"mode":"normal","shadow":false,"limits":[{"policy":"per-user","name":"burst","limit":100,"used":2,"remaining":98,"reset_after_ms":8500},{"policy":"global","name":"global-1","limit":3,"used":3,"remaining":0,"reset_after_ms":58500},{"policy":"global","name":"global-2","limit":5,"used":3,"remaining":2,"reset_after_ms":3598500}],"violated":["global-1","global-2"],"retry_after_ms":3598500}"#
        );
    }

    #[tokio::test]
    async fn only_a_delay_that_there_is_is_told() {
        let (_, limiter) = limiter();
        let mut delays = Vec::new();
        for _ in 0..3 {
            let json = text(&limiter.check("queue", &[]).await.unwrap(), Form::One);
            let at = json.find(r#","delay_ms":"#);
            delays.push(at.map_or("", |at| &json[at..]).to_owned());
        }
        assert_eq!(delays, ["", r#","delay_ms":1000}"#, r#","delay_ms":2000}"#]);
    }

    #[tokio::test]
    async fn what_is_written_can_be_read_again() {
        let (_, limiter) = limiter();
        for (policy, key, form) in [("per-user", &["a"][..], Form::One), ("global", &[], Form::Many)] {
            let decision = limiter.check(policy, key).await.unwrap();
            let written = DecisionJson::new(&decision, form);
            let text = serde_json::to_string(&written).unwrap();
            assert_eq!(serde_json::from_str::<DecisionJson<'_>>(&text).unwrap(), written);
        }
    }
}
