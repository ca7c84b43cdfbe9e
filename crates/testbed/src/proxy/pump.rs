//! One connection through the proxy: for each way a reader, which decides what becomes of a message, and a writer,
//! which delivers it in order when its time has come.
//!
//! A client that leaves ends nothing but its own reading: what it sent is still delivered, since the network
//! has it already.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering;

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

/// A message on its way.
struct Message {
    bytes: Bytes,
    due: Instant,
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
            let mut message =
                Message { bytes: message, due: Instant::now() + faults.delay[way], hold: None, last: false };
            if way == REQUESTS {
                match shared.choose_hold(faults.hold) {
                    Some(Until::Released) => {
                        message.hold = Some(shared.holds.fetch_add(1, Ordering::SeqCst));
                    }
                    Some(Until::After(late)) => message.due += late,
                    None => {}
                }
            } else {
                match shared.choose_fate(faults.spoil) {
                    Some(Fate::Vanish) => continue,
                    Some(Fate::VanishThenSilence) => {
                        is_silent = true;
                        continue;
                    }
                    Some(Fate::VanishThenReset) => {
                        message.bytes.clear();
                        message.last = true;
                    }
                    Some(Fate::CutAfter(length)) => {
                        message.bytes.truncate(length.min(message.bytes.len().saturating_sub(1)));
                        message.last = true;
                    }
                    None => {}
                }
            }
            if sender.send(message).await.is_err() {
                return;
            }
        }
    }
}

/// Delivers messages in order, each when it is due and nothing holds it.
async fn write(
    number: u64,
    way: usize,
    mut to: impl AsyncWrite + Unpin,
    mut messages: Receiver<Message>,
    mut faults: watch::Receiver<Faults>,
) -> Result<(), Reset> {
    let mut has_left = false;
    while let Some(message) = messages.recv().await {
        sleep_until(message.due).await;
        let goes_on = |faults: &Faults| {
            number >= faults.stalled_below[way] && message.hold.is_none_or(|hold| hold < faults.released)
        };
        if faults.wait_for(goes_on).await.is_err() {
            return Ok(());
        }
        has_left = has_left || to.write_all(&message.bytes).await.is_err();
        if message.last {
            return Err(Reset);
        }
        if has_left && way == REQUESTS {
            // The server is gone, so the client has nobody to talk to.
            return Err(Reset);
        }
        // A client that is gone: its replies are read and dropped, as its requests may still be under way.
    }
    // The end of a connection gets lost and stalled like all else.
    let gets_through = |faults: &Faults| number >= faults.stalled_below[way] && !faults.black_hole[way];
    let _ = faults.wait_for(gets_through).await;
    let _ = to.shutdown().await;
    Ok(())
}
