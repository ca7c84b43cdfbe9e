//! Ports of the loopback that nobody uses.
//!
//! A port is free when the kernel says so, which is true at that moment only: another process may take it before
//! the server does. So whoever starts a server on one has to try another when it can't listen there
//! ([`crate::redis::Server`] does). Within this process none is given out twice.

use std::collections::HashSet;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::{Mutex, PoisonError};

/// Given out in this process: a server that is restarting does not listen, and would lose its port to the next.
static GIVEN: Mutex<Option<HashSet<u16>>> = Mutex::new(None);

/// A port of 127.0.0.1 where nobody listens, and which this process has not been given before.
///
/// # Panics
///
/// When the kernel has no port left.
#[must_use]
pub fn free() -> u16 {
    let mut given = GIVEN.lock().unwrap_or_else(PoisonError::into_inner);
    let given = given.get_or_insert_default();
    // Held until one was found, else the kernel might offer the same one again and again.
    let mut refused = Vec::new();
    loop {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port of the loopback");
        let port = listener.local_addr().expect("a bound socket has an address").port();
        if given.insert(port) {
            return port;
        }
        refused.push(listener);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn none_is_given_twice_and_each_can_be_listened_on() {
        let ports: HashSet<u16> = (0..64).map(|_| free()).collect();
        assert_eq!(ports.len(), 64);
        assert!(ports.iter().any(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok()));
    }
}
