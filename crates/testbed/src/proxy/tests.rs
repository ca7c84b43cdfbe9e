#![cfg(test)]

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

use super::*;
use crate::redis::Server;
use crate::wait;

/// How long nothing must come for it to count as nothing. What does come takes well below a millisecond.
const SILENCE: Duration = Duration::from_millis(60);

/// A client that sends one command at a time.
struct Client(TcpStream);

impl Client {
    fn new(proxy: &FaultProxy) -> Self {
        let stream = TcpStream::connect(proxy.address()).unwrap();
        stream.set_read_timeout(Some(wait::PATIENCE)).unwrap();
        Self(stream)
    }

    fn send(&mut self, command: &str) {
        self.0.write_all(format!("{command}\r\n").as_bytes()).unwrap();
    }

    fn ask(&mut self, command: &str) -> String {
        self.send(command);
        self.answer().unwrap()
    }

    /// One line.
    fn answer(&mut self) -> std::io::Result<String> {
        let mut line = Vec::new();
        while !line.ends_with(b"\r\n") {
            let mut byte = [0];
            self.0.read_exact(&mut byte)?;
            line.extend(byte);
        }
        Ok(String::from_utf8_lossy(&line).trim_end().to_owned())
    }

    fn hears_nothing(&mut self) -> bool {
        self.0.set_read_timeout(Some(SILENCE)).unwrap();
        let nothing = self.0.read(&mut [0]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock);
        self.0.set_read_timeout(Some(wait::PATIENCE)).unwrap();
        nothing
    }
}

fn server_and_proxy() -> (Server, FaultProxy) {
    let server = Server::start();
    let proxy = FaultProxy::start(&server.address());
    (server, proxy)
}

#[test]
fn what_passes_is_counted() {
    let (_server, proxy) = server_and_proxy();
    let mut client = Client::new(&proxy);
    assert_eq!(client.ask("*1\r\n$4\r\nPING"), "+PONG");
    client.send("PING\r\nINCR a");
    assert_eq!((client.answer().unwrap(), client.answer().unwrap()), ("+PONG".into(), ":1".into()));
    let counts = proxy.counts();
    assert_eq!((counts.connections, counts.requests, counts.replies), (1, 3, 3));
    assert_eq!((counts.request_bytes, counts.reply_bytes), (14 + 6 + 8, 7 + 7 + 4));
}

#[test]
fn every_third_reply_vanishes_though_its_request_was_executed() {
    let (server, proxy) = server_and_proxy();
    proxy.spoil_replies(3, Fate::Vanish);
    let mut client = Client::new(&proxy);
    assert_eq!([client.ask("INCR a"), client.ask("INCR a")], [":1", ":2"]);
    client.send("INCR a");
    assert!(client.hears_nothing());
    assert_eq!(server.ask::<i64>(&["GET", "a"]), 3);
    assert_eq!(client.ask("INCR a"), ":4");
    assert_eq!(proxy.counts().spoiled, 1);
    proxy.pass();
    assert_eq!([client.ask("INCR a"), client.ask("INCR a")], [":5", ":6"]);
}

#[test]
fn a_lost_reply_can_leave_its_connection_silent_or_reset() {
    let (server, proxy) = server_and_proxy();
    let mut silent = Client::new(&proxy);
    assert_eq!(silent.ask("INCR a"), ":1");
    proxy.spoil_replies(1, Fate::VanishThenSilence);
    silent.send("INCR a");
    wait::until("the reply", wait::PATIENCE, || proxy.counts().spoiled == 1);
    proxy.spoil_replies(1, Fate::VanishThenReset);
    let mut reset = Client::new(&proxy);
    reset.send("INCR a");
    assert_eq!(reset.answer().unwrap_err().kind(), ErrorKind::ConnectionReset);
    proxy.pass();
    silent.send("INCR a");
    assert!(silent.hears_nothing());
    assert_eq!(server.ask::<i64>(&["GET", "a"]), 4);
}

#[test]
fn a_reply_is_cut_in_the_middle() {
    let (server, proxy) = server_and_proxy();
    server.ask::<()>(&["SET", "a", "0123456789"]);
    proxy.spoil_replies(2, Fate::CutAfter(7));
    let mut client = Client::new(&proxy);
    assert_eq!(client.ask("PING"), "+PONG");
    assert_eq!(client.ask("GET a"), "$10");
    let mut rest = [0; 2];
    client.0.read_exact(&mut rest).unwrap();
    assert_eq!(&rest, b"01");
    assert_eq!(client.0.read(&mut rest).unwrap_err().kind(), ErrorKind::ConnectionReset);
}

