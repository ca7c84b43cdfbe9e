//! `store`: the embedded one, for now.

use slidegate::store::memory::MAX_KEYS_DEFAULT;

use super::Places;
use crate::config::fields::{Fields, Reader, did_you_mean};
use crate::config::model::StoreConfig;
use crate::config::schema;
use crate::config::yaml::Node;

/// Stores of a later version, by the scheme of their URL.
const LATER_SCHEMES: [&str; 5] = ["redis", "rediss", "redis+unix", "redis-sentinel", "redis-cluster"];

/// The most keys: about 20 GB at 200 bytes each. More belongs into a shared store.
const MAX_KEYS_MAX: u64 = 100_000_000;

/// Reads the section; without it, the embedded store of the default size.
pub(super) fn store(
    node: Option<&Node>,
    places: &mut Places,
    reader: &mut Reader<'_>,
) -> Option<StoreConfig> {
    let Some(node) = node else {
        return Some(StoreConfig { max_keys: MAX_KEYS_DEFAULT });
    };
    let fields = Fields::of(node, "store", &schema::STORE, reader)?;
    let url = fields.get("url").map_or(Some(()), |node| url(node, reader));
    for name in ["password_file", "tls", "timeout", "prefix", "hash_key_file", "instances", "ladder"] {
        fields.later(name, None, reader);
    }
    for (name, default) in [("retry", "none"), ("clock", "server"), ("on_slow_store", "lease")] {
        fields.later(name, Some(default), reader);
    }
    let max_keys = fields.get("max_keys").map_or(Some(MAX_KEYS_DEFAULT), |node| {
        places.max_keys = Some(node.at);
        let number = reader.int(node, "max_keys", 1..=MAX_KEYS_MAX)?;
        usize::try_from(number).ok()
    });
    url?;
    Some(StoreConfig { max_keys: max_keys? })
}

fn url(node: &Node, reader: &mut Reader<'_>) -> Option<()> {
    let help = "write url: memory";
    let scalar = reader.text(node, "url", help)?;
    if scalar.text == "memory" {
        return Some(());
    }
    let scheme = scalar.text.split_once("://").map(|(scheme, _)| scheme);
    match scheme {
        Some(scheme) if LATER_SCHEMES.contains(&scheme) => {
            reader.not_yet(node.at, &format!("a store at a {scheme}:// URL"), help);
        }
        Some(_) => {
            let message = "`url` names no store that is known".into();
            reader.unreadable(node, 0, "url", message, help);
        }
        None => {
            let near = did_you_mean(&scalar.text, ["memory"].iter());
            let message = format!("`url` can't be `{}`{near}", scalar.shown);
            reader.unreadable(node, 0, "url", message, help);
        }
    }
    None
}
