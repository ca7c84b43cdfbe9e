//! What a server is asked, as it says itself.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;

use slidegate::core::time::Millis;
use slidegate::store::redis::RedisConfig;
use slidegate::{Ask, Limiter, Policy, RedisStore};
use slidegate_testbed::redis::Server;

/// What `MONITOR` shows until `last` comes by: what clients send, without the commands inside scripts.
fn sent_until(last: &str, monitor: &mut impl BufRead) -> Vec<String> {
    let mut sent = Vec::new();
    loop {
        let mut line = String::new();
        assert!(monitor.read_line(&mut line).unwrap() > 0, "the server ended");
        if line.contains(last) {
            return sent;
        }
        if !line.contains(" lua] ") && !line.starts_with("+OK") {
            sent.push(line);
        }
    }
}

// R039, R042: every key in KEYS, under the prefix. And a check costs one round trip, whatever it names.
#[tokio::test]
async fn a_check_of_several_policies_and_limits_is_one_evalsha() {
    let server = Server::start();
    let store = RedisStore::start(&RedisConfig::parse(&server.url()).unwrap()).unwrap();
    assert!(store.connected(Millis(5_000)).await);
    let limiter = Limiter::builder()
        .policy(Policy::builder("user").limits("10/s; 100/m").key("{header:x-user}").build().unwrap())
        .policy(Policy::builder("all").limits("500/s").build().unwrap())
        .store(store)
        .build()
        .unwrap();
    let asks = [Ask::new("user", &["7"]), Ask::new("all", &[])];
    // The first teaches the server the script.
    assert!(limiter.check_all(&asks).await.unwrap().is_allowed());

    let mut connection = TcpStream::connect(server.address()).unwrap();
    connection.write_all(b"MONITOR\r\n").unwrap();
    let mut monitor = BufReader::new(connection);
    let mut confirmed = String::new();
    monitor.read_line(&mut confirmed).unwrap();
    assert_eq!(confirmed, "+OK\r\n");

    assert!(limiter.check_all(&asks).await.unwrap().is_allowed());
    server.ask::<String>(&["ECHO", "that was it"]);
    // The link's watchdog may come by, and the heartbeat.
    let sent = sent_until("that was it", &mut monitor);
    let of_checks: Vec<&String> = sent.iter().filter(|line| line.contains("sg:{header:x-user=7}")).collect();
    let [call] = of_checks[..] else { panic!("{sent:?}") };
    let words: Vec<&str> = call.split('"').skip(1).step_by(2).collect();
    assert_eq!((words[0].to_ascii_uppercase().as_str(), words[2]), ("EVALSHA", "3"), "{call}");
    assert_eq!(
        words[3..6],
        ["sg:{header:x-user=7}:user:1", "sg:{header:x-user=7}:user:2", "sg:{all}:all:1"],
        "{call}"
    );
}
