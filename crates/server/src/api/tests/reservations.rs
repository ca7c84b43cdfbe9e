//! Reservations.

use serde_json::json;

use super::*;

async fn reserved(api: &Router, cost: u32) -> String {
    let reply = ask(api, "/v1/reserve", format!(r#"{{"policy":"global","cost":{cost}}}"#)).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    reply.json()["reservation"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_reservation_is_charged_at_once_and_settled_at_its_actual_cost() {
    let api = api();
    for (reserve, commit, given_back, charged) in [(5, 2, 3, 0), (1, 3, 0, 2), (2, 2, 0, 0)] {
        let before = used(&api).await;
        let id = reserved(&api, reserve).await;
        assert_eq!(used(&api).await, before + u64::from(reserve));
        let reply = ask(&api, "/v1/commit", format!(r#"{{"reservation":"{id}","cost":{commit}}}"#)).await;
        assert_eq!(
            (reply.status, reply.json()),
            (200, json!({"settled": true, "given_back": given_back, "charged": charged}))
        );
        assert_eq!(used(&api).await, before + commit);
    }
}

#[tokio::test]
async fn a_reservation_is_settled_once() {
    let api = api();
    let id = reserved(&api, 4).await;
    let refund = format!(r#"{{"reservation":"{id}"}}"#);
    let reply = ask(&api, "/v1/refund", refund.clone()).await;
    assert_eq!(reply.json(), json!({"settled": true, "given_back": 4, "charged": 0}));
    let again = ask(&api, "/v1/refund", refund).await;
    assert_eq!(again.status, 404);
    assert!(again.detail().starts_with("there is no such reservation"), "{again:?}");
    let late = ask(&api, "/v1/commit", format!(r#"{{"reservation":"{id}","cost":9}}"#)).await;
    assert_eq!(late.status, 404);
    assert_eq!(used(&api).await, 0);
}

#[tokio::test]
async fn a_reservation_that_is_denied_has_no_id_and_takes_nothing() {
    let api = api();
    let _ = reserved(&api, 8).await;
    let reply = ask(&api, "/v1/reserve", r#"{"policy":"global","cost":3}"#).await;
    assert_eq!(reply.status, 429);
    assert_eq!(reply.json().get("reservation"), None);
    assert!(reply.header("retry-after").is_some());
    assert_eq!(used(&api).await, 8);
}

#[tokio::test]
async fn what_cannot_be_reserved_or_settled_is_refused() {
    let api = api();
    let unknown = "0123456789abcdef0123456789abcdef";
    for (path, body, status, detail) in [
        ("/v1/reserve", r#"{"policy":"global","cost":0}"#, 400, "a reservation costs at least 1"),
        (
            "/v1/reserve",
            r#"{"policies":["global",{"policy":"closed","cost":0}]}"#,
            400,
            "a reservation costs at least 1",
        ),
        ("/v1/reserve", r#"{"policy":"global","cost":11}"#, 422, "a cost of 11 never fits"),
        ("/v1/commit", r#"{"reservation":"7","cost":1}"#, 400, "a reservation id has 32 hexadecimal digits"),
        (
            "/v1/commit",
            &format!(r#"{{"reservation":"{unknown}","cost":1}}"#),
            404,
            "there is no such reservation",
        ),
        ("/v1/commit", &format!(r#"{{"reservation":"{unknown}"}}"#), 400, "missing field `cost`"),
        (
            "/v1/commit",
            &format!(r#"{{"reservation":"{unknown}","cost":-1}}"#),
            400,
            "invalid value: integer `-1`",
        ),
        ("/v1/refund", &format!(r#"{{"reservation":"{unknown}","cost":1}}"#), 400, "unknown field `cost`"),
        ("/v1/refund", r#"{"reservation":7}"#, 400, "invalid type: integer `7`, expected a string"),
    ] {
        let reply = ask(&api, path, body.to_owned()).await;
        assert_eq!(reply.status, status, "{path} {body}");
        assert!(reply.detail().starts_with(detail), "{path} {body} {reply:?}");
    }
}
