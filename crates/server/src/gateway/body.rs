//! A request's body on its way to the upstream: streamed as it comes, and cut where it gets too large.
//!
//! Nothing is collected. A frame is read from the client when the upstream takes it, so a slow upstream
//! slows its client down and no memory fills. Trailers go through.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use super::refusal::Refusal;
use crate::serving::Activity;

/// A client's body, under a cap.
pub(super) struct RequestBody {
    incoming: Incoming,
    /// What may still come.
    left: u64,
    upload: Upload,
    activity: Arc<Activity>,
}

/// Where a body stands, told to whoever sent it on: the client's faults must not be answered as the
/// upstream's.
#[derive(Clone, Debug)]
pub(super) struct Upload {
    state: Arc<AtomicU8>,
    most: u64,
}

/// What a body waits for, or how it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum State {
    /// For the upstream to take more.
    Upstream,
    /// For the client to send more.
    Client,
    Complete,
    TooLarge,
    Broken,
}

impl State {
    const ALL: [Self; 5] = [Self::Upstream, Self::Client, Self::Complete, Self::TooLarge, Self::Broken];
}

/// Why a body ended early. Only says to hyper that it did: see [`Upload`].
#[derive(Debug, thiserror::Error)]
#[error("the request's body ended early")]
pub(super) struct BodyEnded;

impl Upload {
    fn set(&self, state: State) {
        self.state.store(state as u8, Ordering::Relaxed);
    }

    fn get(&self) -> State {
        State::ALL[usize::from(self.state.load(Ordering::Relaxed))]
    }

    /// What the client did wrong, if the request failed for that.
    pub(super) fn fault(&self) -> Option<Refusal> {
        match self.get() {
            State::TooLarge => Some(Refusal::BodyTooLarge { most: self.most }),
            State::Broken => Some(Refusal::BodyBroken),
            State::Upstream | State::Client | State::Complete => None,
        }
    }

    /// Who is to blame when the time is up.
    pub(super) fn late(&self) -> Refusal {
        match self.get() {
            State::Client => Refusal::BodyLate,
            _ => self.fault().unwrap_or(Refusal::UpstreamLate),
        }
    }
}

impl RequestBody {
    pub(super) fn new(incoming: Incoming, most: u64, activity: Arc<Activity>) -> Self {
        let state = if incoming.is_end_stream() { State::Complete } else { State::Upstream };
        Self {
            incoming,
            left: most,
            upload: Upload { state: Arc::new(AtomicU8::new(state as u8)), most },
            activity,
        }
    }

    pub(super) fn upload(&self) -> Upload {
        self.upload.clone()
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = BodyEnded;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyEnded>>> {
        self.upload.set(State::Client);
        let frame = match ready!(Pin::new(&mut self.incoming).poll_frame(cx)) {
            Some(Ok(frame)) => frame,
            Some(Err(_)) => {
                self.upload.set(State::Broken);
                return Poll::Ready(Some(Err(BodyEnded)));
            }
            None => {
                self.upload.set(State::Complete);
                return Poll::Ready(None);
            }
        };
        let length = frame.data_ref().map_or(0, Bytes::len) as u64;
        let Some(left) = self.left.checked_sub(length) else {
            self.upload.set(State::TooLarge);
            return Poll::Ready(Some(Err(BodyEnded)));
        };
        self.left = left;
        let state = if self.incoming.is_end_stream() { State::Complete } else { State::Upstream };
        self.upload.set(state);
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        if self.upload.get() != State::Complete {
            self.activity.leave_unread();
        }
    }
}

impl fmt::Debug for RequestBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestBody")
            .field("left", &self.left)
            .field("upload", &self.upload)
            .finish_non_exhaustive()
    }
}
