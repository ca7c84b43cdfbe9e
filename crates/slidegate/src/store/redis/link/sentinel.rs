//! Who the master is, according to the sentinels.
//!
//! Every configured sentinel is listened to, since any of them may be the one that is cut off: for the events of
//! a failover, and asked every second besides, as events get lost. What each says carries the configuration
//! epoch under which it became true, and the highest epoch wins: a sentinel that was away for a while repeats
//! what was true before.
//!
//! A sentinel names the promoted server from the moment on that it has confirmed its promotion, which is before
//! it publishes `+switch-master`; so the event before that one is listened to as well.

use std::sync::Arc;
use std::time::Duration;

use ::redis::aio::MultiplexedConnection;
use ::redis::{Pipeline, PushInfo, PushKind, Value};
use parking_lot::Mutex;
use tokio::sync::mpsc::{self, UnboundedReceiver};
use tokio::sync::{Notify, watch};
use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

use super::open::{SharedConnector, field, text};
use super::pause::{Pause, jittered};
use crate::store::redis::url::Address;

/// Published when the master of a name is another one now, and when its successor has taken over.
const EVENTS: [&str; 2] = ["+switch-master", "+failover-state-reconf-slaves"];
/// The net below the events.
const ASK_EVERY: Duration = Duration::from_secs(1);
/// Between questions, however many calls fail.
const ASK_SPACING: Duration = Duration::from_millis(50);

/// The tasks that listen; dropping ends them.
pub(super) struct Sentinels {
    tasks: Vec<AbortHandle>,
}

impl Drop for Sentinels {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

/// What a sentinel said last.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Said {
    epoch: u64,
    master: Address,
}

/// What all of them said last, and what follows from it.
struct Board {
    name: String,
    said: Mutex<Vec<Option<Said>>>,
    master: watch::Sender<Option<Address>>,
}

impl Board {
    /// Notes what one sentinel says, and names the master that follows.
    fn note(&self, index: usize, said: Option<Said>) {
        let mut all = self.said.lock();
        all[index] = said;
        // Of equal epochs the one just heard: within a failover, epochs change before addresses do.
        let heard = all[index].iter();
        let newest = heard.chain(all.iter().flatten()).fold(None, |best: Option<&Said>, said| match best {
            Some(best) if best.epoch >= said.epoch => Some(best),
            _ => Some(said),
        });
        let Some(newest) = newest else {
            return;
        };
        self.master.send_if_modified(|master| {
            let changed = master.as_ref() != Some(&newest.master);
            if changed {
                info!(master = %newest.master, name = %self.name, epoch = newest.epoch, "Sentinel names the master");
                *master = Some(newest.master.clone());
            }
            changed
        });
    }
}

impl Sentinels {
    /// Listens to all of them. `trouble` makes them be asked at once.
    pub(super) fn start(
        connector: &SharedConnector,
        sentinels: &[Address],
        name: &str,
        trouble: &Arc<Notify>,
    ) -> (Self, watch::Receiver<Option<Address>>) {
        let (master, named) = watch::channel(None);
        let board =
            Arc::new(Board { name: name.to_owned(), said: Mutex::new(vec![None; sentinels.len()]), master });
        let ask = Arc::new(Notify::new());
        let listen = |(index, address): (usize, &Address)| {
            let sentinel = Sentinel {
                index,
                address: address.clone(),
                connector: connector.clone(),
                board: board.clone(),
                ask: ask.clone(),
            };
            tokio::spawn(sentinel.follow()).abort_handle()
        };
        let mut tasks: Vec<_> = sentinels.iter().enumerate().map(listen).collect();
        tasks.push(tokio::spawn(relay(trouble.clone(), ask)).abort_handle());
        (Self { tasks }, named)
    }
}

/// Passes trouble on to every sentinel, but not more often than is of use.
async fn relay(trouble: Arc<Notify>, ask: Arc<Notify>) {
    loop {
        trouble.notified().await;
        ask.notify_waiters();
        sleep(ASK_SPACING).await;
    }
}

/// One sentinel.
struct Sentinel {
    index: usize,
    address: Address,
    connector: SharedConnector,
    board: Arc<Board>,
    ask: Arc<Notify>,
}

/// Why a sentinel is not listened to any more.
enum Ended {
    Silent,
    Closed,
    Refused,
    NoSuchMaster,
}

impl Ended {
    const fn text(&self) -> &'static str {
        match self {
            Self::Silent => "it does not answer",
            Self::Closed => "it closed the connection",
            Self::Refused => "it refuses to be asked: see its users and passwords",
            Self::NoSuchMaster => "it knows no master of this name",
        }
    }
}

