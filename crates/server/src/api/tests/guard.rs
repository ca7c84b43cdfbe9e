//! Who is let in, and to what.

use super::*;

#[tokio::test]
async fn there_is_nothing_but_the_endpoints() {
    let api = api();
    let nothing = send(&api, http::Method::POST, "/v1/chek", &[], "").await;
    assert_eq!(
        (nothing.status, &*nothing.detail()),
        (404, "nothing is at /v1/chek: did you mean /v1/check?")
    );
    let nothing = send(&api, http::Method::GET, "/", &[], "").await;
    assert_eq!(
        (nothing.status, &*nothing.detail()),
        (
            404,
            "nothing is at /: this port has /v1/check, /v1/check/batch, /v1/reserve, /v1/commit, /v1/refund"
        )
    );
    for method in [http::Method::GET, http::Method::PUT, http::Method::OPTIONS] {
        let reply = send(&api, method.clone(), "/v1/check", &[], "").await;
        assert_eq!((reply.status, &*reply.detail()), (405, &*format!("/v1/check does not take {method}")));
        assert_eq!(reply.header("allow"), Some("POST"));
    }
    let head = send(&api, http::Method::HEAD, "/v1/check", &[], "").await;
    assert_eq!((head.status, &*head.text), (405, ""));
}

#[tokio::test]
async fn only_callers_with_a_token_are_let_in() {
    let api = router(context(policies()).0, &door(tokens()));
    let body = r#"{"policy":"global"}"#;
    let post = |path: &'static str, token: Option<&'static str>| {
        let api = api.clone();
        async move {
            let token = token.map(|token| format!("Bearer {token}"));
            let mut headers = vec![("content-type", "application/json")];
            headers.extend(token.as_deref().map(|token| ("authorization", token)));
            send(&api, http::Method::POST, path, &headers, body).await
        }
    };
    assert_eq!(post("/v1/check", Some(READER)).await.status, 200);
    // Who is not let in does not even learn what there is.
    for path in ["/v1/check", "/v1/nothing", "/v1/refund"] {
        let nobody = post(path, None).await;
        assert_eq!(
            (nobody.status, nobody.header("www-authenticate")),
            (401, Some(r#"Bearer realm="slidegate""#))
        );
        assert!(nobody.detail().contains("Authorization: Bearer TOKEN"));
        let stranger = post(path, Some("reader-reader-readeR")).await;
        assert_eq!(
            (stranger.status, stranger.header("www-authenticate")),
            (401, Some(r#"Bearer realm="slidegate", error="invalid_token""#))
        );
        assert!(!stranger.text.contains("readeR"), "{stranger:?}");
    }
}

#[tokio::test]
async fn no_web_page_can_use_the_port() {
    let api = api();
    let json = ("content-type", "application/json");
    let body = r#"{"policy":"global"}"#;
    for (extra, status) in [
        (("host", "evil.example:8082"), 403),
        (("origin", "http://evil.example"), 403),
        (("origin", "http://127.0.0.1:8082"), 200),
        (("host", "localhost:8082"), 200),
    ] {
        let reply = send(&api, http::Method::POST, "/v1/check", &[json, extra], body).await;
        assert_eq!(reply.status, status, "{extra:?}");
    }
    let form = [("content-type", "text/plain")];
    assert_eq!(send(&api, http::Method::POST, "/v1/check", &form, body).await.status, 415);
    assert_eq!(used(&api).await, 2);
}