#[test]
fn a_delay_is_added_to_each_way_and_keeps_the_order() {
    let (_server, proxy) = server_and_proxy();
    let delay = Duration::from_millis(20);
    proxy.delay(Way::Requests, delay);
    proxy.delay(Way::Replies, delay * 2);
    let mut client = Client::new(&proxy);
    let start = tokio::time::Instant::now();
    client.send("INCR a\r\nINCR a\r\nINCR a");
    let answers = [client.answer().unwrap(), client.answer().unwrap(), client.answer().unwrap()];
    assert_eq!(answers, [":1", ":2", ":3"]);
    assert!(start.elapsed() >= delay * 3, "{:?}", start.elapsed());
}

#[test]
fn stalled_connections_freeze_while_new_ones_pass_and_go_on_later() {
    let (server, proxy) = server_and_proxy();
    let mut stalled = Client::new(&proxy);
    assert_eq!(stalled.ask("INCR a"), ":1");
    proxy.stall(Way::Replies);
    stalled.send("INCR a");
    assert_eq!(Client::new(&proxy).ask("PING"), "+PONG");
    assert!(stalled.hears_nothing());
    assert_eq!(server.ask::<i64>(&["GET", "a"]), 2, "replies stalled, requests did not");
    proxy.stall(Way::Both);
    stalled.send("INCR a");
    assert!(stalled.hears_nothing());
    assert_eq!(server.ask::<i64>(&["GET", "a"]), 2);
    proxy.pass();
    assert_eq!([stalled.answer().unwrap(), stalled.answer().unwrap()], [":2", ":3"]);
}

#[test]
fn a_black_hole_accepts_and_answers_nothing_even_with_nobody_behind() {
    let (server, proxy) = server_and_proxy();
    let mut old = Client::new(&proxy);
    assert_eq!(old.ask("PING"), "+PONG");
    proxy.black_hole(Way::Both);
    server.kill();
    let mut new = Client::new(&proxy);
    new.send("INCR a");
    assert!(new.hears_nothing() && old.hears_nothing());
    server.restart();
    proxy.pass();
    assert_eq!(Client::new(&proxy).ask("INCR a"), ":1", "what was lost stays lost");
}

#[test]
fn in_a_black_hole_for_replies_all_is_executed() {
    let (server, proxy) = server_and_proxy();
    proxy.black_hole(Way::Replies);
    let mut client = Client::new(&proxy);
    client.send("INCR a\r\nINCR a");
    assert!(client.hears_nothing());
    assert_eq!(server.ask::<i64>(&["GET", "a"]), 2);
}

#[test]
fn refused_is_refused_by_the_kernel_and_ends() {
    let (_server, proxy) = server_and_proxy();
    let mut old = Client::new(&proxy);
    assert_eq!(old.ask("PING"), "+PONG");
    proxy.refuse();
    let refused = TcpStream::connect(proxy.address()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    assert_eq!(old.ask("PING"), "+PONG");
    proxy.pass();
    assert_eq!(Client::new(&proxy).ask("PING"), "+PONG");
}

#[test]
fn connections_of_now_are_reset_and_later_ones_are_not() {
    let (_server, proxy) = server_and_proxy();
    let mut old = Client::new(&proxy);
    assert_eq!(old.ask("PING"), "+PONG");
    proxy.reset();
    assert_eq!(old.answer().unwrap_err().kind(), ErrorKind::ConnectionReset);
    assert_eq!(Client::new(&proxy).ask("PING"), "+PONG");
}

#[test]
fn held_requests_are_executed_late_even_if_the_client_has_left() {
    let (server, proxy) = server_and_proxy();
    proxy.hold(100, 1);
    let mut client = Client::new(&proxy);
    client.send("INCR a");
    assert!(client.hears_nothing());
    drop(client);
    assert_eq!(server.ask::<Option<i64>>(&["GET", "a"]), None);
    assert_eq!(proxy.counts().held, 1);
    proxy.release();
    wait::until("late execution", wait::PATIENCE, || server.ask::<Option<i64>>(&["GET", "a"]) == Some(1));
}

#[test]
fn a_seed_chooses_the_same_requests_again() {
    let (_server, proxy) = server_and_proxy();
    let held_with = |seed| {
        let before = proxy.counts().held;
        proxy.late(30, Duration::from_millis(1), seed);
        let mut client = Client::new(&proxy);
        let held: Vec<bool> = (0..100)
            .map(|_| {
                let before = proxy.counts().held;
                assert_eq!(client.ask("PING"), "+PONG");
                proxy.counts().held > before
            })
            .collect();
        (held, proxy.counts().held - before)
    };
    let first = held_with(7);
    assert_eq!(first, held_with(7));
    assert_ne!(first.0, held_with(8).0);
    assert!((15..=45).contains(&first.1), "about 30 of 100: {}", first.1);
}
