//! What TLS connections trust and show: rustls with *ring*, whatever provider the rest of the process uses.
//!
//! The provider is given to each configuration and never installed for the process: a library must not decide
//! that for its user.

use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

use crate::store::redis::config::{RedisConfigError, Tls};

/// Certificates that have been read.
#[derive(Clone)]
pub(crate) struct Authenticated(Arc<ClientConfig>);

const AUTHORITY: &str = "the authority's certificate";
const CERTIFICATE: &str = "the client's certificate";
const KEY: &str = "the client's key";

impl Authenticated {
    /// Trusts the authorities that browsers trust, and shows no certificate.
    pub(crate) fn public() -> Result<Self, RedisConfigError> {
        Self::parse(&Tls::default())
    }

    pub(crate) fn parse(tls: &Tls) -> Result<Self, RedisConfigError> {
        let mut roots = RootCertStore::empty();
        match &tls.ca {
            None => roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
            Some(pem) => {
                for certificate in certificates(pem, AUTHORITY)? {
                    roots.add(certificate).map_err(|error| refuse(AUTHORITY, &error))?;
                }
            }
        }
        let client = match &tls.client {
            None => None,
            Some((pem, key)) => {
                // The error of a key says nothing of its contents, and is left out all the same.
                let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| RedisConfigError::Tls {
                    what: KEY,
                    problem: "is no private key in PEM (PKCS#8, PKCS#1 or SEC1)".to_owned(),
                })?;
                Some((certificates(pem, CERTIFICATE)?, key))
            }
        };
        Self::new(roots, client)
    }

    fn new(
        roots: RootCertStore,
        client: Option<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)>,
    ) -> Result<Self, RedisConfigError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| refuse(CERTIFICATE, &error))?
            .with_root_certificates(roots);
        let config = match client {
            None => config.with_no_client_auth(),
            Some((chain, key)) => {
                config.with_client_auth_cert(chain, key).map_err(|error| refuse(CERTIFICATE, &error))?
            }
        };
        Ok(Self(Arc::new(config)))
    }

    pub(super) fn client_config(&self) -> Arc<ClientConfig> {
        self.0.clone()
    }
}

fn certificates(pem: &[u8], what: &'static str) -> Result<Vec<CertificateDer<'static>>, RedisConfigError> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match all {
        Ok(all) if !all.is_empty() => Ok(all),
        _ => Err(RedisConfigError::Tls { what, problem: "is no certificate in PEM".to_owned() }),
    }
}

fn refuse(what: &'static str, error: &rustls::Error) -> RedisConfigError {
    RedisConfigError::Tls { what, problem: format!("is refused: {error}") }
}
