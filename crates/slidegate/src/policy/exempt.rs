//! Who a policy does not apply to.

use http::{HeaderName, Method};
use ipnet::IpNet;
use subtle::ConstantTimeEq;

use crate::facts::RequestFacts;

/// Requests that pass a policy unseen: one match is enough.
#[derive(Clone, Default)]
pub struct Exempt {
    /// Methods.
    pub methods: Vec<Method>,
    /// Networks that the client's own address lies in.
    pub client_ip: Vec<IpNet>,
    /// Headers with exactly this value. Compared in constant time: the value may be a secret.
    pub headers: Vec<(HeaderName, Box<[u8]>)>,
}

/// Without the values of headers, which may be secrets.
impl std::fmt::Debug for Exempt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let headers: Vec<_> = self.headers.iter().map(|(name, _)| name).collect();
        f.debug_struct("Exempt")
            .field("methods", &self.methods)
            .field("client_ip", &self.client_ip)
            .field("headers", &headers)
            .finish()
    }
}

impl Exempt {
    /// Whether the request is exempt.
    pub fn matches(&self, facts: &RequestFacts<'_>) -> bool {
        self.methods.contains(facts.method)
            || facts
                .client
                .is_some_and(|client| self.client_ip.iter().any(|net| net.contains(&client.address)))
            || self.headers.iter().any(|(name, value)| {
                facts.headers.get_all(name).iter().any(|line| line.as_bytes().ct_eq(value).into())
            })
    }
}

#[cfg(test)]
mod tests;
