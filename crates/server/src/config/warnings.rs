//! What is dangerous about a configuration that is good: one function for each danger, each with the place,
//! why it matters and what to do. A warning is for what probably isn't meant, a remark (`info`) for what may
//! be meant and surprises.

use slidegate::Policy;
use slidegate::core::limit::{Algorithm, SLIDING_LOG_PERMITS_MAX};
use slidegate::core::time::Millis;
use slidegate::http::client_ip::Trust;
use slidegate::policy::{CostSource, Missing, OnStoreFailure, Template};

use super::convert::{PolicyPlaces, Read};
use super::model::{Route, StoreKind};
use super::report::{Finding, Severity};
use super::source::Span;

/// Fewer counters than this are used up by one client with a /48 of IPv6 addresses in no time.
const MAX_KEYS_FEW: usize = 10_000;

/// Above this, one key of a `sliding_log` takes more than a megabyte.
const SLIDING_LOG_LARGE: u32 = SLIDING_LOG_PERMITS_MAX / 100;

/// Windows longer than this rarely end before the process that counts them does.
const WINDOW_LONG: Millis = Millis(86_400_000);

/// How long the most impatient of those who ask a limiter wait.
const TIME_OF_PROXIES: Millis = Millis(20);

/// Longer waits are felt by people, and hold connections and memory of everything in between.
const TIME_OF_CLIENTS: Millis = Millis(1000);

type Danger = fn(&Read) -> Vec<Finding>;

const DANGERS: [Danger; 19] = [
    trusts_everyone,
    hops_trust_whoever_connects,
    clients_behind_a_proxy_share_an_address,
    addresses_grouped_into_one,
    few_keys,
    idle_options,
    slow_answers,
    denied_without_store,
    shadow,
    penalties,
    skipped_by_leaving_a_part_out,
    cost_may_be_nothing,
    cost_may_never_fit,
    exempts_everyone,
    limits_by_position,
    not_exact,
    long_windows,
    unused,
    routes,
];

/// Adds all warnings.
pub(super) fn add(read: &Read, findings: &mut Vec<Finding>) {
    findings.extend(DANGERS.iter().flat_map(|danger| danger(read)));
}

fn say(severity: Severity, at: Option<Span>, message: impl Into<String>, help: impl Into<String>) -> Finding {
    Finding { severity, at, message: message.into(), help: Some(help.into()) }
}

fn policies(read: &Read) -> impl Iterator<Item = (&Policy, &PolicyPlaces)> {
    read.config.policies.iter().zip(&read.places.policies)
}

fn listens_openly(read: &Read) -> bool {
    let gateway = read.config.gateway.as_ref();
    gateway.is_some_and(|gateway| !gateway.listen.ip().is_loopback())
}

fn by_client_ip(policy: &Policy) -> bool {
    policy.key().iter().any(Template::is_client_ip)
}

fn trusts_everyone(read: &Read) -> Vec<Finding> {
    let Trust::Proxies(nets) = &read.config.client_ip.trust else {
        return Vec::new();
    };
    let all = nets.iter().zip(&read.places.trusted_proxies).filter(|(net, _)| net.prefix_len() == 0);
    all.map(|(net, at)| {
        let message =
            format!("{net} trusts everyone: any client can say which address it has, and dodge its limits");
        say(Severity::Warning, Some(*at), message, "write the networks of your own proxies")
    })
    .collect()
}

fn hops_trust_whoever_connects(read: &Read) -> Vec<Finding> {
    let Trust::Hops(hops) = read.config.client_ip.trust else {
        return Vec::new();
    };
    if !listens_openly(read) {
        return Vec::new();
    }
    let message = format!(
        "with hops: {hops} whoever reaches the gateway past the proxies can say which address it has"
    );
    let help = "let only the proxies reach it, or write their addresses as trusted_proxies";
    vec![say(Severity::Info, read.places.hops, message, help)]
}

