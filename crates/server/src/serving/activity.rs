//! What happens on a connection, seen from outside the protocol: whether requests are being answered, and
//! since when it has been silent or busy with a head.
//!
//! One watch for HTTP/1.1 and HTTP/2 alike, and for the bytes before it is known which of them it is: hyper
//! has a timer for the heads of HTTP/1.1 only.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::time::Instant;

use super::Bounds;

/// The state of one connection. All orderings are relaxed: the values steer timers, nothing else.
#[derive(Debug)]
pub(crate) struct Activity {
    start: Instant,
    requests: AtomicU32,
    /// When the connection last changed between head, request and silence: milliseconds after `start`.
    changed_ms: AtomicU64,
    /// Bytes have come since the last request: a head has begun. True at first: a client that connects has
    /// something to say.
    is_in_head: AtomicBool,
    left_unread: AtomicBool,
}

/// Whether a connection has been silent for too long.
pub(super) enum Due {
    /// It has.
    Now,
    /// Look again then.
    Later(Instant),
}

impl Activity {
    /// A connection that begins now.
    pub(crate) const fn new(start: Instant) -> Self {
        Self {
            start,
            requests: AtomicU32::new(0),
            changed_ms: AtomicU64::new(0),
            is_in_head: AtomicBool::new(true),
            left_unread: AtomicBool::new(false),
        }
    }

    /// A request was answered before all of it was read.
    pub(crate) fn leave_unread(&self) {
        self.left_unread.store(true, Ordering::Relaxed);
    }

    pub(super) fn left_unread(&self) -> bool {
        self.left_unread.load(Ordering::Relaxed)
    }

    /// Bytes came from the client.
    pub(super) fn heard(&self) {
        let is_silent =
            self.requests.load(Ordering::Relaxed) == 0 && !self.is_in_head.load(Ordering::Relaxed);
        if is_silent {
            self.is_in_head.store(true, Ordering::Relaxed);
            self.mark(Instant::now());
        }
    }

    /// When to look first.
    pub(super) fn check_at(&self, bounds: &Bounds) -> Instant {
        self.start + bounds.head_time
    }

    /// Whether the time is up. A silent connection is looked at as often as heads may take, since one may
    /// begin at any time.
    pub(super) fn due(&self, bounds: &Bounds, now: Instant) -> Due {
        if self.requests.load(Ordering::Relaxed) > 0 {
            return Due::Later(now + bounds.head_time);
        }
        let bound = if self.is_in_head.load(Ordering::Relaxed) { bounds.head_time } else { bounds.idle_time };
        let until = self.start + Duration::from_millis(self.changed_ms.load(Ordering::Relaxed)) + bound;
        if until <= now {
            return Due::Now;
        }
        Due::Later(until.min(now + bounds.head_time))
    }

    fn mark(&self, now: Instant) {
        let ms = now.duration_since(self.start).as_millis();
        self.changed_ms.store(u64::try_from(ms).unwrap_or(u64::MAX), Ordering::Relaxed);
    }
}

/// A request that is being answered, from its head until the last byte of the answer.
pub(super) struct Busy(Arc<Activity>);

impl Busy {
    pub(super) fn begin(activity: &Arc<Activity>) -> Self {
        activity.requests.fetch_add(1, Ordering::Relaxed);
        activity.is_in_head.store(false, Ordering::Relaxed);
        Self(activity.clone())
    }

    pub(super) const fn until_end_of<B>(self, body: B) -> Guarded<B> {
        Guarded { body, _busy: self }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.mark(Instant::now());
        self.0.requests.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The body of an answer; while it lives, its connection is busy.
pub(super) struct Guarded<B> {
    body: B,
    _busy: Busy,
}

impl<B: Body<Data = Bytes> + Unpin> Body for Guarded<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
