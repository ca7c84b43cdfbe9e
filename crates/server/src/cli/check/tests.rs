use axum::Router;
use clap::{CommandFactory, Parser};
use tokio::net::TcpListener;

use super::*;
use crate::config::Tokens;
use crate::decision_json::LimitJson;
use crate::doors::testing::{READER, context, door, tokens};

#[derive(Debug, Parser)]
struct Verb {
    #[command(flatten)]
    args: Args,
}

fn args(line: &[&str]) -> Result<Args, clap::Error> {
    Verb::try_parse_from([&["check"], line].concat()).map(|verb| verb.args)
}

/// Serves a router on a free port; it ends with the test's runtime.
async fn serve(router: Router) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await });
    format!("http://{address}")
}

async fn api(tokens: Tokens) -> String {
    let policies = [
        slidegate::Policy::builder("per-user").limits("2/1h").key("{client_ip}").key("{header:x-user-id}"),
        slidegate::Policy::builder("closed").limits("0/1h"),
    ];
    serve(crate::api::router(context(policies).0, &door(tokens))).await
}

async fn ask_with(server: &str, line: &[&str]) -> Result<Answer, String> {
    ask(&args(&[&["--server", server], line].concat()).unwrap()).await
}

const OF_USER: [&str; 6] =
    ["--policy", "per-user", "--key", "client_ip=203.0.113.7", "--key", "header:x-user-id=a=b"];

#[tokio::test]
async fn one_decision_is_asked_of_a_running_server() {
    let server = api(Tokens::Anyone).await;
    let mut said = Vec::new();
    for _ in 0..3 {
        let answer = ask_with(&server, &OF_USER).await.unwrap();
        said.push((answer.decision.allowed, answer.decision.limits[0].remaining));
    }
    assert_eq!(said, [(true, Some(1)), (true, Some(0)), (false, Some(0))]);
    let denied = ask_with(&server, &OF_USER).await.unwrap();
    assert!(denied.decision.retry_after_ms.unwrap() > 3_500_000);
    let json: Value = serde_json::from_str(&denied.text(true)).unwrap();
    assert_eq!(json["violated"], json!(["per-user"]));
    let other = ask_with(
        &server,
        &[
            "--policy",
            "per-user",
            "--key",
            "client_ip=203.0.113.7",
            "--key",
            "header:x-user-id=c",
            "--cost",
            "2",
        ],
    );
    assert_eq!(other.await.unwrap().decision.limits[0].remaining, Some(0));
}

#[tokio::test]
async fn a_token_comes_from_a_file_and_shows_in_no_message() {
    let server = api(tokens()).await;
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let good = file("good", &format!("# for scripts\n\n  {READER}  \n"));
    let line = |path: &str| {
        [&OF_USER[..], &["--token-file", path]].concat().iter().map(|s| (*s).to_owned()).collect::<Vec<_>>()
    };
    let with = async |path: &str| {
        let line = line(path);
        ask_with(&server, &line.iter().map(String::as_str).collect::<Vec<_>>()).await
    };
    assert!(with(&good).await.unwrap().decision.allowed);
    let without = ask_with(&server, &OF_USER).await.unwrap_err();
    assert!(without.contains("this port takes a token") && without.contains("--token-file"), "{without}");
    for (name, text, said) in [
        ("wrong", "secret-secret-secret", "this token is not among those"),
        ("empty", "# nothing\n", "holds no token"),
        ("broken", "secret\u{7f}secret", "characters that no header can"),
        ("absent", "", "holds no token"),
    ] {
        let message = with(&file(name, text)).await.unwrap_err();
        assert!(
            message.contains(said) && !message.contains("secret-") && !message.contains("secret\u{7f}"),
            "{message}"
        );
    }
    let missing = folder.path().join("missing");
    assert!(with(missing.to_str().unwrap()).await.unwrap_err().contains("can't be read"));
}

