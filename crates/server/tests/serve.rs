//! `slidegate serve` as a process: what it says, and how it begins and ends.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A configuration with the gateway at this address.
fn configuration(folder: &Path, listen: SocketAddr) -> PathBuf {
    let path = folder.join("slidegate.yaml");
    let text = format!(
        "policies: [{{ name: all, limits: [1/h] }}]\n\
         gateway: {{ listen: \"{listen}\", routes: [{{ match: {{ prefix: / }}, policies: [all], upstream: echo }}] }}\n"
    );
    std::fs::write(&path, text).unwrap();
    path
}

fn serve(config: &Path) -> Child {
    let program = assert_cmd::cargo::cargo_bin("slidegate");
    let mut command = Command::new(program);
    command.args(["serve", "--config"]).arg(config);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Ends the server when a test fails before it does.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn status_of(address: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").unwrap();
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).unwrap();
    line.trim_end().to_owned()
}

fn terminate(server: &Child) {
    assert!(Command::new("kill").args(["-TERM", &server.id().to_string()]).status().unwrap().success());
}

#[test]
fn it_says_where_it_listens_limits_and_ends_with_0_at_sigterm() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Ended(serve(&configuration(folder.path(), ([127, 0, 0, 1], 0).into())));
    let mut said = BufReader::new(server.0.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert_eq!(said.next().unwrap(), "POLICY  LIMIT  PERMITS   ALGORITHM       KEY          COST  NOTES");
    let address = said.find_map(|line| line.strip_prefix("gateway  http://").map(str::to_owned)).unwrap();
    assert_eq!(status_of(&address), "HTTP/1.1 200 OK");
    assert_eq!(status_of(&address), "HTTP/1.1 429 Too Many Requests");
    terminate(&server.0);
    assert_eq!(server.0.wait().unwrap().code(), Some(0));
}

// R173: a request that hung kept the process until it was killed. Whoever can't wait for the grace says so.
#[test]
fn a_second_signal_ends_it_at_once_whatever_hangs() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Ended(serve(&configuration(folder.path(), ([127, 0, 0, 1], 0).into())));
    let mut said = BufReader::new(server.0.stdout.take().unwrap()).lines().map(Result::unwrap);
    let address = said.find_map(|line| line.strip_prefix("gateway  http://").map(str::to_owned)).unwrap();
    let mut hung = TcpStream::connect(address).unwrap();
    hung.write_all(b"POST / HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\ncontent-length: 1\r\n\r\n")
        .unwrap();
    let mut going_on = [0; 12];
    hung.read_exact(&mut going_on).unwrap();
    assert_eq!(&going_on, b"HTTP/1.1 100");
    let mut log = BufReader::new(server.0.stderr.take().unwrap()).lines().map(Result::unwrap);
    terminate(&server.0);
    assert!(log.any(|line| line.contains("SIGTERM: stopping")));
    assert!(server.0.try_wait().unwrap().is_none(), "it waits for the request");
    terminate(&server.0);
    assert!(log.any(|line| line.contains("told to stop twice: ending at once")));
    assert_eq!(server.0.wait().unwrap().code(), Some(1));
}

// Printing to a pipe that nobody reads any more (`slidegate serve | head`) was a panic before the first port
// was bound.
#[test]
fn a_taken_port_is_an_error_whether_or_not_anybody_reads_along() {
    let folder = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let mut server = Ended(serve(&configuration(folder.path(), address)));
    drop(server.0.stdout.take());
    let mut said = String::new();
    server.0.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(said.contains(&format!("error: gateway: can't listen on {address}: ")), "{said}");
    assert_eq!(server.0.wait().unwrap().code(), Some(1));
}
