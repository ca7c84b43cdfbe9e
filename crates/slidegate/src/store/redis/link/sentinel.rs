//! Who the master is, according to the sentinels.
//!
//! Every configured sentinel is listened to, since any of them may be the one that is cut off: for the events of
//! a failover, and asked every second besides, as events get lost. What each says carries the configuration
//! epoch under which it became true, and the highest epoch wins: a sentinel that was away for a while repeats
//! what was true before.
//!
//! Sentinel learns of a promotion from the next INFO that it asks for, up to a second after it happened, and
//! publishes `+switch-master` later still. For all that time the old master would be written to, and its writes
//! be lost. So the server that a failover has selected is asked itself whether it is the master yet, and is
//! gone over to as soon as it says so.

use std::sync::Arc;
use std::time::Duration;

use ::redis::aio::MultiplexedConnection;
use ::redis::{Pipeline, PushInfo, PushKind, Value};
use parking_lot::Mutex;
use tokio::sync::mpsc::{self, UnboundedReceiver};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tracing::{info, warn};

use super::open::Transport;
use super::open::{self, SharedConnector, field, text};
use super::pause::{Pause, jittered};
use super::task::OwnedTask;
use crate::error::Fault;
use crate::store::redis::url::Address;

/// Published when a failover has selected the server to promote: `slave <name> <ip> <port> @ <master> ...`.
const SELECTED: &str = "+selected-slave";
/// What is listened to: also the events after which a sentinel names another master.
const EVENTS: [&str; 3] = [SELECTED, "+failover-state-reconf-slaves", "+switch-master"];
/// How often a selected server is asked whether it is the master yet. Twenty questions are few beside the calls
/// that would be lost in a second.
const PROMOTION_ASK_EVERY: Duration = Duration::from_millis(25);
/// Until then a promotion has happened and some sentinel has confirmed it, or the failover has been given up.
const PROMOTION_MAX: Duration = Duration::from_secs(10);
/// The net below the events.
const ASK_EVERY: Duration = Duration::from_secs(1);
/// Between questions, however many calls fail.
const ASK_SPACING: Duration = Duration::from_millis(50);

/// The tasks that listen; dropping ends them.
pub(super) struct Sentinels {
    _tasks: Vec<OwnedTask>,
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
    words: Mutex<Words>,
    master: watch::Sender<Option<Address>>,
}

struct Words {
    said: Vec<Option<Said>>,
    /// The master by its own word, and until when that counts without a sentinel's.
    promoted: Option<(Address, Instant)>,
}

impl Board {
    fn new(name: &str, count: usize, master: watch::Sender<Option<Address>>) -> Self {
        let words = Words { said: vec![None; count], promoted: None };
        Self { name: name.to_owned(), words: Mutex::new(words), master }
    }

    /// Notes what one sentinel says, and names the master that follows.
    fn note(&self, index: usize, said: Option<Said>, now: Instant) {
        let mut words = self.words.lock();
        let Words { said: all, promoted } = &mut *words;
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
        if promoted.as_ref().is_some_and(|(master, end)| *master != newest.master && now < *end) {
            return;
        }
        *promoted = None;
        self.name_master(&newest.master, "Sentinel names the master");
    }

    /// Notes that a server which a failover had selected says that it is the master.
    fn note_promotion(&self, master: Address, now: Instant) {
        let mut words = self.words.lock();
        self.name_master(&master, "a failover has promoted the master");
        words.promoted = Some((master, now + PROMOTION_MAX));
    }

    /// Takes back what a sentinel said that is away, unless nobody else says anything.
    fn forget(&self, index: usize, now: Instant) {
        if self.words.lock().said.iter().flatten().count() > 1 {
            self.note(index, None, now);
        }
    }

    fn name_master(&self, newest: &Address, text: &str) {
        self.master.send_if_modified(|master| {
            let changed = master.as_ref() != Some(newest);
            if changed {
                info!(master = %newest, name = %self.name, "{text}");
                *master = Some(newest.clone());
            }
            changed
        });
    }
}

impl Sentinels {
    /// Listens to all of them. `trouble` makes them be asked at once.
    pub(super) fn start(
        connector: &SharedConnector,
        to_master: &SharedConnector,
        sentinels: &[Address],
        name: &str,
        trouble: &Arc<Notify>,
    ) -> (Self, watch::Receiver<Option<Address>>) {
        let (master, named) = watch::channel(None);
        let board = Arc::new(Board::new(name, sentinels.len(), master));
        let ask = Arc::new(Notify::new());
        let listen = |(index, address): (usize, &Address)| {
            let sentinel = Sentinel {
                index,
                address: address.clone(),
                connector: connector.clone(),
                to_master: to_master.clone(),
                board: board.clone(),
                ask: ask.clone(),
            };
            OwnedTask::spawn(sentinel.follow())
        };
        let mut tasks: Vec<_> = sentinels.iter().enumerate().map(listen).collect();
        tasks.push(OwnedTask::spawn(relay(trouble.clone(), ask)));
        (Self { _tasks: tasks }, named)
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
    to_master: SharedConnector,
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
                Ok(transport) => {
                    let ended = self.listen(transport, pushed, &mut pause, &mut told).await;
                    ended.text().to_owned()
                }
            };
            self.board.forget(self.index, Instant::now());
            if !std::mem::replace(&mut told, true) {
                warn!(sentinel = %self.address, name = %self.board.name, "not listening to a sentinel: {why}");
            }
            sleep(pause.next()).await;
        }
    }

    async fn listen(
        &self,
        transport: Transport,
        mut pushed: UnboundedReceiver<PushInfo>,
        pause: &mut Pause,
        told: &mut bool,
    ) -> Ended {
        let Transport { mut connection, driver: _driver, broken } = transport;
        let patience = self.connector.patience();
        // Ended with this function.
        let mut promotions = JoinSet::new();
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
                    Ok(Ok(said)) => self.board.note(self.index, Some(said), Instant::now()),
                }
                pause.reset();
                *told = false;
                tokio::select! {
                    event = event(&mut pushed) => {
                        if let Some(selected) = selected(&event, &self.board.name) {
                            let (connector, board) = (self.to_master.clone(), self.board.clone());
                            // Those that have ended are kept until somebody asks for them.
                            while promotions.try_join_next().is_some() {}
                            promotions.spawn(await_promotion(connector, board, selected));
                        }
                    }
                    () = self.ask.notified() => {}
                    () = sleep(jittered(ASK_EVERY)) => {}
                }
            }
        };
        tokio::select! {
            ended = ended => ended,
            _ = broken => Ended::Closed,
        }
    }
}