#[tokio::test]
async fn what_the_server_refuses_is_told_in_its_words() {
    let server = api(Tokens::Anyone).await;
    for (line, said) in [
        (&["--policy", "per-usr"][..], "no policy is called \"per-usr\": did you mean \"per-user\"?"),
        (&["--policy", "per-user"], "the key of policy per-user needs \"client_ip\", which is missing"),
        (&["--policy", "closed", "--key", "a=b"], "policy closed has no key part \"a\": there is none"),
        (&["--policy", "closed", "--key", "a=b", "--key", "a=c"], "--key a=… is there twice"),
    ] {
        let message = ask_with(&server, line).await.unwrap_err();
        assert!(message.ends_with(said), "{message}");
    }
}

#[tokio::test]
async fn only_a_decision_is_taken_for_one() {
    // F11: whatever else answers there, it must not be taken for "allowed".
    use axum::Json;
    use axum::routing::post;
    let decision = json!({"allowed": true, "policy": "p", "mode": "normal", "shadow": false, "limits": [],
        "violated": [], "retry_after_ms": null});
    let answers = [
        (StatusCode::OK, json!({})),
        (StatusCode::OK, json!({"allowed": true})),
        (StatusCode::OK, json!("allowed")),
        (StatusCode::NOT_FOUND, json!(null)),
        (StatusCode::INTERNAL_SERVER_ERROR, decision.clone()),
        (StatusCode::TOO_MANY_REQUESTS, decision),
    ];
    for answer in answers {
        let (status, json) = answer.clone();
        let server = serve(Router::new().route("/v1/check", post(async move || (status, Json(json))))).await;
        let message = ask_with(&server, &OF_USER).await.unwrap_err();
        assert!(message.contains("not as an API port does"), "{answer:?} {message}");
    }
}

#[tokio::test]
async fn a_server_that_is_not_there_is_told_from_one_that_is_silent() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    drop(listener);
    let message = ask_with(&address, &OF_USER).await.unwrap_err();
    assert_eq!(
        message,
        format!(
            "{address}: nothing answers there: is `slidegate serve` running? Name another place with --server"
        )
    );
}

#[tokio::test]
async fn a_silent_server_is_given_up() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    // The connection is taken by the kernel; nobody ever answers it.
    let asked = args(&[&["--server", &*address], &OF_USER[..]].concat()).unwrap();
    let asking = tokio::spawn(async move { ask(&asked).await });
    let (_connection, _) = listener.accept().await.unwrap();
    tokio::time::pause();
    assert_eq!(asking.await.unwrap().unwrap_err(), format!("{address}: no answer within 5 s"));
}

#[tokio::test]
async fn an_embedded_store_can_only_be_asked_through_its_server() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("slidegate.yaml");
    std::fs::write(&file, "policies:\n  - { name: p, limits: [\"1/s\"] }\napi: { listen: 127.0.0.1:9082 }\n")
        .unwrap();
    let line = args(&["--policy", "p", "--config", file.to_str().unwrap()]).unwrap();
    let said = ask(&line).await.unwrap_err();
    let expected = "the store is in the memory of the process that serves it, where nobody else can read it\n\
                    ask that server: slidegate check --server http://127.0.0.1:9082";
    assert!(said.ends_with(expected), "{said}");
    std::fs::write(&file, "polices: []\n").unwrap();
    assert!(ask(&line).await.unwrap_err().contains("polices"));
}

#[test]
fn arguments_that_make_no_sense_are_refused() {
    let policy = ["--policy", "p"];
    for (line, said) in [
        (&[][..], "--policy <NAME>"),
        (&["--key", "client_ip"], "write NAME=VALUE"),
        (&["--key", "=x"], "write NAME=VALUE"),
        (&["--cost", "-1"], "write a whole number from 0 to 4294967295"),
        (&["--cost", "4294967296"], "write a whole number from 0 to 4294967295"),
        (&["--server", "https://127.0.0.1"], "https is not available yet"),
        (&["--server", "http://127.0.0.1/v1/check"], "write http://HOST:PORT"),
        (&["--server", "/tmp"], "write http://HOST:PORT"),
        (&["--server", "ftp://127.0.0.1"], "write http://HOST:PORT"),
        (&["--config", "f", "--server", "http://127.0.0.1"], "cannot be used with"),
    ] {
        let line = if line.is_empty() { Vec::new() } else { [&policy, line].concat() };
        let message = args(&line).unwrap_err().to_string();
        assert!(message.contains(said), "{line:?}: {message}");
    }
}

