//! `store` with a URL: how Redis or Valkey is reached and asked, beside what the URL itself says.

use slidegate::core::time::Millis;
use slidegate::store::redis::{RedisConfig, RedisConfigError, Retry, Tls};

use super::Places;
use crate::config::fields::{Fields, Reader};
use crate::config::files::Files;
use crate::config::model::StoreKind;
use crate::config::schema;
use crate::config::source::Span;
use crate::config::yaml::{Node, Value};

/// A check's whole time with the store, unless written: Envoy gives a rate limit service 20 ms.
const TIMEOUT: Millis = Millis(10);
const TIMEOUT_MAX: Millis = Millis(60_000);

const TLS_HELP: &str = "write a mapping such as {ca: ca.pem}, or {ca: ca.pem, cert: cert.pem, key: key.pem}";

/// The fields beside the URL, read.
pub(super) struct Options {
    password: Option<String>,
    tls: Option<Tls>,
    timeout: Option<Millis>,
    retry: Option<Retry>,
}

/// Reads the fields, whatever the URL says. `places` learns of those that mean something to a shared store only.
pub(super) fn options(
    fields: &Fields<'_>,
    files: &Files<'_>,
    places: &mut Places,
    reader: &mut Reader<'_>,
) -> Option<Options> {
    let password = fields.get("password_file").map_or(Some(None), |node| {
        let help = "name a file that holds the password and nothing else";
        let path = &reader.text(node, "password_file", help)?.text;
        let password = files.password(path);
        password.map_err(|message| reader.unreadable(node, 0, "password_file", message, help)).ok().map(Some)
    });
    let tls = fields.get("tls").map_or(Some(None), |node| tls(node, files, reader).map(Some));
    let timeout = fields
        .get("timeout")
        .map_or(Some(None), |node| reader.duration(node, "timeout", Millis(1)..=TIMEOUT_MAX).map(Some));
    let retry = fields.get("retry").map_or(Some(None), |node| retry(node, reader));
    for name in ["password_file", "tls", "timeout", "retry", "prefix"] {
        let idle = name == "retry" && matches!(retry, Some(None));
        places.of_shared_store.extend(fields.get(name).filter(|_| !idle).map(|node| (name, node.at)));
    }
    places.timeout = fields.get("retry").or(fields.get("timeout")).map(|node| node.at);
    Some(Options { password: password?, tls: tls?, timeout: timeout?, retry: retry? })
}

/// The store at this URL with these options, as far as they go together. Each is tried whatever became of the
/// others, so that one run finds all faults.
pub(super) fn with(
    mut config: RedisConfig,
    options: Options,
    fields: &Fields<'_>,
    reader: &mut Reader<'_>,
) -> Option<StoreKind> {
    let mut good = true;
    let mut take = |config: &mut RedisConfig, tried: Option<RedisConfig>| match tried {
        Some(tried) => *config = tried,
        None => good = false,
    };
    let tried = with_password(config.clone(), options.password, fields, reader);
    take(&mut config, tried);
    if let (Some(tls), Some(node)) = (&options.tls, fields.get("tls")) {
        let tried = with_certificates(config.clone(), tls, node, reader);
        take(&mut config, tried);
    }
    if let Some(node) = fields.get("prefix") {
        let tried = with_prefix(config.clone(), node, reader);
        take(&mut config, tried);
    }
    let timeout = options.timeout.unwrap_or(TIMEOUT);
    let time = options.retry.map_or(timeout, |retry| retry.budget.max(timeout));
    let config = Box::new(config.timeout(timeout).retry(options.retry));
    good.then_some(StoreKind::Redis { config, time })
}

/// One password in all, and one for a user that is named.
fn with_password(
    config: RedisConfig,
    password: Option<String>,
    fields: &Fields<'_>,
    reader: &mut Reader<'_>,
) -> Option<RedisConfig> {
    let fault = match (&password, config.has_password()) {
        (Some(_), true) => (
            "password_file",
            "the URL has a password already, and `password_file` is another",
            "leave one of them out",
        ),
        (None, false) if config.has_username() => (
            "url",
            "the URL names a user and no password",
            "write password_file: FILE, or user:${REDIS_PASSWORD}@ in the URL",
        ),
        _ => return Some(password.into_iter().fold(config, RedisConfig::password)),
    };
    let (field, message, help) = fault;
    let at = fields.get(field).map_or(fields.at, |node| node.at);
    reader.error(at, message, help);
    None
}

