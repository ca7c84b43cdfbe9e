//! TLS, Unix sockets, databases and passwords.

use super::*;
use crate::store::redis::config::Tls;
use slidegate_testbed::redis::{Release, Server};

fn read(path: std::path::PathBuf) -> Vec<u8> {
    std::fs::read(path).expect("a file of the test bed")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_tls_both_ends_show_certificates() {
    let server = Server::options().tls().password("secret").start();
    let certificates = server.certificates();
    let ca = Some(read(certificates.authority()));
    let client = Some((read(certificates.client_certificate()), read(certificates.client_key())));

    let both =
        config(&server.url()).tls(Tls { ca: ca.clone(), client: client.clone() }).expect("certificates");
    let link = Link::start(&both).expect("a link");
    assert!(link.connected(Instant::now() + PATIENCE).await);
    assert_eq!(count(&link, "sg:a").await.expect("counts"), 1);

    // By its name as well as by its address.
    let named = server.url().replace("127.0.0.1", "localhost");
    let named = config(&named).tls(Tls { ca: ca.clone(), client: client.clone() }).expect("certificates");
    let link = Link::start(&named).expect("a link");
    assert!(link.connected(Instant::now() + PATIENCE).await);

    let nameless = config(&server.url()).tls(Tls { ca, client: None }).expect("certificates");
    refused(&nameless).await;
    let trusting_browsers = config(&server.url()).tls(Tls { ca: None, client }).expect("certificates");
    refused(&trusting_browsers).await;
}

async fn refused(config: &RedisConfig) {
    let link = Link::start(config).expect("a link");
    let tried = Instant::now() + Duration::from_millis(500);
    assert!(!link.connected(tried).await, "{config:?}");
    assert_eq!(outcome(&count_within(&link, "sg:a", SHORT).await), "unavailable disconnected");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_unix_socket_will_do() {
    let server = Server::start();
    let link = connected(&format!("redis+unix://{}?db=3", server.socket().display())).await;
    assert_eq!(count(&link, "sg:a").await.expect("counts"), 1);
    assert!(server.info("db3").starts_with("keys=1"), "it lies in the database of the URL");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_and_a_password_of_the_url_are_used() {
    let server = Server::options().password("p@ss word/").start();
    let link = connected(&format!("redis://:p%40ss%20word%2F@{}/5", server.address())).await;
    assert_eq!(count(&link, "sg:a").await.expect("counts"), 1);
    assert!(server.info("db5").starts_with("keys=1"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_release_that_is_here_is_spoken_to() {
    let releases = Release::installed();
    assert!(!releases.is_empty());
    for release in releases {
        let server = Server::options().release(release).start();
        let link = connected(&server.url()).await;
        assert_eq!(count(&link, "sg:a").await.expect("counts"), 1, "{release:?}");
        server.ask::<()>(&["CONFIG", "SET", "maxmemory", "1"]);
        assert_eq!(outcome(&count(&link, "sg:a").await), "unavailable out_of_memory", "{release:?}");
        server.ask::<()>(&["CONFIG", "SET", "maxmemory", "0"]);
        let half = script("redis.call('INCR', KEYS[1]) return redis.call('LPUSH', KEYS[1], 'x')");
        let stopped = link.script(0, &half, &[b"sg:a"], &[], Instant::now() + GENEROUS).await;
        assert_eq!(outcome(&stopped), "lost foreign_key", "{release:?}");
        server.ask::<()>(&["ACL", "SETUSER", "default", "-del"]);
        let denied = script("return redis.call('DEL', KEYS[1])");
        let stopped = link.script(0, &denied, &[b"sg:a"], &[], Instant::now() + GENEROUS).await;
        assert_eq!(outcome(&stopped), "lost no_permission", "{release:?}");
    }
}
