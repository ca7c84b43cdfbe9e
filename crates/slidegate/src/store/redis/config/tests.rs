use super::*;

fn config(url: &str) -> RedisConfig {
    RedisConfig::parse(url).unwrap_or_else(|error| panic!("{url}: {error}"))
}

#[test]
fn secrets_show_in_no_debug_text() {
    let secret = || Some(b"hunter2".to_vec());
    let tls = Tls { ca: secret(), client: Some((b"hunter2".to_vec(), b"hunter2".to_vec())) };
    let config = config("rediss://hunter2:hunter2@h")
        .password("hunter2")
        .username("hunter2")
        .sentinel_login(Some("hunter2".to_owned()), "hunter2");
    let login = config.login().expect("user and password");
    let texts = [format!("{tls:?}"), format!("{config:?}"), format!("{config:#?}"), format!("{login:?}")];
    for text in texts {
        assert!(!text.contains("hunter2") && !text.contains("104, 117, 110"), "{text}");
    }
}

#[test]
fn a_password_of_its_own_is_used_in_place_of_the_urls() {
    let login = config("redis://:one@h").password("two").username("me").login().expect("a login");
    let login = login.expect("a password");
    assert_eq!((login.username.as_deref(), login.password.as_str()), (Some("me"), "two"));
}

#[test]
fn a_user_needs_a_password() {
    let refused = config("redis://me@h").login();
    assert_eq!(refused.err(), Some(RedisConfigError::PasswordMissing));
    assert!(config("redis://me@h").password("secret").login().is_ok());
}

#[test]
fn certificates_are_for_tls_and_have_to_be_some() {
    let plain = config("redis://h").tls(Tls::default());
    assert_eq!(plain.err(), Some(RedisConfigError::TlsUnused));
    let broken = [
        (Tls { ca: Some(b"nothing".to_vec()), client: None }, "authority"),
        (Tls { ca: None, client: Some((b"nothing".to_vec(), b"nothing".to_vec())) }, "key"),
    ];
    for (tls, what) in broken {
        let error = config("rediss://h").tls(tls).expect_err("no PEM").to_string();
        assert!(error.contains(what), "{error}");
    }
    assert!(config("rediss://h").tls(Tls::default()).is_ok());
}

#[test]
fn a_prefix_is_short_and_decides_no_slot() {
    for prefix in ["sg", "team-a:sg", "A_b.c"] {
        assert_eq!(config("redis://h").prefix(prefix).expect("fits").key_prefix(), prefix);
    }
    let length = RedisConfigError::PrefixLength { most: PREFIX_LEN_MAX };
    for prefix in [String::new(), "x".repeat(PREFIX_LEN_MAX + 1)] {
        assert_eq!(config("redis://h").prefix(&prefix).err(), Some(length.clone()));
    }
    for prefix in ["a{b", "a}b", "a b", "a\nb", "aäb"] {
        let refused = config("redis://h").prefix(prefix).err();
        assert_eq!(refused, Some(RedisConfigError::PrefixByte { at: 2 }), "{prefix:?}");
    }
}

#[test]
fn a_timeout_is_at_least_a_millisecond() {
    assert_eq!(config("redis://h").check_timeout(), Millis(10));
    assert_eq!(config("redis://h").timeout(Millis(0)).check_timeout(), Millis(1));
    assert_eq!(config("redis://h").timeout(Millis(u64::MAX)).check_timeout(), Millis(60_000));
}