fn clients_behind_a_proxy_share_an_address(read: &Read) -> Vec<Finding> {
    let by_address = read.config.policies.iter().any(by_client_ip);
    if read.config.client_ip.trust != Trust::Nobody || !by_address || !listens_openly(read) {
        return Vec::new();
    }
    let message =
        "no proxy is trusted: if the gateway stands behind one, all its clients are one to {client_ip}";
    let help = "behind a proxy, write client_ip: {trusted_proxies: [...]} with its addresses";
    vec![say(Severity::Info, read.places.gateway_listen, message, help)]
}

fn addresses_grouped_into_one(read: &Read) -> Vec<Finding> {
    let rule = &read.config.client_ip;
    [
        ("IPv4", rule.ipv4_prefix, read.places.ipv4_prefix, 32),
        ("IPv6", rule.ipv6_prefix, read.places.ipv6_prefix, 64),
    ]
    .into_iter()
    .filter(|(_, prefix, ..)| *prefix == 0)
    .map(|(family, _, at, usual)| {
        let message = format!("a prefix of 0 makes one client of all {family} addresses");
        say(Severity::Warning, at, message, format!("write {usual}"))
    })
    .collect()
}

fn few_keys(read: &Read) -> Vec<Finding> {
    let StoreKind::Memory { max_keys: max_keys @ ..MAX_KEYS_FEW } = read.config.store.kind else {
        return Vec::new();
    };
    let message = format!("with {max_keys} counters, a few clients can crowd out the others");
    let help = "leave max_keys out (1000000) unless memory is very short";
    vec![say(Severity::Warning, read.places.max_keys, message, help)]
}

/// Options of the other kind of store.
fn idle_options(read: &Read) -> Vec<Finding> {
    let of_memory: Vec<_> = read.places.max_keys.map(|at| ("max_keys", at)).into_iter().collect();
    let (idle, why) = match read.config.store.kind {
        StoreKind::Memory { .. } => (&read.places.of_shared_store, "counters are kept in memory"),
        StoreKind::Redis { .. } => (&of_memory, "the server's maxmemory bounds what Redis holds"),
    };
    idle.iter()
        .map(|(name, at)| {
            let message = format!("`{name}` has no use: {why}");
            say(Severity::Warning, Some(*at), message, "leave it out, or name the other store as `url`")
        })
        .collect()
}

/// While the store is silent, each request waits for as long as a check may take.
fn slow_answers(read: &Read) -> Vec<Finding> {
    let StoreKind::Redis { time, .. } = read.config.store.kind else {
        return Vec::new();
    };
    if time <= TIME_OF_PROXIES {
        return Vec::new();
    }
    let (severity, why) = if time <= TIME_OF_CLIENTS {
        (Severity::Info, "Envoy, unless told otherwise, gives up after 20ms")
    } else {
        (Severity::Warning, "while the store is silent, they pile up")
    };
    let message = format!("requests may wait {time} for the store: {why}");
    vec![say(severity, read.places.timeout, message, "write timeout: 10ms unless the store is far away")]
}

/// Nobody tells an instance that starts while the store is away how many there are.
fn denied_without_store(read: &Read) -> Vec<Finding> {
    let StoreKind::Redis { config, .. } = &read.config.store.kind else {
        return Vec::new();
    };
    if config.has_instances() {
        return Vec::new();
    }
    let sharing = policies(read)
        .filter(|(policy, _)| policy.on_store_failure() == OnStoreFailure::Local && !policy.is_shadow());
    let names: Vec<&str> = sharing.map(|(policy, _)| &**policy.name()).collect();
    let whose = match names.as_slice() {
        [] => return Vec::new(),
        [one] => format!("policy `{one}` denies"),
        [first, more @ ..] => format!("policy `{first}` and {} more deny", more.len()),
    };
    let message = format!("on an instance that starts while the store is away, {whose} everything");
    let help = "write instances: N, how many share the store, so that each knows its share";
    vec![say(Severity::Info, read.places.store_url, message, help)]
}

