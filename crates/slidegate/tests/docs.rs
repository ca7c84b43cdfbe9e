//! docs/http.md says what the code does: each row of its tables, and each answer that it shows.
#![expect(clippy::unwrap_used, reason = "all of this is tests")]

use std::net::IpAddr;
use std::sync::Arc;

use http::{HeaderMap, HeaderName, HeaderValue, Method, Response};
use serde_json::Value;
use slidegate::core::limit::{Algorithm, parse_limit};
use slidegate::http::answer::{NeverIs, denied, refused};
use slidegate::http::client_ip::{ClientIpRule, Trust};
use slidegate::http::path::{PathRules, normalize};
use slidegate::http::{AnswerOptions, Legacy, fields};
use slidegate::policy::{Missing, PolicyBuilder, Template};
use slidegate::store::memory::RESERVATIONS_MAX;
use slidegate::store::redis::{RedisConfig, RedisStore};
use slidegate::testing::FakeClock;
use slidegate::{Ask, CheckError, Limiter, MemoryStore, Mode, Policy, RequestFacts, StoreError};

const DOCS: &str = include_str!("../../../docs/http.md");

/// When the fake clock starts.
const NOW_EPOCH_SECS: u64 = 1_767_225_600;

/// The cells of the table whose head is `head`, row by row.
fn table(head: &str) -> Vec<Vec<&'static str>> {
    let (_, after) = DOCS.split_once(&format!("\n{head}\n|--")).unwrap_or_else(|| panic!("no table {head}"));
    let rows = after.lines().skip(1).take_while(|line| line.starts_with('|'));
    let rows: Vec<Vec<_>> =
        rows.map(|row| row.trim_matches('|').split('|').map(|cell| cell.trim()).collect()).collect();
    assert!(rows.len() > 1, "{head} has no rows");
    rows
}

/// What stands in backquotes.
fn spans(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

fn span(cell: &'static str) -> &'static str {
    match cell.strip_prefix('`').and_then(|cell| cell.strip_suffix('`')) {
        Some(text) => text,
        None => panic!("{cell} is not in backquotes"),
    }
}

fn limiter(policy: PolicyBuilder, max_keys: usize) -> Limiter<MemoryStore<Arc<FakeClock>>> {
    let store = MemoryStore::builder().max_keys(max_keys).clock(Arc::new(FakeClock::default())).build();
    Limiter::builder().policy(policy.build().unwrap()).store(store).build().unwrap()
}

fn name(text: &str) -> HeaderName {
    text.parse().unwrap()
}

#[test]
fn spellings_mean_the_paths_of_the_table() {
    for row in table("| spelling | path |") {
        let normal = normalize(span(row[0]), &PathRules::default());
        match row[1] {
            "400" => assert!(normal.is_err(), "{row:?}"),
            path => assert_eq!(normal.unwrap(), span(path), "{row:?}"),
        }
    }
}

#[test]
fn clients_are_those_of_the_table() {
    for row in table("| configured | header | peer | its lines | client |") {
        let trust = match (row[0], row[0].strip_prefix("hops ")) {
            ("nobody", _) => Trust::Nobody,
            (_, Some(hops)) => Trust::Hops(hops.parse().unwrap()),
            (network, None) => Trust::Proxies(vec![span(network).parse().unwrap()]),
        };
        let rule = ClientIpRule { trust, header: name(row[1]), ..ClientIpRule::default() };
        let mut headers = HeaderMap::new();
        for line in spans(row[3]) {
            headers.append(&rule.header, HeaderValue::from_static(line));
        }
        let peer: IpAddr = span(row[2]).parse().unwrap();
        assert_eq!(rule.find(Some(peer), &headers).client.unwrap().to_string(), span(row[4]), "{row:?}");
    }
}

#[test]
fn templates_have_the_values_of_the_table() {
    for row in table("| template | of | is |") {
        let template: Template = span(row[0]).parse().unwrap();
        let (mut headers, mut target) = (HeaderMap::new(), "/");
        for part in spans(row[1]) {
            match part.split_once(':') {
                Some((field, value)) => {
                    headers.append(name(field), HeaderValue::from_static(value.trim()));
                }
                None => target = part,
            }
        }
        let (path, query) =
            target.split_once('?').map_or((target, None), |(path, query)| (path, Some(query)));
        let path = normalize(path, &PathRules::default()).unwrap();
        let host = headers.get("host").and_then(|host| host.to_str().ok()?.split(':').next());
        let facts = RequestFacts {
            method: &Method::GET,
            headers: &headers,
            path: &path,
            query,
            host,
            route: None,
            path_params: &[],
            client: None,
        };
        let value = template.resolve(&facts).map(|value| String::from_utf8(value.into_owned()).unwrap());
        let expected = match row[2] {
            "missing" => None,
            "empty" => Some(String::new()),
            text => Some(span(text).to_owned()),
        };
        assert_eq!(value, expected, "{row:?}");
    }
}

#[tokio::test]
async fn fields_are_those_of_the_table() {
    for row in table("| limits | algorithm | cost | `RateLimit-Policy` | `RateLimit` |") {
        let policy = match row[1].strip_prefix("token_bucket, burst ") {
            Some(burst) => {
                let algorithm = Algorithm::TokenBucket { burst: burst.parse().unwrap() };
                let limit = parse_limit(span(row[0])).unwrap().with_algorithm(algorithm).unwrap();
                Policy::builder("api").limit(None, limit)
            }
            None => Policy::builder("api").limits(span(row[0])),
        };
        let ask = Ask::new("api", &[]).cost(row[2].parse().unwrap());
        let decision = limiter(policy, 1000).check_all(&[ask]).await.unwrap();
        let mut headers = HeaderMap::new();
        fields::apply(&decision, AnswerOptions::default(), NOW_EPOCH_SECS, &mut headers);
        assert_eq!(headers["ratelimit-policy"], span(row[3]), "{row:?}");
        assert_eq!(headers["ratelimit"], span(row[4]), "{row:?}");
    }
}

#[tokio::test]
async fn legacy_fields_are_those_of_the_table() {
    let head = "| legacy | `X-RateLimit-Limit` | `X-RateLimit-Remaining` | `X-RateLimit-Reset` |";
    for row in table(head) {
        let legacy = if row[0] == "delta" { Legacy::Delta } else { Legacy::Epoch };
        let limiter = limiter(Policy::builder("api").limits("5/10s"), 1000);
        let decision = limiter.check("api", &[]).await.unwrap();
        let mut headers = HeaderMap::new();
        fields::apply(&decision, AnswerOptions { legacy, mode: false }, NOW_EPOCH_SECS, &mut headers);
        for (field, told) in ["limit", "remaining", "reset"].iter().zip(&row[1..]) {
            assert_eq!(headers[format!("x-ratelimit-{field}")], *told, "{row:?}");
        }
    }
}

#[test]
fn every_mode_is_told() {
    let mut told: Vec<&str> = table("| mode | |").iter().map(|row| span(row[0])).collect();
    let mut modes = Mode::ALL.map(Mode::name);
    told.sort_unstable();
    modes.sort_unstable();
    assert_eq!(told, modes);
}

/// A shown answer: its status line and fields, sorted, and its body.
type Parts = (Vec<String>, Value);

fn shown() -> Vec<Parts> {
    let blocks = DOCS.split("```http\n").skip(1).map(|rest| rest.split_once("\n```").unwrap().0);
    blocks
        .map(|block| {
            let (head, body) = block.split_once("\n\n").unwrap();
            let mut head: Vec<String> = head.lines().map(String::from).collect();
            head.sort();
            (head, serde_json::from_str(body).unwrap())
        })
        .collect()
}

fn parts(answer: &Response<String>) -> Parts {
    let fields = answer.headers().iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()));
    let mut head: Vec<String> = fields.chain([format!("HTTP/1.1 {}", answer.status())]).collect();
    head.sort();
    (head, serde_json::from_str(answer.body()).unwrap())
}

