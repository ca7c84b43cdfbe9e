//! The port of the proxy: open, or as if nobody had ever listened there.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, mpsc};

use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::faults::Shared;
use super::pump;
use crate::port;

/// How often another port is tried: a free one may be taken in between.
const PORTS_MAX: u32 = 5;

/// The task that accepts, for those who tell it to.
#[derive(Debug)]
pub(super) struct Accepting {
    orders: UnboundedSender<Order>,
}

/// Whether to listen, and who waits until that is so.
type Order = (bool, mpsc::Sender<Result<(), String>>);

impl Accepting {
    pub(super) fn start(runtime: &Runtime, shared: &Arc<Shared>) -> (Self, SocketAddr) {
        let _in_runtime = runtime.enter();
        let listener = (0..PORTS_MAX)
            .find_map(|_| listen((Ipv4Addr::LOCALHOST, port::free()).into()).ok())
            .expect("a free port of the loopback");
        let address = listener.local_addr().expect("a bound socket has an address");
        let (orders, received) = unbounded_channel();
        runtime.spawn(run(listener, address, received, Arc::clone(shared)));
        (Self { orders }, address)
    }

    pub(super) fn accept(&self) {
        self.order(true);
    }

    pub(super) fn refuse(&self) {
        self.order(false);
    }

    /// Returns when it is so. This blocks, for as long as a system call takes, since another runtime does it.
    fn order(&self, listen: bool) {
        let (reply, done) = mpsc::channel();
        self.orders.send((listen, reply)).expect("it accepts as long as the proxy lives");
        if let Err(error) = done.recv().expect("it answers") {
            panic!("the proxy's port is no longer to be had: {error}");
        }
    }
}

async fn run(
    listener: TcpListener,
    address: SocketAddr,
    mut orders: UnboundedReceiver<Order>,
    shared: Arc<Shared>,
) {
    let mut listening = Some(listener);
    loop {
        tokio::select! {
            order = orders.recv() => {
                let Some((listen_now, reply)) = order else { return };
                let done = match (listen_now, listening.is_some()) {
                    (true, false) => listen(address).map(|listener| listening = Some(listener)),
                    (false, true) => {
                        listening = None;
                        Ok(())
                    }
                    _ => Ok(()),
                };
                let _ = reply.send(done.map_err(|error| error.to_string()));
            }
            client = accept(listening.as_ref()) => {
                let number = shared.number_connection();
                tokio::spawn(pump::connection(number, client, Arc::clone(&shared)));
            }
        }
    }
}

/// The next client; while nobody listens there is none.
async fn accept(listening: Option<&TcpListener>) -> tokio::net::TcpStream {
    let Some(listener) = listening else { return std::future::pending().await };
    loop {
        // A client that has left again is no reason to stop.
        if let Ok((client, _)) = listener.accept().await {
            return client;
        }
    }
}

fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    let listener = std::net::TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener)
}
