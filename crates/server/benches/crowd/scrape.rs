//! Counters that a gateway's admin port shows.

use std::io::{Read, Write};
use std::net::TcpStream;

/// Checks that the store did not decide, by why; then what was answered for it.
const FAMILIES: [&str; 2] = ["slidegate_store_failures_total{", "slidegate_store_bypassed_checks_total{"];

/// What the samples that tell why requests failed add up to over all gateways, in the order in which they
/// are shown.
pub(crate) fn failures(admins: &[String]) -> Vec<(String, u64)> {
    let mut sums: Vec<(String, u64)> = Vec::new();
    for admin in admins {
        for (name, value) in samples(&metrics(admin)) {
            match sums.iter_mut().find(|(known, _)| *known == name) {
                Some((_, sum)) => *sum += value,
                None => sums.push((name, value)),
            }
        }
    }
    sums
}

fn samples(text: &str) -> Vec<(String, u64)> {
    let wanted = text.lines().filter(|line| FAMILIES.iter().any(|family| line.starts_with(family)));
    wanted
        .filter_map(|line| {
            let (name, value) = line.rsplit_once(' ')?;
            Some((name.trim_start_matches("slidegate_").to_owned(), value.parse().ok()?))
        })
        .collect()
}

fn metrics(admin: &str) -> String {
    let mut stream = TcpStream::connect(admin).expect("an admin port that listens");
    let request = format!("GET /metrics HTTP/1.1\r\nhost: {admin}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("a server that reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("text until the connection ends");
    answer
}