/// The answer to the first check that is denied, with a key for each of `keys` in turn.
async fn denial(policy: PolicyBuilder, max_keys: usize, keys: &[&[&str]]) -> Response<String> {
    let limiter = limiter(policy, max_keys);
    for key in keys.iter().cycle().take(100) {
        let name = limiter.policies().next().unwrap().name().clone();
        let decision = limiter.check(&name, key).await.unwrap();
        if !decision.is_allowed() {
            return denied(&decision, AnswerOptions::default(), NOW_EPOCH_SECS, None);
        }
    }
    panic!("nothing was denied");
}

/// The answer to a check whose shared store is away: nothing listens on port 1.
async fn denial_without_store(policy: PolicyBuilder) -> Response<String> {
    let store = RedisStore::start(&RedisConfig::parse("redis://127.0.0.1:1").unwrap()).unwrap();
    let limiter = Limiter::builder().policy(policy.build().unwrap()).store(store).build().unwrap();
    let decision = limiter.check("api", &[]).await.unwrap();
    assert_eq!((decision.mode(), decision.is_allowed()), (Mode::DenyAll, false));
    denied(&decision, AnswerOptions::default(), NOW_EPOCH_SECS, None)
}

#[tokio::test]
async fn denials_are_those_that_are_shown() {
    let api = || Policy::builder("api").limits("5/10s");
    let never = limiter(api(), 1000).check_all(&[Ask::new("api", &[]).cost(50)]).await.unwrap_err();
    let per_user = Policy::builder("per-user").limits("5/s").key("{header:x-user-id}").missing(Missing::Deny);
    let facts = RequestFacts {
        method: &Method::GET,
        headers: &HeaderMap::new(),
        path: "/",
        query: None,
        host: None,
        route: None,
        path_params: &[],
        client: None,
    };
    let lacking = limiter(per_user, 1000).check_request(&["per-user".into()], &facts).await.unwrap_err();
    let reservations = CheckError::Store(StoreError::ReservationsFull { most: RESERVATIONS_MAX });
    // One counter, used up by the first key: the second is new, and there is no room for it.
    let used_up: [&[&str]; 6] = [&["a"], &["a"], &["a"], &["a"], &["a"], &["b"]];
    let answers = [
        denial(api(), 1000, &[&[]]).await,
        denial(Policy::builder("login").limits("1/15m").count_denied(true), 1000, &[&[]]).await,
        denial(api().key("{client_ip}"), 1, &used_up).await,
        denial_without_store(api()).await,
        refused(&never, NeverIs::Denied, None),
        refused(&lacking, NeverIs::Denied, None),
        refused(&reservations, NeverIs::Denied, None),
    ];
    let shown = shown();
    assert_eq!(shown.len(), answers.len());
    for (shown, answer) in shown.iter().zip(&answers) {
        assert_eq!(shown, &parts(answer));
    }
}
