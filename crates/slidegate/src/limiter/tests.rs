//! The limiter over a memory store on a clock that stands still. What every store must do is in
//! `tests/conformance`; here is what the limiter makes of it.

use http::{HeaderMap, HeaderName, HeaderValue, Method};
use slidegate_core::limit::{Algorithm, Limit};
use slidegate_core::time::Millis;

use super::*;
use crate::facts::Client;
use crate::policy::{CostSource, Exempt, Missing, Pattern, PolicyBuilder};
use crate::testing::FakeClock;

mod checks;
mod refusals;
mod requests;
mod reservations;
mod secrets;
mod sharing;

type FakeStore = MemoryStore<Arc<FakeClock>>;
type FakeLimiter = Limiter<FakeStore>;

fn policy(name: &str, limits: &str) -> PolicyBuilder {
    Policy::builder(name).limits(limits).key("{client_ip}")
}

fn store() -> (Arc<FakeClock>, FakeStore) {
    let clock = Arc::new(FakeClock::default());
    (clock.clone(), MemoryStore::builder().max_keys(10_000).clock(clock).build())
}

fn limiter(policies: impl IntoIterator<Item = PolicyBuilder>) -> (Arc<FakeClock>, FakeLimiter) {
    let (clock, store) = store();
    let policies = policies.into_iter().map(|policy| policy.build().unwrap());
    (clock, Limiter::builder().policies(policies).store(store).build().unwrap())
}

async fn allows<S: Store>(limiter: &Limiter<S>, policy: &str, key: &str) -> bool {
    limiter.check(policy, &[key]).await.unwrap().is_allowed()
}

async fn count_allowed<S: Store>(limiter: &Limiter<S>, policy: &str, key: &str, tries: u32) -> u32 {
    let mut allowed = 0;
    for _ in 0..tries {
        allowed += u32::from(allows(limiter, policy, key).await);
    }
    allowed
}

/// Permits in use and left under each limit of a policy.
async fn used<S: Store>(limiter: &Limiter<S>, policy: &str, key: &str) -> Vec<(u32, u32)> {
    let peek = limiter.peek(policy, &[key]).await.unwrap();
    peek.limits().map(|state| (state.outcome.used, state.outcome.remaining)).collect()
}

fn names<'a>(states: impl Iterator<Item = crate::decision::LimitState<'a>>) -> Vec<&'a str> {
    states.map(|state| state.name).collect()
}

/// A request from a client, with headers.
struct Request {
    method: Method,
    headers: HeaderMap,
    client: Option<Client>,
}

impl Request {
    fn from(client: &str) -> Self {
        let address = client.parse().unwrap();
        Self {
            method: Method::GET,
            headers: HeaderMap::new(),
            client: Some(Client { address, prefix: if address.is_ipv4() { 32 } else { 64 } }),
        }
    }

    fn header(mut self, name: &'static str, value: &str) -> Self {
        self.headers.append(HeaderName::from_static(name), HeaderValue::from_str(value).unwrap());
        self
    }

    fn method(mut self, method: Method) -> Self {
        self.method = method;
        self
    }

    fn facts(&self) -> RequestFacts<'_> {
        RequestFacts {
            method: &self.method,
            headers: &self.headers,
            path: "/",
            query: None,
            host: None,
            route: None,
            path_params: &[],
            client: self.client,
        }
    }

    /// What a check of these policies comes to.
    async fn check(&self, limiter: &FakeLimiter, policies: &[&str]) -> Result<Decision, CheckError> {
        let policies: Vec<Arc<str>> = policies.iter().map(|name| Arc::from(*name)).collect();
        limiter.check_request(&policies, &self.facts()).await
    }

    /// Whether the policy `p` allows it.
    async fn passes(&self, limiter: &FakeLimiter) -> bool {
        self.check(limiter, &["p"]).await.unwrap().is_allowed()
    }
}