/// Waits for an event; confirmations of the subscription are none.
async fn event(pushed: &mut UnboundedReceiver<PushInfo>) -> PushInfo {
    loop {
        match pushed.recv().await {
            Some(push) if push.kind == PushKind::Message => return push,
            Some(_) => {}
            // The driver has ended, which is noticed elsewhere.
            None => std::future::pending().await,
        }
    }
}

/// The server that a failover of this master has selected, if that is what the event tells.
fn selected(event: &PushInfo, name: &str) -> Option<Address> {
    let [channel, payload] = event.data.as_slice() else {
        return None;
    };
    if text(channel)? != SELECTED {
        return None;
    }
    let words: Vec<&str> = text(payload)?.split(' ').collect();
    match words.as_slice() {
        ["slave", _, host, port, "@", master, ..] if *master == name => {
            Some(Address::Tcp((*host).to_owned(), port.parse().ok()?))
        }
        _ => None,
    }
}

/// Asks a selected server until it is the master.
async fn await_promotion(connector: SharedConnector, board: Arc<Board>, selected: Address) {
    let asking = async {
        loop {
            if let Ok(opened) = connector.open(&selected).await {
                let mut transport = opened.transport;
                loop {
                    match open::still_master(&mut transport.connection).await {
                        Ok(()) => return,
                        Err(Fault::ReadOnly) => sleep(PROMOTION_ASK_EVERY).await,
                        Err(_) => break,
                    }
                }
            }
            sleep(PROMOTION_ASK_EVERY).await;
        }
    };
    if timeout(PROMOTION_MAX, asking).await.is_ok() {
        board.note_promotion(selected, Instant::now());
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
        (Board::new("mymaster", count, master), named)
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
        board.note(0, said(1, 1), Instant::now());
        assert_eq!(port(&named), Some(1));
        board.note(1, said(2, 2), Instant::now());
        assert_eq!(port(&named), Some(2));
        board.note(2, said(1, 1), Instant::now());
        assert_eq!(port(&named), Some(2), "it repeats what was true before");
        board.note(0, said(2, 2), Instant::now());
        assert_eq!(port(&named), Some(2));
    }

    #[test]
    fn within_an_epoch_the_last_word_counts() {
        let (board, named) = board(2);
        board.note(0, said(1, 1), Instant::now());
        board.note(1, said(1, 1), Instant::now());
        board.note(0, said(1, 2), Instant::now());
        assert_eq!(port(&named), Some(2));
    }

    #[test]
    fn sentinels_that_were_reset_count_again_from_nothing() {
        let (board, named) = board(2);
        board.note(0, said(7, 1), Instant::now());
        board.note(1, said(7, 1), Instant::now());
        board.note(0, said(0, 2), Instant::now());
        board.note(1, said(0, 2), Instant::now());
        assert_eq!(port(&named), Some(2));
    }

    #[test]
    fn a_promotion_counts_until_a_sentinel_confirms_it_or_it_was_none() {
        let now = Instant::now();
        let other = || Address::Tcp("m".to_owned(), 2);
        let (board, named) = board(2);
        board.note(0, said(1, 1), now);
        board.note_promotion(other(), now);
        board.note(1, said(1, 1), now);
        assert_eq!(port(&named), Some(2), "sentinels are late");
        board.note(0, said(2, 2), now);
        board.note(0, said(3, 1), now);
        assert_eq!(port(&named), Some(1), "confirmed, and then another failover");

        board.note_promotion(other(), now);
        board.note(0, said(3, 1), now + PROMOTION_MAX);
        assert_eq!(port(&named), Some(1), "no sentinel has confirmed it");
    }

    #[test]
    fn only_a_selection_for_this_master_is_one() {
        let event = |channel: &str, payload: &str| {
            let data = [channel, payload].map(|text| Value::BulkString(text.as_bytes().to_vec())).to_vec();
            PushInfo { kind: PushKind::Message, data }
        };
        let payload = "slave 10.0.0.2:6380 10.0.0.2 6380 @ mymaster 10.0.0.1 6379";
        let address = Some(Address::Tcp("10.0.0.2".to_owned(), 6380));
        assert_eq!(selected(&event(SELECTED, payload), "mymaster"), address);
        assert_eq!(selected(&event(SELECTED, payload), "other"), None);
        assert_eq!(selected(&event("+switch-master", payload), "mymaster"), None);
        assert_eq!(selected(&event(SELECTED, "nothing"), "mymaster"), None);
    }
}
