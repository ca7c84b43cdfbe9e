//! R7: five million client addresses through a store of one million keys: `cargo xtask bench memory_bound`.
//!
//! Prints the memory of the process before and after, and ends with an error if the store outgrew its
//! bound, or if a client that was denied at the start got through later.

#![expect(clippy::unwrap_used, reason = "a benchmark")]

use std::future::Future;
use std::pin::pin;
use std::process::ExitCode;
use std::task::{Context, Poll, Waker};

use slidegate::{Limiter, MemoryStore, Policy};

const MAX_KEYS: usize = 1_000_000;
const ADDRESSES: u32 = 5_000_000;

/// What docs/operating.md states for a key that is seen once: its slot, its index entries, and slack.
const BYTES_PER_KEY_MAX: u64 = 160;

fn ready<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => unreachable!("the memory store answers at once"),
    }
}

/// Resident memory of this process in bytes; 0 where the system doesn't tell.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap_or(0) * 1024
}

fn main() -> ExitCode {
    let store = MemoryStore::builder().max_keys(MAX_KEYS).build();
    let policy = Policy::builder("per-client").limits("5/h").key("{client_ip}").build().unwrap();
    let limiter = Limiter::builder().policy(policy).store(store).build().unwrap();
    let allowed = |address: &str| ready(limiter.check("per-client", &[address])).unwrap().is_allowed();

    let denied: Vec<String> = (0..1000).map(|n| format!("192.0.2.{n}")).collect();
    for address in &denied {
        while allowed(address) {}
    }
    let before = resident();
    for n in 0..ADDRESSES {
        allowed(&std::net::Ipv4Addr::from(n + 0x0a00_0000).to_string());
    }
    let grown = resident().saturating_sub(before);
    let figures = limiter.store().figures();
    let freed = denied.iter().filter(|address| allowed(address)).count();

    println!("addresses            {ADDRESSES}");
    println!("keys held            {}", figures.keys);
    println!("live evictions       {}", figures.live_evictions);
    println!("full denials         {}", figures.full_denials);
    println!("memory grown by      {} MB, {} B for each key", grown >> 20, grown / MAX_KEYS as u64);
    println!("denied clients freed {freed} of {}", denied.len());
    let bounded = figures.keys <= MAX_KEYS as u64 && grown <= BYTES_PER_KEY_MAX * MAX_KEYS as u64;
    if bounded && freed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