fn shadow(read: &Read) -> Vec<Finding> {
    let shadows = policies(read).filter(|(policy, _)| policy.is_shadow());
    shadows
        .map(|(policy, places)| {
            let message = format!("policy `{}` is a shadow: it counts and denies nothing", policy.name());
            say(Severity::Warning, places.shadow, message, "write shadow: false to enforce it")
        })
        .collect()
}

fn penalties(read: &Read) -> Vec<Finding> {
    let penal = policies(read).filter(|(policy, _)| policy.counts_denied());
    penal
        .map(|(policy, places)| {
            let message = format!(
                "a client that policy `{}` denies stays out as long as it keeps trying",
                policy.name()
            );
            let help = "right against guessing; else write count_denied: false";
            say(Severity::Info, places.count_denied, message, help)
        })
        .collect()
}

fn skipped_by_leaving_a_part_out(read: &Read) -> Vec<Finding> {
    let skipping = policies(read).filter(|(policy, _)| policy.missing() == Missing::Skip);
    skipping
        .filter_map(|(policy, places)| {
            let part = policy.key().iter().find(|part| part.is_client_chosen())?;
            let message = format!("a client dodges policy `{}` by leaving {part} out", policy.name());
            let help =
                "write missing: count, deny or client_ip, unless something before this demands the part";
            Some(say(Severity::Warning, places.missing, message, help))
        })
        .collect()
}

fn cost_may_be_nothing(read: &Read) -> Vec<Finding> {
    let free = policies(read).filter(|(policy, _)| matches!(policy.cost(), CostSource::From { min: 0, .. }));
    free.map(|(policy, places)| {
        let message = format!("a request that says it costs 0 passes policy `{}` uncounted", policy.name());
        say(Severity::Warning, places.cost, message, "write min: 1")
    })
    .collect()
}

fn cost_may_never_fit(read: &Read) -> Vec<Finding> {
    let dear = policies(read).filter_map(|(policy, places)| {
        let CostSource::From { max, .. } = policy.cost() else { return None };
        let limits = policy.limits().iter().filter(|limit| limit.limit().permits() > 0);
        let tightest = limits.min_by_key(|limit| limit.limit().capacity())?;
        let capacity = tightest.limit().capacity();
        let message = format!(
            "a request of policy `{}` may cost {max}, and limit {} holds {capacity}: above that it never passes",
            policy.name(),
            tightest.public_name()
        );
        let help = format!("write max: {capacity}, or a higher limit");
        (*max > capacity).then(|| say(Severity::Warning, places.cost, message, help))
    });
    dear.collect()
}

fn exempts_everyone(read: &Read) -> Vec<Finding> {
    let exempting = policies(read).filter_map(|(policy, places)| {
        let all = policy.exempt().client_ip.iter().find(|net| net.prefix_len() == 0)?;
        let message =
            format!("policy `{}` exempts everyone in {all}, so it limits nobody there", policy.name());
        Some(say(Severity::Warning, places.exempt, message, "write the networks that are really meant"))
    });
    exempting.collect()
}

fn limits_by_position(read: &Read) -> Vec<Finding> {
    let several = policies(read).filter(|(policy, _)| policy.limits().len() > 1);
    several
        .filter_map(|(policy, places)| {
            // An unnamed limit goes by its position in the store.
            let (index, _) = policy
                .limits()
                .iter()
                .enumerate()
                .find(|(index, limit)| limit.store_name() == (index + 1).to_string())?;
            let message = format!(
                "unnamed limits of policy `{}` go by their position: reordering them swaps their counters",
                policy.name()
            );
            let help =
                "give each a name, as in {name: burst, permits: 100, window: 10s}, before you reorder them";
            Some(say(Severity::Info, places.limits.get(index).copied(), message, help))
        })
        .collect()
}

