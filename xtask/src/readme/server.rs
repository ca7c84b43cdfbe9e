//! The server that the README's commands talk to: started, waited for, stopped; never left behind.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream};
use std::process::{Child, ExitStatus};
use std::time::Duration;

use crate::step::{self, Done, Failure};
use crate::time;

/// Where `serve` listens when it is given no configuration: gateway, API, admin.
pub(super) const DEFAULT_ADDRESSES: [SocketAddr; 3] = [loopback(8080), loopback(8082), loopback(8090)];

/// From an up-to-date build to listening takes well below a second, most of it cargo's; sixty times that
/// allows for a machine that is busy with other builds.
const START_PATIENCE: Duration = Duration::from_secs(60);

/// Longer than any request that was let in may take to end.
const STOP_PATIENCE: Duration = Duration::from_secs(40);

/// One connection attempt on the loopback interface is answered or refused at once.
const CONNECT_PATIENCE: Duration = Duration::from_secs(1);

/// A running server; dropping it kills it.
pub(super) struct Server {
    command: String,
    child: Child,
}

impl Server {
    /// Returns once all of `addresses` accept connections. Refuses to begin while something else listens on
    /// one of them, since that would be taken for the server.
    pub(super) fn start(command: &str, addresses: &[SocketAddr]) -> Result<Self, Failure> {
        if let Some(address) = addresses.iter().find(|address| listens(address)) {
            return Err(Failure::Step(format!(
                "something listens on {address} already: stop it, then run this again"
            )));
        }
        step::announce(command);
        let child = step::shell(&format!("exec {command}"))
            .spawn()
            .map_err(|error| Failure::Step(format!("`{command}` can't be run: {error}")))?;
        let mut server = Self { command: command.to_owned(), child };
        server.wait_for(addresses)?;
        step::note(&format!("process {} listens", server.child.id()));
        Ok(server)
    }

    fn wait_for(&mut self, addresses: &[SocketAddr]) -> Done {
        let seen = time::until(START_PATIENCE, || match self.ended() {
            Some(status) => Some(Err(status)),
            None => addresses.iter().all(listens).then_some(Ok(())),
        });
        match seen {
            Some(Ok(())) => Ok(()),
            Some(Err(status)) => Err(self.fault(&format!("ended before it listened: {status}"))),
            None => {
                let silent: Vec<String> =
                    addresses.iter().filter(|address| !listens(address)).map(ToString::to_string).collect();
                let waited = START_PATIENCE.as_secs();
                Err(self.fault(&format!("does not listen on {} after {waited} s", silent.join(", "))))
            }
        }
    }

    /// Asks the process to stop, as a person or a supervisor would, and expects it to end well.
    pub(super) fn stop(mut self) -> Done {
        let kill = format!("kill -TERM {}", self.child.id());
        step::run_in_shell(&kill)?;
        match time::until(STOP_PATIENCE, || self.ended()) {
            Some(status) if status.success() => Ok(()),
            Some(status) => Err(self.fault(&format!("did not end well when asked to stop: {status}"))),
            None => Err(self.fault(&format!("still runs {} s after `{kill}`", STOP_PATIENCE.as_secs()))),
        }
    }

    fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    fn fault(&self, what: &str) -> Failure {
        Failure::Step(format!("`{}` {what}", self.command))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Both fail only when it has ended already, which is what is wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(super) const fn loopback(port: u16) -> SocketAddr {
    SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, port))
}

fn listens(address: &SocketAddr) -> bool {
    TcpStream::connect_timeout(address, CONNECT_PATIENCE).is_ok()
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::{env, fs, process};

    use super::*;

    /// Does nothing, for ever; a signal ends it by its default action.
    const IDLE: &str = "tail -f /dev/null";

    /// Reserved for a service that nobody runs.
    const SILENT: SocketAddr = loopback(1);

    fn told(outcome: Result<Server, Failure>) -> String {
        outcome.err().unwrap().to_string()
    }

    #[test]
    fn a_server_that_ends_at_once_is_told_with_its_status() {
        assert_eq!(
            told(Server::start("false", &[SILENT])),
            "`false` ended before it listened: exit status: 1"
        );
    }

    #[test]
    fn an_address_in_use_is_refused_before_anything_runs() {
        let other = TcpListener::bind(loopback(0)).unwrap();
        let address = other.local_addr().unwrap();
        assert_eq!(
            told(Server::start("false", &[address])),
            format!("something listens on {address} already: stop it, then run this again")
        );
    }

    #[test]
    fn waiting_ends_when_every_address_accepts() {
        let mut server = Server::start(IDLE, &[]).unwrap();
        let listener = TcpListener::bind(loopback(0)).unwrap();
        assert_eq!(server.wait_for(&[listener.local_addr().unwrap()]), Ok(()));
    }

    #[test]
    fn a_server_that_dies_of_the_request_to_stop_did_not_end_well() {
        let failure = Server::start(IDLE, &[]).unwrap().stop().unwrap_err();
        assert_eq!(
            failure.to_string(),
            format!("`{IDLE}` did not end well when asked to stop: signal: 15 (SIGTERM)")
        );
    }

    #[test]
    fn a_server_that_stops_when_asked_is_fine() {
        let ready = env::temp_dir().join(format!("xtask-server-{}", process::id()));
        let stand_in =
            format!("sh -c \"trap 'exit 0' TERM; touch '{}'; while :; do :; done\"", ready.display());
        let server = Server::start(&stand_in, &[]).unwrap();
        assert_eq!(time::until(START_PATIENCE, || ready.exists().then_some(())), Some(()));
        fs::remove_file(&ready).unwrap();
        assert_eq!(server.stop(), Ok(()));
    }

    #[test]
    fn a_dropped_server_is_not_left_behind() {
        let server = Server::start(IDLE, &[]).unwrap();
        let probe = format!("kill -0 {}", server.child.id());
        assert_eq!(step::run_in_shell(&probe), Ok(()));
        drop(server);
        assert!(step::run_in_shell(&probe).is_err());
    }
}
