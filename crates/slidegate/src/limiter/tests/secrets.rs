//! Secrets are hashed before they go anywhere, and show up nowhere.

use super::*;

const TOKEN: &str = "sk-live-0123456789";

fn by_token(missing: Missing) -> PolicyBuilder {
    let exempt = Exempt {
        headers: vec![(HeaderName::from_static("x-internal"), TOKEN.as_bytes().into())],
        ..Exempt::default()
    };
    Policy::builder("p").limits("2/m").key("{secret:header:authorization}").missing(missing).exempt(exempt)
}

#[tokio::test]
async fn a_secret_shows_in_no_debug_output_and_no_error() {
    let (_clock, limiter) = limiter([by_token(Missing::Deny)]);
    let request = Request::from("192.0.2.1").header("authorization", TOKEN);
    let allowed = request.check(&limiter, &["p"]).await.unwrap();
    let (_, reservation) = limiter.reserve(&[Ask::new("p", &[TOKEN])]).await.unwrap();
    let denied = limiter.check("p", &[TOKEN]).await.unwrap();
    assert!(!denied.is_allowed());
    let errors = [
        limiter.check("p", &[TOKEN, TOKEN]).await.unwrap_err(),
        limiter.check_all(&[Ask::new("p", &[TOKEN]).cost(3)]).await.unwrap_err(),
        limiter.check_all(&[Ask::new("p", &[TOKEN]), Ask::new("p", &[TOKEN])]).await.unwrap_err(),
        limiter.check("q", &[TOKEN]).await.unwrap_err(),
        Request::from("192.0.2.1").check(&limiter, &["p"]).await.unwrap_err(),
    ];
    let ask = Ask::new("p", &[TOKEN]);
    let shown = format!("{limiter:?} {allowed:?} {denied:?} {reservation:?} {errors:?} {ask:?}");
    assert!(!shown.contains("sk-live"), "{shown}");
    assert!(errors.iter().all(|error| !error.to_string().contains("sk-live")));
    // Not as a list of bytes either.
    assert!(!shown.contains(&format!("{:?}", TOKEN.as_bytes()).replace(['[', ']'], "")));
}

#[test]
fn a_key_holds_only_the_hash_of_a_secret() {
    let policy = by_token(Missing::Count).build().unwrap();
    let key_of = |value: &'static str, secret: &SecretKey| {
        policy.key_of([Value::Given(value.as_bytes())].into_iter(), secret).0.as_str().to_owned()
    };
    let secret = SecretKey::new(b"0123456789abcdef");
    let key = key_of(TOKEN, &secret);
    // Pinned: instances that share a store must agree on it, in every release. HMAC-SHA-256, cut to 128 bits.
    assert_eq!(key, "secret:header:authorization=2d341ff5fbe66ecac879c3f1af3c28b5");
    assert_ne!(key, key_of("sk-live-0123456780", &secret));
    assert_ne!(key, key_of(TOKEN, &SecretKey::new(b"another key")));
    assert_ne!(key, key_of(TOKEN, &SecretKey::random()));
    assert_eq!(format!("{secret:?}"), "SecretKey(..)");
}

#[tokio::test]
async fn instances_with_the_same_secret_key_share_counters_and_others_do_not() {
    let store = Arc::new(store().1);
    let instance = |secret: &[u8]| {
        let policy = by_token(Missing::Count).build().unwrap();
        let builder = Limiter::builder().policy(policy).secret_key(SecretKey::new(secret));
        builder.store(store.clone()).build().unwrap()
    };
    let (one, two, stranger) = (instance(b"k"), instance(b"k"), instance(b"l"));
    assert!(allows(&one, "p", TOKEN).await && allows(&two, "p", TOKEN).await);
    assert!(!allows(&one, "p", TOKEN).await);
    assert!(allows(&stranger, "p", TOKEN).await);
    assert_eq!(store.figures().keys, 2);
}

#[tokio::test]
async fn a_secret_given_by_hand_and_one_from_a_request_are_the_same_key() {
    let (_clock, limiter) = limiter([by_token(Missing::Count)]);
    assert!(Request::from("192.0.2.1").header("authorization", TOKEN).passes(&limiter).await);
    assert_eq!(used(&limiter, "p", TOKEN).await, [(1, 1)]);
}
