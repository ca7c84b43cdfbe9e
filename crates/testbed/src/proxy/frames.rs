//! Where one message of Redis' protocol ends and the next begins; nothing about what they mean.
//!
//! Source: the RESP2 and RESP3 specifications. Not known: RESP3's streamed strings and aggregates, which no
//! server sends.

use bytes::{Bytes, BytesMut};

use super::Wire;

/// A longer message is no message, but a length that was misread: 512 MiB is the longest string of Redis.
const MESSAGE_MAX: usize = 1 << 29;

/// Cuts the first whole message off `read`, if there is one.
pub(super) fn next(wire: Wire, read: &mut BytesMut) -> Option<Bytes> {
    let length = match wire {
        Wire::Opaque => read.len(),
        Wire::Resp => length(read)?,
    };
    (length > 0).then(|| read.split_to(length).freeze())
}

/// How long the first message is, once all of it is there.
fn length(read: &[u8]) -> Option<usize> {
    let mut at = 0;
    // Values that still belong to the message.
    let mut left = 1_usize;
    while left > 0 {
        let line_end = at + read[at..].windows(2).position(|pair| pair == b"\r\n")?;
        let line = &read[at..line_end];
        at = line_end + 2;
        left -= 1;
        let Some((kind, number)) = line.split_first() else { continue };
        let count = std::str::from_utf8(number).ok().and_then(|number| number.parse::<usize>().ok());
        match (kind, count) {
            // Null strings and arrays have the count -1, and nothing follows.
            (b'$' | b'!' | b'=', Some(bytes)) => {
                at = at.checked_add(bytes)?.checked_add(2)?;
                assert!(at <= MESSAGE_MAX, "a message of {bytes} bytes");
            }
            (b'*' | b'~' | b'>', Some(values)) => left = left.checked_add(values)?,
            (b'%', Some(pairs)) => left = left.checked_add(pairs.checked_mul(2)?)?,
            // Attributes stand before the value that they are about.
            (b'|', Some(pairs)) => left = left.checked_add(pairs.checked_mul(2)?)?.checked_add(1)?,
            // A value of one line; or, from a client, a command typed by hand.
            _ => {}
        }
        if at > read.len() {
            return None;
        }
    }
    Some(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every kind of message, one after another.
    const MESSAGES: [&[u8]; 14] = [
        b"+OK\r\n",
        b"-ERR no\r\n",
        b":1\r\n",
        b"$-1\r\n",
        b"$0\r\n\r\n",
        b"$4\r\na\r\nb\r\n",
        b"*-1\r\n",
        b"*0\r\n",
        b"*2\r\n*2\r\n:1\r\n$1\r\na\r\n+b\r\n",
        b"%1\r\n+a\r\n*1\r\n:1\r\n",
        b"|1\r\n+ttl\r\n:3\r\n$1\r\na\r\n",
        b">2\r\n+invalidate\r\n*1\r\n$1\r\na\r\n",
        b"_\r\n",
        b"PING\r\n",
    ];

    #[test]
    fn messages_are_cut_at_their_borders_however_they_arrive() {
        let all = MESSAGES.concat();
        for piece in 1..=all.len() {
            let mut read = BytesMut::new();
            let mut found = Vec::new();
            for bytes in all.chunks(piece) {
                read.extend_from_slice(bytes);
                found.extend(std::iter::from_fn(|| next(Wire::Resp, &mut read)));
            }
            assert_eq!(found, MESSAGES, "in pieces of {piece}");
            assert!(read.is_empty());
        }
    }

    #[test]
    fn anything_else_is_passed_as_it_comes() {
        let mut read = BytesMut::from(&b"GET / HT"[..]);
        assert_eq!(next(Wire::Opaque, &mut read).unwrap(), &b"GET / HT"[..]);
        assert_eq!(next(Wire::Opaque, &mut read), None);
    }
}