impl Sentinel {
    /// Connects, listens, connects again.
    async fn follow(self) {
        let mut pause = Pause::new();
        let mut told = false;
        loop {
            let (pushes, pushed) = mpsc::unbounded_channel();
            let why = match self.connector.listen(&self.address, pushes).await {
                Err(error) => error.why,
                Ok((connection, driver)) => {
                    let ended = self.listen(connection, driver, pushed, &mut pause, &mut told).await;
                    ended.text().to_owned()
                }
            };
            // Its word counts no more while it is away, unless nobody else's does.
            if self.board.said.lock().iter().flatten().count() > 1 {
                self.board.note(self.index, None);
            }
            if !std::mem::replace(&mut told, true) {
                warn!(sentinel = %self.address, name = %self.board.name, "not listening to a sentinel: {why}");
            }
            sleep(pause.next()).await;
        }
    }

    async fn listen(
        &self,
        mut connection: MultiplexedConnection,
        mut driver: JoinHandle<()>,
        mut pushed: UnboundedReceiver<PushInfo>,
        pause: &mut Pause,
        told: &mut bool,
    ) -> Ended {
        let patience = self.connector.patience();
        let ended = async {
            match timeout(patience, connection.subscribe(&EVENTS[..])).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return Ended::Refused,
                Err(_) => return Ended::Silent,
            }
            loop {
                match timeout(patience, question(&mut connection, &self.board.name)).await {
                    Err(_) => return Ended::Silent,
                    Ok(Err(ended)) => return ended,
                    Ok(Ok(said)) => self.board.note(self.index, Some(said)),
                }
                pause.reset();
                *told = false;
                tokio::select! {
                    () = event(&mut pushed) => {}
                    () = self.ask.notified() => {}
                    () = sleep(jittered(ASK_EVERY)) => {}
                }
            }
        };
        let ended = tokio::select! {
            ended = ended => ended,
            _ = &mut driver => Ended::Closed,
        };
        driver.abort();
        ended
    }
}

/// Waits for an event; confirmations of the subscription are none.
async fn event(pushed: &mut UnboundedReceiver<PushInfo>) {
    loop {
        match pushed.recv().await {
            Some(push) if push.kind == PushKind::Message => return,
            Some(_) => {}
            // The driver has ended, which is noticed elsewhere.
            None => std::future::pending().await,
        }
    }
}

/// Asks for the address, as it is in the middle of a failover too, and for the epoch that goes with it.
async fn question(connection: &mut MultiplexedConnection, name: &str) -> Result<Said, Ended> {
    let mut both = Pipeline::new();
    both.cmd("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME").arg(name);
    both.cmd("SENTINEL").arg("MASTER").arg(name);
    let replies = connection.send_packed_commands(&both, 0, 2).await.map_err(|_| Ended::Closed)?;
    let [address, master] = replies.as_slice() else {
        return Err(Ended::Refused);
    };
    let epoch = field(master, "config-epoch").and_then(|epoch| epoch.parse().ok());
    match address {
        Value::Array(parts) => {
            let [host, port] = parts.as_slice() else {
                return Err(Ended::Refused);
            };
            let port = text(port).and_then(|port| port.parse().ok());
            let (Some(host), Some(port)) = (text(host), port) else {
                return Err(Ended::Refused);
            };
            Ok(Said { epoch: epoch.unwrap_or(0), master: Address::Tcp(host.to_owned(), port) })
        }
        Value::Nil => Err(Ended::NoSuchMaster),
        _ => Err(Ended::Refused),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(epoch: u64, port: u16) -> Option<Said> {
        Some(Said { epoch, master: Address::Tcp("m".to_owned(), port) })
    }

    fn board(count: usize) -> (Board, watch::Receiver<Option<Address>>) {
        let (master, named) = watch::channel(None);
        (Board { name: "mymaster".to_owned(), said: Mutex::new(vec![None; count]), master }, named)
    }

    fn port(named: &watch::Receiver<Option<Address>>) -> Option<u16> {
        match named.borrow().as_ref() {
            Some(Address::Tcp(_, port)) => Some(*port),
            _ => None,
        }
    }

    #[test]
    fn the_newest_epoch_wins_over_a_sentinel_that_was_away() {
        let (board, named) = board(3);
        board.note(0, said(1, 1));
        assert_eq!(port(&named), Some(1));
        board.note(1, said(2, 2));
        assert_eq!(port(&named), Some(2));
        board.note(2, said(1, 1));
        assert_eq!(port(&named), Some(2), "it repeats what was true before");
        board.note(0, said(2, 2));
        assert_eq!(port(&named), Some(2));
    }

    #[test]
    fn within_an_epoch_the_last_word_counts() {
        let (board, named) = board(2);
        board.note(0, said(1, 1));
        board.note(1, said(1, 1));
        board.note(0, said(1, 2));
        assert_eq!(port(&named), Some(2));
    }

    #[test]
    fn sentinels_that_were_reset_count_again_from_nothing() {
        let (board, named) = board(2);
        board.note(0, said(7, 1));
        board.note(1, said(7, 1));
        board.note(0, said(0, 2));
        board.note(1, said(0, 2));
        assert_eq!(port(&named), Some(2));
    }
}