/// Certificates one after another, so that each fault has its place.
fn with_certificates(
    config: RedisConfig,
    tls: &Tls,
    node: &Node,
    reader: &mut Reader<'_>,
) -> Option<RedisConfig> {
    let authority = Tls { ca: tls.ca.clone(), client: None };
    let fault = match config.clone().tls(authority) {
        Ok(_) => match config.tls(tls.clone()) {
            Ok(config) => return Some(config),
            Err(error) => (place_of(if is_of_key(&error) { "key" } else { "cert" }, node), error),
        },
        Err(error @ RedisConfigError::TlsUnused) => (node.at, error),
        Err(error) => (place_of("ca", node), error),
    };
    let help = match fault.1 {
        RedisConfigError::TlsUnused => "write rediss in place of redis in the URL, or leave `tls` out",
        _ => "name a PEM file: it begins with -----BEGIN",
    };
    let message = match fault.1 {
        RedisConfigError::TlsUnused => "certificates are given, and the URL speaks no TLS".to_owned(),
        error => error.to_string(),
    };
    reader.error(fault.0, message, help);
    None
}

fn is_of_key(error: &RedisConfigError) -> bool {
    matches!(error, RedisConfigError::Tls { what, .. } if what.ends_with("key"))
}

fn place_of(name: &str, node: &Node) -> Span {
    let Value::Map(entries) = &node.value else { return node.at };
    entries.iter().find(|(found, _)| found.text == name).map_or(node.at, |(_, value)| value.at)
}

fn with_prefix(config: RedisConfig, node: &Node, reader: &mut Reader<'_>) -> Option<RedisConfig> {
    let help = "write 1 to 32 printable ASCII characters without spaces and braces, such as sg";
    let scalar = reader.text(node, "prefix", help)?;
    let (at, message) = match config.prefix(&scalar.text) {
        Ok(config) => return Some(config),
        Err(RedisConfigError::PrefixByte { at }) => (at - 1, "this can't be in a `prefix`".to_owned()),
        Err(error) => (0, error.to_string()),
    };
    reader.unreadable(node, at, "prefix", message, help);
    None
}

fn tls(node: &Node, files: &Files<'_>, reader: &mut Reader<'_>) -> Option<Tls> {
    let fields = Fields::of(node, "tls", &schema::TLS, reader)?;
    let mut file = |name: &str| {
        fields.get(name).map_or(Some(None), |node| {
            let help = "name a PEM file";
            let path = &reader.text(node, name, help)?.text;
            files
                .bytes(path)
                .map_err(|message| reader.unreadable(node, 0, name, message, help))
                .ok()
                .map(Some)
        })
    };
    let (ca, cert, key) = (file("ca"), file("cert"), file("key"));
    let client = match (cert?, key?) {
        (Some(cert), Some(key)) => Some((cert, key)),
        (None, None) => None,
        (cert, _) => {
            let lacks = if cert.is_some() { "key" } else { "cert" };
            let message = format!("`tls` lacks `{lacks}`: a certificate and its key go together");
            reader.error(fields.head(reader.source), message, TLS_HELP);
            return None;
        }
    };
    Some(Tls { ca: ca?, client })
}

fn retry(node: &Node, reader: &mut Reader<'_>) -> Option<Option<Retry>> {
    let help = "write none, or a mapping such as {after: 50ms, budget: 80ms}";
    if !matches!(node.value, Value::Map(_)) {
        let scalar = reader.text(node, "retry", help)?;
        if scalar.text == "none" {
            return Some(None);
        }
        reader.unreadable(node, 0, "retry", format!("`retry` can't be `{}`", scalar.shown), help);
        return None;
    }
    let fields = Fields::of(node, "retry", &schema::RETRY, reader)?;
    let mut duration = |name: &str, example: &str| {
        let node = fields.require(name, example, reader)?;
        reader.duration(node, name, Millis(1)..=TIMEOUT_MAX)
    };
    let after = duration("after", "write after: 50ms, how long the first try may take");
    let budget = duration("budget", "write budget: 80ms, how long all tries may take");
    let (after, budget) = (after?, budget?);
    if after >= budget {
        let message = format!("a first try of {after} leaves no time for a second in {budget}");
        reader.error(fields.head(reader.source), message, "write an `after` below the `budget`");
        return None;
    }
    Some(Some(Retry { after, budget }))
}