#[test]
fn a_server_is_named_with_or_without_its_scheme() {
    for server in ["http://127.0.0.1:8082", "http://127.0.0.1:8082/", "127.0.0.1:8082", "localhost:8082"] {
        let args = args(&["--policy", "p", "--server", server]).unwrap();
        assert_eq!(args.server.authority().unwrap().port_u16(), Some(8082), "{server}");
    }
}

#[test]
fn a_decision_is_told_in_words() {
    let limit = |name: &'static str, remaining, reset_after_ms| LimitJson {
        policy: None,
        name: name.into(),
        limit: 100,
        used: Some(100 - remaining),
        remaining: Some(remaining),
        reset_after_ms: Some(reset_after_ms),
    };
    let allowed = DecisionJson {
        allowed: true,
        policy: Some("p".into()),
        policies: None,
        mode: "normal".into(),
        shadow: false,
        limits: vec![limit("burst", 99, 10_000), limit("day", 100, 0)],
        violated: vec![],
        retry_after_ms: None,
        delay_ms: 0,
        reservation: None,
    };
    assert_eq!(in_words(&allowed), "burst: 99 of 100 left, more in 10s\nday: 100 of 100 left\nallowed\n");
    let denied = DecisionJson {
        allowed: false,
        limits: vec![limit("burst", 0, 1_500)],
        violated: vec!["burst".into(), "day".into()],
        retry_after_ms: Some(1_500),
        ..allowed.clone()
    };
    assert_eq!(
        in_words(&denied),
        "burst: 0 of 100 left, more in 1500ms\ndenied by burst, day: try again in 1500ms\n"
    );
    let uncounted = LimitJson { used: None, remaining: None, reset_after_ms: None, ..limit("burst", 0, 0) };
    let away = DecisionJson {
        mode: "deny_all".into(),
        limits: vec![uncounted],
        retry_after_ms: None,
        ..denied.clone()
    };
    let others = [
        (
            DecisionJson { retry_after_ms: None, ..denied.clone() },
            "denied by burst, day: waiting does not help\n",
        ),
        (DecisionJson { delay_ms: 250, ..allowed.clone() }, "allowed, after a delay of 250ms\n"),
        (
            DecisionJson { shadow: true, ..allowed.clone() },
            "allowed (a shadow policy would have denied it)\n",
        ),
        (DecisionJson { mode: "full".into(), ..denied.clone() }, "try again in 1500ms (mode full)\n"),
        (
            away,
            "burst: of 100, nobody knows how many are left\ndenied by burst, day: the store is away (mode deny_all)\n",
        ),
    ];
    for (decision, end) in others {
        assert!(in_words(&decision).ends_with(end), "{}", in_words(&decision));
    }
}

#[test]
fn waits_are_told_as_people_say_them_and_never_too_short() {
    for (ms, said) in [
        (1, "1ms"),
        (1_500, "1500ms"),
        (2_000, "2s"),
        (9_999, "9999ms"),
        (10_001, "11s"),
        (59_983, "1m"),
        (3_599_001, "1h"),
        (90_061_000, "1d 1h 1m 1s"),
        (86_401_000, "1d 1s"),
    ] {
        assert_eq!(Wait(ms).to_string(), said);
    }
}

#[test]
fn help_shows_how_it_is_used() {
    Verb::command().debug_assert();
    let help = Verb::command().render_long_help().to_string();
    assert!(help.contains("slidegate check --policy per-user --key client_ip=203.0.113.7"));
    assert!(help.contains("Exit codes: 0 allowed, 10 denied, 1 no decision, 2 wrong usage"));
}
