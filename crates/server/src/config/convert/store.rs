//! `store`: which one, and what hashes secrets; how a shared one is reached has a file of its own.
//!
//! Options of the other kind of store are read as well, so that they are checked, and said to have no use.

use slidegate::secret::SecretKey;
use slidegate::store::memory::MAX_KEYS_DEFAULT;
use slidegate::store::redis::{RedisConfig, RedisConfigError};

use super::{Places, outage, redis};
use crate::config::fields::{Fields, Reader, did_you_mean};
use crate::config::files::Files;
use crate::config::model::{StoreConfig, StoreKind};
use crate::config::schema;
use crate::config::source::Span;
use crate::config::yaml::{Node, Value};

/// The most keys: about 20 GB at 200 bytes each. More belongs into a shared store.
const MAX_KEYS_MAX: u64 = 100_000_000;

const URL_HELP: &str = "write memory, or a URL such as redis://127.0.0.1:6379";

/// What `url` says.
enum Url {
    Memory,
    Redis(Box<RedisConfig>),
}

/// Reads the section; without it, the embedded store of the default size.
pub(super) fn store(
    node: Option<&Node>,
    files: &Files<'_>,
    places: &mut Places,
    reader: &mut Reader<'_>,
) -> Option<StoreConfig> {
    let Some(node) = node else {
        return Some(StoreConfig::default());
    };
    let fields = Fields::of(node, "store", &schema::STORE, reader)?;
    let url = fields.get("url").map_or(Some(Url::Memory), |node| url(node, reader));
    let max_keys = fields.get("max_keys").map_or(Some(MAX_KEYS_DEFAULT), |node| {
        places.max_keys = Some(node.at);
        let number = reader.int(node, "max_keys", 1..=MAX_KEYS_MAX)?;
        usize::try_from(number).ok()
    });
    let options = redis::options(&fields, files, places, reader);
    let secret_key =
        fields.get("hash_key_file").map_or(Some(None), |node| hash_key(node, files, reader).map(Some));
    let outage = outage::options(&fields, places, reader);
    places.store_url = fields.get("url").map(|node| node.at);
    let kind = match (url?, max_keys?, options?, outage?) {
        (Url::Memory, max_keys, ..) => StoreKind::Memory { max_keys },
        (Url::Redis(config), _, options, outage) => {
            redis::with(outage.apply(*config), options, &fields, reader)?
        }
    };
    Some(StoreConfig { kind, secret_key: secret_key? })
}

fn url(node: &Node, reader: &mut Reader<'_>) -> Option<Url> {
    let scalar = reader.text(node, "url", URL_HELP)?;
    if scalar.text == "memory" {
        return Some(Url::Memory);
    }
    if !scalar.text.contains("://") {
        let near = did_you_mean(&scalar.text, ["memory"].iter());
        // A URL that lacks its beginning, perhaps.
        if scalar.text.contains([':', '@', '/']) {
            reader.secrets.push(node.at);
        }
        reader.unreadable(node, 0, "url", format!("`url` names no store{near}"), URL_HELP);
        return None;
    }
    match RedisConfig::parse(&scalar.text) {
        Ok(config) => Some(Url::Redis(Box::new(config))),
        Err(error) => {
            // Whoever wrote it wrong may have put a password anywhere.
            reader.secrets.push(behind_scheme(node));
            let (at, help) = match error {
                RedisConfigError::Url { at, write } => (at - 1, format!("write {write}")),
                other => (0, other.to_string()),
            };
            reader.unreadable(node, at, "url", "`url` can't be read from here on".into(), &help);
            None
        }
    }
}

/// Where a URL may hold secrets.
fn behind_scheme(node: &Node) -> Span {
    match &node.value {
        Value::Scalar(scalar) => {
            node.inside(scalar.text.find("://").map_or(0, |scheme| scheme + "://".len()))
        }
        _ => node.at,
    }
}

fn hash_key(node: &Node, files: &Files<'_>, reader: &mut Reader<'_>) -> Option<SecretKey> {
    let help = "name a file of random bytes, the same for all instances: `openssl rand -hex 32 > hash.key`";
    let scalar = reader.text(node, "hash_key_file", help)?;
    match files.key(&scalar.text) {
        Ok(key) => Some(SecretKey::new(&key)),
        Err(message) => {
            reader.unreadable(node, 0, "hash_key_file", message, help);
            None
        }
    }
}
