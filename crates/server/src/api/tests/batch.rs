//! Batches.

use serde_json::json;

use super::*;

#[tokio::test]
async fn a_batch_is_answered_in_order_as_single_checks_would_be() {
    let api = api();
    let body = r#"{"checks":[
        {"policy":"per-ip","key":["a"],"cost":4}, {"policy":"per-ip","key":["a"],"cost":4},
        {"policy":"nobody"}, {"policy":"global","cost":11},
        {"policies":["global"]}, {"policy":"per-ip"}]}"#;
    let reply = ask(&api, "/v1/check/batch", body).await;
    assert_eq!(reply.status, 200);
    assert_eq!(reply.header("content-type"), Some("application/json"));
    let json = reply.json();
    let answers = json["answers"].as_array().unwrap();
    let statuses: Vec<_> = answers.iter().map(|answer| answer["status"].as_u64().unwrap()).collect();
    assert_eq!(statuses, [200, 429, 404, 422, 200, 400]);
    assert_eq!(answers[0]["decision"]["limits"][0]["remaining"], 1);
    assert_eq!(answers[0].get("error"), None);
    assert_eq!(answers[1]["decision"]["violated"], json!(["per-ip"]));
    assert_eq!(answers[2].get("decision"), None);
    assert_eq!(
        answers[2]["error"],
        json!({"type": "about:blank", "title": "Not Found", "status": 404,
            "detail": "no policy is called \"nobody\""})
    );
    assert_eq!(answers[3]["error"]["never"], true);
    assert_eq!(answers[4]["decision"]["policies"], json!(["global"]));
    assert_eq!(answers[5]["error"]["status"], 400);
}

#[tokio::test]
async fn a_batch_that_cannot_be_read_decides_nothing() {
    let api = api();
    let checks =
        |count| format!(r#"{{"checks":[{}]}}"#, vec![r#"{"policy":"global","cost":0}"#; count].join(","));
    for (body, detail) in [
        (
            r#"{"checks":[{"policy":"global"},{"polcy":"global"}]}"#.to_owned(),
            "unknown field `polcy`, expected one of `policy`, `policies`, `key`, `cost` at line 1 column 39: \
             did you mean `policy`?",
        ),
        (
            r#"{"checks":[{"policy":"global"},["global"]]}"#.to_owned(),
            "invalid type: sequence, expected an object at line 1 column 31",
        ),
        (r#"{"checks":{}}"#.to_owned(), "invalid type: map, expected a list of checks at line 1 column 10"),
        ("{}".to_owned(), "missing field `checks` at line 1 column 2"),
        (checks(1001), "a batch has at most 1000 checks at line 1 column 29040"),
    ] {
        let reply = ask(&api, "/v1/check/batch", body).await;
        assert_eq!((reply.status, &*reply.detail()), (400, detail));
    }
    assert_eq!(check(&api, r#"{"policy":"global","cost":0}"#).await.json()["limits"][0]["used"], 0);
    for count in [0, 1000] {
        let reply = ask(&api, "/v1/check/batch", checks(count)).await;
        assert_eq!(reply.status, 200);
        assert_eq!(reply.json()["answers"].as_array().unwrap().len(), count);
    }
}
