use super::*;

fn parsed(url: &str) -> ParsedUrl {
    parse(url).unwrap_or_else(|error| panic!("{url}: {error}"))
}

fn refused(url: &str) -> (usize, String) {
    match parse(url) {
        Err(RedisConfigError::Url { at, write }) => (at, write),
        Err(other) => panic!("{url}: {other}"),
        Ok(_) => panic!("{url} is taken"),
    }
}

fn tcp(host: &str, port: u16) -> Address {
    Address::Tcp(host.to_owned(), port)
}

#[test]
fn one_server_has_a_host_a_port_and_a_database() {
    let url = parsed("redis://redis.example:7000/3");
    assert_eq!(url.topology, Topology::Single(tcp("redis.example", 7000)));
    assert_eq!((url.database, url.tls), (3, false));
    assert_eq!((url.username, url.password), (None, None));
}

#[test]
fn port_and_database_may_be_left_out() {
    for url in ["redis://localhost", "redis://localhost/", "redis://localhost:6379/0", "REDIS://localhost"] {
        assert_eq!(parsed(url).topology, Topology::Single(tcp("localhost", 6379)), "{url}");
        assert_eq!(parsed(url).database, 0, "{url}");
    }
}

#[test]
fn ipv6_addresses_stand_in_brackets() {
    assert_eq!(parsed("redis://[::1]:7000").topology, Topology::Single(tcp("::1", 7000)));
    assert_eq!(parsed("redis://[fe80::1]/1").topology, Topology::Single(tcp("fe80::1", 6379)));
    assert_eq!(tcp("::1", 7000).to_string(), "[::1]:7000");
}

#[test]
fn user_and_password_are_decoded() {
    let url = parsed("rediss://limiter:p%40ss%2Fw%25rd@h");
    assert_eq!(url.username.as_deref(), Some("limiter"));
    assert_eq!(url.password.as_deref(), Some("p@ss/w%rd"));
    assert!(url.tls);
    assert_eq!(parsed("redis://:secret@h").username, None);
    assert_eq!(parsed("redis://:a:b@h").password.as_deref(), Some("a:b"));
}

#[test]
fn a_socket_has_a_path() {
    let url = parsed("redis+unix://:secret@/run/redis/redis.sock?db=2");
    assert_eq!(url.topology, Topology::Single(Address::Unix("/run/redis/redis.sock".into())));
    assert_eq!((url.database, url.password.as_deref()), (2, Some("secret")));
}

#[test]
fn sentinels_are_asked_for_a_master_by_name() {
    let url = parsed("redis-sentinel://u:p@s1,s2:26380,s1:26379/my-master/4");
    let sentinels = vec![tcp("s1", 26_379), tcp("s2", 26_380)];
    assert_eq!(url.topology, Topology::Sentinel { sentinels, master: "my-master".to_owned() });
    assert_eq!((url.database, url.tls), (4, false));
    assert!(parsed("rediss-sentinel://s1/m").tls);
}

#[test]
fn a_cluster_is_found_through_any_of_its_nodes() {
    let url = parsed("redis-cluster://n1,n2:7001/0");
    assert_eq!(url.topology, Topology::Cluster(vec![tcp("n1", 6379), tcp("n2", 7001)]));
    assert!(parsed("rediss-cluster://n1").tls);
}

#[test]
fn valkeys_own_schemes_are_known() {
    assert_eq!(parsed("valkey://h").topology, Topology::Single(tcp("h", 6379)));
    assert!(parsed("valkeys://h").tls);
    assert!(matches!(parsed("valkey-cluster://h").topology, Topology::Cluster(_)));
}

#[test]
fn a_refusal_says_where_and_what_to_write() {
    let cases = [
        ("localhost:6379", 1, "redis://"),
        ("http://h", 1, "one of the schemes"),
        ("redis-sentinal://h/m", 1, "redis-sentinel://"),
        ("redis://", 9, "a host"),
        ("redis://h:port", 11, "port from 1"),
        ("redis://h:0", 11, "port from 1"),
        ("redis://h:65536", 11, "port from 1"),
        ("redis://h:+1", 11, "port from 1"),
        ("redis://::1", 9, "a host"),
        ("redis://[::1", 9, "]"),
        ("redis://[:::1]", 9, "IPv6"),
        ("redis://[::1]7000", 14, ":"),
        ("redis://h/one", 11, "database number"),
        ("redis://h/65536", 11, "database number"),
        ("redis://h/0?timeout=1", 12, "nothing"),
        ("redis://h1,h2", 9, "one host"),
        ("redis://h1,", 12, "a host"),
        ("redis-cluster://h/1", 19, "no database"),
        ("redis-sentinel://h", 19, "name of the master"),
        ("redis-sentinel://h/", 20, "name of the master"),
        ("redis-sentinel://h/my master", 22, "spaces"),
        ("redis+unix://h/run", 14, "absolute path"),
        ("redis+unix://", 14, "socket's path"),
        ("redis+unix:///s?x=1", 16, "?db="),
        ("redis://u:100%@h", 14, "%25"),
        ("redis://u:%FF@h", 11, "UTF-8"),
        ("redis://a@b:c@h", 10, "%40"),
        ("redis://:p/w@h", 11, "%2F"),
        ("redis://h\n", 10, "control"),
    ];
    for (url, at, write) in cases {
        let refusal = refused(url);
        assert_eq!(refusal.0, at, "{url:?}: {}", refusal.1);
        assert!(refusal.1.contains(write), "{url:?}: {}", refusal.1);
    }
}

#[test]
fn a_refusal_never_repeats_what_may_be_a_password() {
    let wrong = [
        "redis://:hunter2/x@h",
        "redis://hunter2@h:hunter2",
        "hunter2@h",
        "redis://u:hunter2%@h",
        "redis://u:hunter2:hunter2",
        "hunter2://h",
        "redis://h/hunter2",
        "redis://[hunter2]",
        "redis://h?password=hunter2",
        "redis-sentinel://h/hunter2 ",
    ];
    for url in wrong {
        let error = parse(url).err().unwrap_or_else(|| panic!("{url} is taken"));
        assert!(!format!("{error} {error:?}").contains("hunter2"), "{url}: {error}");
    }
}

#[test]
fn texts_of_any_length_are_refused_in_time() {
    assert_eq!(refused(&format!("redis://{}", "h,".repeat(URL_LEN_MAX))).0, 1);
    let hosts = (0..=HOSTS_MAX).map(|number| format!("h{number}")).collect::<Vec<_>>().join(",");
    assert!(refused(&format!("redis-cluster://{hosts}")).1.contains("at most 64"));
}

mod properties {
    use proptest::prelude::*;

    proptest! {
        /// No text panics, whatever it is.
        #[test]
        fn no_text_panics(text in "\\PC*", scheme in "(redis|rediss|redis\\+unix|redis-sentinel|redis-cluster)") {
            let _ = super::parse(&text);
            let url = format!("{scheme}://{text}");
            prop_assert!(super::parse(&url).is_ok() || super::parse(&url).is_err());
        }

        /// Percent-encoded, every user and password comes out as it went in.
        #[test]
        fn every_password_survives_encoding(user in ".{0,20}", password in ".{1,40}") {
            let encode = |text: &str| {
                percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string()
            };
            let url = format!("redis://{}:{}@h:1/2", encode(&user), encode(&password));
            let parsed = super::parsed(&url);
            prop_assert_eq!(parsed.password, Some(password));
            prop_assert_eq!(parsed.username.unwrap_or_default(), user);
        }
    }
}