fn not_exact(read: &Read) -> Vec<Finding> {
    let limits = policies(read).flat_map(|(policy, places)| policy.limits().iter().zip(&places.limits));
    limits
        .filter_map(|(named, at)| {
            let limit = named.limit();
            let (permits, window) = (u64::from(limit.permits()), limit.window());
            let (severity, message, help) = match limit.algorithm() {
                Algorithm::FixedWindow if permits > 0 => (
                    Severity::Info,
                    format!(
                        "fixed_window lets up to {} pass within {window} around the end of a window, twice {permits}",
                        2 * permits
                    ),
                    "for never more than the permits, write sliding_window",
                ),
                Algorithm::TokenBucket { burst } if permits > 0 => (
                    Severity::Info,
                    format!(
                        "token_bucket lets up to {} pass within {window}: a burst of {burst} and {permits} refilled",
                        u64::from(burst) + permits
                    ),
                    "for never more than the permits, write sliding_window",
                ),
                Algorithm::SlidingLog if limit.permits() > SLIDING_LOG_LARGE => (
                    Severity::Warning,
                    format!("sliding_log keeps an entry for each of {permits} permits, for every key"),
                    "write sliding_window: as exact, and small",
                ),
                _ => return None,
            };
            Some(say(severity, Some(*at), message, help))
        })
        .collect()
}

/// Counters of the embedded store end with the process.
fn long_windows(read: &Read) -> Vec<Finding> {
    if matches!(read.config.store.kind, StoreKind::Redis { .. }) {
        return Vec::new();
    }
    let limits = policies(read).flat_map(|(policy, places)| policy.limits().iter().zip(&places.limits));
    limits
        .filter(|(named, _)| named.limit().window() > WINDOW_LONG)
        .map(|(named, at)| {
            let window = named.limit().window();
            let message =
                format!("a window of {window} starts afresh with each restart: counters are kept in memory");
            say(Severity::Info, Some(*at), message, "keep quotas of this length where they outlast a restart")
        })
        .collect()
}

fn unused(read: &Read) -> Vec<Finding> {
    let routes = read.config.gateway.iter().flat_map(|gateway| &gateway.routes);
    let used: Vec<&str> = routes.flat_map(|route| &route.policies).map(|name| &**name).collect();
    let (severity, hint) = if read.config.api.is_some() {
        (Severity::Info, "only the API can ask for it")
    } else {
        (Severity::Warning, "it limits nothing")
    };
    policies(read)
        .filter(|(policy, _)| !used.contains(&&**policy.name()))
        .map(|(policy, places)| {
            let message = format!("no route names policy `{}`: {hint}", policy.name());
            say(severity, Some(places.name), message, "name it in the `policies` of a route, or remove it")
        })
        .collect()
}

fn routes(read: &Read) -> Vec<Finding> {
    let Some(gateway) = &read.config.gateway else {
        return Vec::new();
    };
    let placed = gateway.routes.iter().zip(&read.places.routes);
    placed.filter_map(|(route, at)| route_danger(read, route, *at)).collect()
}

fn route_danger(read: &Read, route: &Route, at: Span) -> Option<Finding> {
    if route.policies.is_empty() {
        let help = "write policies: [NAME], unless that is meant";
        return Some(say(Severity::Info, Some(at), "this route has no policies: it is not limited", help));
    }
    // With a new value in each request, a client gets a new counter in each request.
    let any_host = route.host.as_deref().is_none_or(|host| host.starts_with("*."));
    let chosen = |name: &str| {
        let policy = read.config.policies.iter().find(|policy| &**policy.name() == name)?;
        policy.key().iter().find(|part| part.is_client_chosen() || (any_host && part.is_host()))
    };
    let parts: Vec<&Template> = route.policies.iter().map(|name| chosen(name)).collect::<Option<_>>()?;
    let message = format!(
        "every limit of this route has a key that clients choose: who sends another {} each time has no limit",
        parts.first()?
    );
    let help = "add a policy by {client_ip} or for the whole route, unless such values are checked before";
    Some(say(Severity::Info, Some(at), message, help))
}
