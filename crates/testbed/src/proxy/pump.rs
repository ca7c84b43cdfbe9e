//! One connection through the proxy: for each way a reader, which decides what becomes of a message, and a writer,
//! which delivers it in order when its time has come.
//!
//! A client that leaves ends nothing but its own reading: what it sent is still delivered, since the network
//! has it already.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::faults::{Faults, REPLIES, REQUESTS, Shared, Until};
use super::{Fate, frames};

/// Messages on their way. A sender that is faster than this has to wait, as before a full window.
const UNDER_WAY_MAX: usize = 4096;

/// What is ready is delivered in pieces of about this size, as it would have been without the proxy.
const BATCH_BYTES: usize = 64 * 1024;

/// A message on its way.
struct Message {
    bytes: Bytes,
    /// When it may be delivered, if it is delayed.
    due: Option<Instant>,
    /// The hold that keeps it.
    hold: Option<u64>,
    /// Whether its connection ends with it.
    last: bool,
}

/// Why a connection is to be reset.
struct Reset;

/// Serves one client until both sides are done or a fault ends it.
pub(super) async fn connection(number: u64, client: TcpStream, shared: Arc<Shared>) {
    let server = TcpStream::connect(shared.target).await;
    let mut faults = shared.faults.subscribe();
    let Ok(server) = server else {
        // A black hole swallows connections whether or not there is somebody behind it.
        let _ = faults.wait_for(|faults| !faults.black_hole[REQUESTS] || number < faults.reset_below).await;
        return;
    };
    for stream in [&client, &server] {
        let _ = stream.set_nodelay(true);
    }
    let (mut client, mut server) = (client, server);
    let is_reset = {
        let (from_client, to_client) = client.split();
        let (from_server, to_server) = server.split();
        tokio::select! {
            reset = async {
                tokio::try_join!(
                    one_way(number, REQUESTS, from_client, to_server, &shared),
                    one_way(number, REPLIES, from_server, to_client, &shared),
                )
            } => reset.is_err(),
            _ = faults.wait_for(|faults| number < faults.reset_below) => true,
        }
    };
    if is_reset {
        // The next client must not find half a reply, and this one no orderly end.
        let _ = client.set_zero_linger();
    }
}

async fn one_way(
    number: u64,
    way: usize,
    from: impl AsyncRead + Unpin,
    to: impl AsyncWrite + Unpin,
    shared: &Shared,
) -> Result<(), Reset> {
    let (sender, receiver) = mpsc::channel(UNDER_WAY_MAX);
    // The writer says when this way is done: after the last message that was read, or when it has to reset,
    // whatever there still is to read.
    let reading = async {
        read(way, from, sender, shared).await;
        std::future::pending::<Infallible>().await
    };
    tokio::select! {
        written = write(number, way, to, receiver, shared.faults.subscribe()) => written,
        never = reading => match never {},
    }
}

/// Reads messages and decides what becomes of each, until there are no more.
async fn read(way: usize, mut from: impl AsyncRead + Unpin, sender: Sender<Message>, shared: &Shared) {
    let mut bytes = BytesMut::new();
    let mut is_silent = false;
    while matches!(from.read_buf(&mut bytes).await, Ok(1..)) {
        while let Some(message) = frames::next(shared.wire, &mut bytes) {
            shared.tally.count(way, message.len());
            let faults = *shared.faults.borrow();
            if faults.black_hole[way] || is_silent {
                continue;
            }
            let message = match decide(way, message, &faults, shared) {
                Decided::Deliver(message) => message,
                Decided::Lose => continue,
                Decided::LoseAllFromHere => {
                    is_silent = true;
                    continue;
                }
            };
            if sender.send(message).await.is_err() {
                return;
            }
        }
    }
}

/// What becomes of a message.
enum Decided {
    Deliver(Message),
    Lose,
    LoseAllFromHere,
}

fn decide(way: usize, bytes: Bytes, faults: &Faults, shared: &Shared) -> Decided {
    let after = |time: Duration| (!time.is_zero()).then(|| Instant::now() + time);
    let mut message = Message { bytes, due: after(faults.delay[way]), hold: None, last: false };
    if way == REQUESTS {
        match shared.choose_hold(faults.hold) {
            Some(Until::Released) => message.hold = Some(shared.holds.fetch_add(1, Ordering::SeqCst)),
            Some(Until::After(late)) => message.due = after(faults.delay[way] + late),
            None => {}
        }
        return Decided::Deliver(message);
    }
    match shared.choose_fate(faults.spoil) {
        None => {}
        Some(Fate::Vanish) => return Decided::Lose,
        Some(Fate::VanishThenSilence) => return Decided::LoseAllFromHere,
        Some(Fate::VanishThenReset) => {
            message.bytes.clear();
            message.last = true;
        }
        Some(Fate::CutAfter(length)) => {
            message.bytes.truncate(length.min(message.bytes.len().saturating_sub(1)));
            message.last = true;
        }
    }
    Decided::Deliver(message)
}

/// Delivers messages in order, each when it is due and nothing holds it.
async fn write(
    number: u64,
    way: usize,
    to: impl AsyncWrite + Unpin,
    mut messages: Receiver<Message>,
    mut faults: watch::Receiver<Faults>,
) -> Result<(), Reset> {
    let mut out = Out { to, way, batch: Vec::new(), is_gone: false };
    loop {
        let message = match messages.try_recv() {
            Ok(message) => message,
            // Nothing waits for company: what is there is sent before the next is waited for.
            Err(_) => {
                out.flush().await?;
                let Some(message) = messages.recv().await else { break };
                message
            }
        };
        if let Some(due) = message.due {
            out.flush().await?;
            sleep_until(due).await;
        }
        let goes_on = |faults: &Faults| {
            number >= faults.stalled_below[way] && message.hold.is_none_or(|hold| hold < faults.released)
        };
        let is_kept = !goes_on(&faults.borrow());
        if is_kept {
            out.flush().await?;
            if faults.wait_for(goes_on).await.is_err() {
                return Ok(());
            }
        }
        out.batch.extend_from_slice(&message.bytes);
        if message.last {
            out.flush().await?;
            return Err(Reset);
        }
        if out.batch.len() >= BATCH_BYTES {
            out.flush().await?;
        }
    }
    // The end of a connection gets lost and stalled like all else.
    let gets_through = |faults: &Faults| number >= faults.stalled_below[way] && !faults.black_hole[way];
    let _ = faults.wait_for(gets_through).await;
    let _ = out.to.shutdown().await;
    Ok(())
}

/// One side's end of the connection.
struct Out<W> {
    to: W,
    way: usize,
    /// Messages that are delivered in one piece.
    batch: Vec<u8>,
    is_gone: bool,
}

impl<W: AsyncWrite + Unpin> Out<W> {
    async fn flush(&mut self) -> Result<(), Reset> {
        if !self.batch.is_empty() {
            self.is_gone = self.is_gone || self.to.write_all(&self.batch).await.is_err();
            self.batch.clear();
        }
        // A client that has left no longer reads, but its requests may still be under way: replies are dropped. A
        // client of a server that is gone has nobody to talk to.
        if self.is_gone && self.way == REQUESTS { Err(Reset) } else { Ok(()) }
    }
}
