//! A socket that comes back from the protocol that used it.
//!
//! hyper keeps the socket until a connection has ended, and drops it then, which closes it. Who still has to
//! read from it (see `LINGER_TIME`) needs it back. Reading also tells the connection's activity.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::oneshot;

use super::Activity;

/// A socket, given back when this is dropped.
pub(super) struct Lent<I> {
    /// `None` only while it is being dropped.
    socket: Option<I>,
    activity: Arc<Activity>,
    give_back: Option<oneshot::Sender<I>>,
}

impl<I> Lent<I> {
    pub(super) const fn new(socket: I, activity: Arc<Activity>, give_back: oneshot::Sender<I>) -> Self {
        Self { socket: Some(socket), activity, give_back: Some(give_back) }
    }
}

impl<I: Unpin> Lent<I> {
    fn socket(&mut self) -> io::Result<Pin<&mut I>> {
        let socket = self.socket.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        Ok(Pin::new(socket))
    }
}

impl<I> Drop for Lent<I> {
    fn drop(&mut self) {
        if let (Some(socket), Some(give_back)) = (self.socket.take(), self.give_back.take()) {
            // Nobody waits for it when the server itself is gone: then it is closed here.
            let _ = give_back.send(socket);
        }
    }
}

impl<I: AsyncRead + Unpin> AsyncRead for Lent<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(self.socket()?.poll_read(cx, buf))?;
        if buf.filled().len() > before {
            self.activity.heard();
        }
        Poll::Ready(Ok(()))
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for Lent<I> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.socket()?.poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.socket()?.poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.socket()?.poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.socket()?.poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.as_ref().is_some_and(AsyncWrite::is_write_vectored)
    }
}
