//! One server: it starts, answers, freezes, restarts, and never outlives its test.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, test_kill_process};
use slidegate_testbed::redis::{Release, Server};
use slidegate_testbed::{process, wait};

fn runs(pid: u32) -> bool {
    test_kill_process(Pid::from_raw(pid.try_into().unwrap()).unwrap()).is_ok()
}

/// What the server answers to a client that says `words` and nothing before.
fn says(server: &Server, words: &str) -> String {
    let mut stream = TcpStream::connect(server.address()).unwrap();
    stream.write_all(words.as_bytes()).unwrap();
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).unwrap();
    line
}

#[test]
fn it_answers_at_its_port_and_forgets_all_in_a_restart() {
    let server = Server::start();
    assert_eq!(server.url(), format!("redis://127.0.0.1:{}", server.port()));
    assert_eq!(says(&server, "SET a 1\r\n"), "+OK\r\n");
    assert_eq!(server.ask::<i64>(&["GET", "a"]), 1);
    assert_eq!(server.info("process_id"), server.pid().to_string());
    let (port, pid) = (server.port(), server.pid());
    server.restart();
    assert_eq!(server.port(), port);
    assert_ne!(server.pid(), pid);
    assert_eq!(server.ask::<Option<i64>>(&["GET", "a"]), None);
    assert_eq!(says(&server, "PING\r\n"), "+PONG\r\n");
}

#[test]
fn a_frozen_one_accepts_and_answers_nothing_until_it_may_go_on() {
    let server = Server::start();
    server.stop();
    let mut stream = TcpStream::connect(server.address()).unwrap();
    stream.write_all(b"PING\r\n").unwrap();
    stream.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    assert!(stream.read(&mut [0; 1]).is_err(), "frozen");
    server.cont();
    stream.set_read_timeout(None).unwrap();
    let mut answer = [0; 7];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"+PONG\r\n");
}

#[test]
fn dropping_ends_it_even_when_frozen_and_when_the_test_panics() {
    let server = Server::start();
    let pid = server.pid();
    server.stop();
    let panicked = std::thread::spawn(move || {
        let _server = server;
        panic!("on purpose");
    });
    assert!(panicked.join().is_err());
    assert!(!runs(pid));
}

#[test]
fn one_that_several_tests_share_outlives_the_thread_that_started_it() {
    let server = std::thread::spawn(Server::start).join().unwrap();
    assert_eq!(server.ask::<String>(&["PING"]), "PONG");
}

#[test]
#[ignore = "the process that the next test kills"]
fn starts_a_server_and_waits_to_be_killed() {
    let server = Server::start();
    println!("pid {}", server.pid());
    let _ = std::io::stdin().read(&mut [0; 1]);
    assert!(runs(server.pid()));
}

#[test]
fn a_test_process_that_is_killed_leaves_no_server_behind() {
    if process::on_path("setpriv").is_none() {
        eprintln!("skipped: no setpriv, so there is no guard");
        return;
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--ignored", "--exact", "--nocapture", "starts_a_server_and_waits_to_be_killed"]);
    let mut killed = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(killed.stdout.take().unwrap()).lines().map(Result::unwrap);
    let pid: u32 = said.find_map(|line| line.split_once("pid ")?.1.parse().ok()).unwrap();
    assert!(runs(pid));
    killed.kill().unwrap();
    killed.wait().unwrap();
    wait::until("the end of the server", wait::PATIENCE, || !runs(pid));
}

#[test]
fn a_taken_port_fails_a_restart_with_what_the_server_said() {
    let server = Server::start();
    server.kill();
    let taken = std::net::TcpListener::bind(server.address()).unwrap();
    let panicked = std::panic::catch_unwind(|| server.restart()).unwrap_err();
    let message = panicked.downcast_ref::<String>().unwrap();
    assert!(message.contains("Address already in use"), "{message}");
    drop(taken);
    server.restart();
    assert_eq!(server.ask::<String>(&["PING"]), "PONG");
}

#[test]
fn passwords_users_and_memory_are_as_asked_and_do_not_hinder_the_operator() {
    let server = Server::options()
        .password("secret")
        .user("limiter", "on >other ~sg:* resetchannels +get +set")
        .max_memory(2_000_000, "noeviction")
        .start();
    assert_eq!(server.url(), format!("redis://:secret@127.0.0.1:{}", server.port()));
    assert!(says(&server, "GET a\r\n").starts_with("-NOAUTH"));
    assert_eq!(says(&server, "AUTH secret\r\n"), "+OK\r\n");
    assert_eq!(says(&server, "AUTH limiter other\r\n"), "+OK\r\n");
    assert_eq!(server.ask::<String>(&["ACL", "DRYRUN", "limiter", "GET", "sg:1"]), "OK");
    let refused: String = server.ask(&["ACL", "DRYRUN", "limiter", "GET", "other"]);
    assert!(refused.contains("no permissions"), "{refused}");
    assert_eq!(server.ask::<(String, String)>(&["CONFIG", "GET", "maxmemory"]).1, "2000000");
    let error = server.command(&["NOSUCH"]).unwrap_err();
    assert!(error.to_string().contains("unknown command"), "{error}");
}

#[test]
fn its_unix_socket_answers_too() {
    let server = Server::start();
    let mut stream = std::os::unix::net::UnixStream::connect(server.socket()).unwrap();
    stream.write_all(b"PING\r\n").unwrap();
    let mut answer = [0; 7];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"+PONG\r\n");
}

#[test]
fn every_installed_release_runs() {
    let installed = Release::installed();
    assert!(installed.contains(&Release::Debian), "`cargo xtask test` installs it");
    for release in installed {
        let server = Server::options().release(release).start();
        let version =
            server.info(if release == Release::Valkey { "valkey_version" } else { "redis_version" });
        eprintln!("{release:?}: {version}");
        assert!(says(&server, "EVAL 'return 1' 0\r\n").starts_with(":1"));
    }
}

#[test]
fn with_tls_only_those_with_a_certificate_of_its_authority_are_answered() {
    let server = Server::options().tls().start();
    assert!(server.url().starts_with("rediss://"));
    let certificates = server.certificates();
    let ask = |with: &[&str]| {
        let mut command = Command::new("redis-cli");
        command.args(["-p", &server.port().to_string(), "--tls", "--cacert"]).arg(certificates.authority());
        let output = command.args(with).arg("PING").output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
    };
    let certificate = certificates.client_certificate().display().to_string();
    let key = certificates.client_key().display().to_string();
    assert_eq!(ask(&["--cert", &certificate, "--key", &key]), "PONG\n");
    assert!(!ask(&[]).contains("PONG"), "no certificate");
}
