//! Which slot of a cluster a key belongs to, and who serves which slot. Pure: no IO, no clock.
//!
//! Source: the Redis Cluster specification: CRC16 (XMODEM) of the key, or of what stands between the first `{`
//! and the next `}` if that is not empty, modulo 16384.

use ::redis::Value;

use crate::store::redis::url::Address;

/// Slots of a cluster.
pub(super) const SLOTS: u16 = 16_384;

/// x^16 + x^12 + x^5 + 1.
const POLYNOMIAL: u16 = 0x1021;

/// The slot of a key.
pub(super) fn of(name: &[u8]) -> u16 {
    crc16(tag(name)) % SLOTS
}

/// What is hashed of a key: its tag if it has one, else all of it.
fn tag(name: &[u8]) -> &[u8] {
    let Some(open) = name.iter().position(|byte| *byte == b'{') else {
        return name;
    };
    let inner = &name[open + 1..];
    match inner.iter().position(|byte| *byte == b'}') {
        Some(len) if len > 0 => &inner[..len],
        _ => name,
    }
}

fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| (crc << 8) ^ TABLE[usize::from((crc >> 8) ^ u16::from(*byte))])
}

const TABLE: [u16; 256] = table();

const fn table() -> [u16; 256] {
    let mut table = [0; 256];
    let mut index: u16 = 0;
    while index < 256 {
        let mut crc = index << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ POLYNOMIAL };
            bit += 1;
        }
        table[index as usize] = crc;
        index += 1;
    }
    table
}

/// Slots from `first` to `last` and the master that serves them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) first: u16,
    pub(super) last: u16,
    pub(super) master: Address,
}

/// Reads the answer of `CLUSTER SLOTS`; `None` if it is none. `asked` stands for nodes that don't know their own
/// address.
pub(super) fn ranges(answer: &Value, asked: &Address) -> Option<Vec<Range>> {
    let Value::Array(rows) = answer else {
        return None;
    };
    rows.iter().map(|row| range(row, asked)).collect()
}

fn range(row: &Value, asked: &Address) -> Option<Range> {
    let Value::Array(row) = row else {
        return None;
    };
    let [first, last, Value::Array(master), ..] = row.as_slice() else {
        return None;
    };
    let (first, last) = (slot(first)?, slot(last)?);
    let [host, Value::Int(port), ..] = master.as_slice() else {
        return None;
    };
    let host = match host {
        Value::BulkString(host) if !host.is_empty() && host != b"?" => std::str::from_utf8(host).ok()?,
        Value::SimpleString(host) if !host.is_empty() => host,
        _ => host_of(asked)?,
    };
    let port = u16::try_from(*port).ok().filter(|port| *port > 0)?;
    (first <= last).then(|| Range { first, last, master: Address::Tcp(host.to_owned(), port) })
}

fn slot(value: &Value) -> Option<u16> {
    match value {
        Value::Int(number) => u16::try_from(*number).ok().filter(|number| *number < SLOTS),
        _ => None,
    }
}

/// The node that a `MOVED` or `ASK` names: `host:port`, where IPv6 addresses have no brackets and a missing host
/// means the node that answered.
pub(super) fn redirect(text: &str, asked: &Address) -> Option<Address> {
    let (host, port) = text.rsplit_once(':')?;
    let port = port.parse().ok().filter(|port| *port > 0)?;
    let host = if host.is_empty() || host == "?" { host_of(asked)? } else { host };
    Some(Address::Tcp(host.to_owned(), port))
}

fn host_of(address: &Address) -> Option<&str> {
    match address {
        Address::Tcp(host, _) => Some(host),
        Address::Unix(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_specification() {
        // From the specification (the check value of CRC16/XMODEM), and `CLUSTER KEYSLOT` of Redis 7.0.15.
        assert_eq!(crc16(b"123456789"), 0x31c3);
        assert_eq!(of(b""), 0);
        assert_eq!(of(b"foo"), 12_182);
        assert_eq!(of(b"somekey"), 11_058);
        assert_eq!(of(b"foo{hash_tag}"), 2515);
    }

    #[test]
    fn only_the_first_tag_counts_and_an_empty_one_is_none() {
        assert_eq!(of(b"{user1000}.following"), of(b"user1000"));
        assert_eq!(of(b"foo{bar}{zap}"), of(b"bar"));
        assert_eq!(of(b"foo{{bar}}zap"), of(b"{bar"));
        assert_eq!(tag(b"foo{}{bar}"), b"foo{}{bar}");
        assert_eq!(tag(b"foo{bar"), b"foo{bar");
        assert_eq!(tag(b"}foo{"), b"}foo{");
    }

    fn node(host: &str, port: i64) -> Value {
        Value::Array(vec![Value::BulkString(host.as_bytes().to_vec()), Value::Int(port)])
    }

    #[test]
    fn an_answer_without_address_means_whoever_was_asked() {
        let asked = Address::Tcp("seed".to_owned(), 7000);
        let row = Value::Array(vec![Value::Int(0), Value::Int(99), node("", 7001), node("replica", 7002)]);
        let read = ranges(&Value::Array(vec![row]), &asked).expect("ranges");
        let master = Address::Tcp("seed".to_owned(), 7001);
        assert_eq!(read, [Range { first: 0, last: 99, master: master.clone() }]);
        assert_eq!(redirect(":7001", &asked), Some(master));
        assert_eq!(redirect("::1:7001", &asked), Some(Address::Tcp("::1".to_owned(), 7001)));
        assert_eq!(redirect("host", &asked), None);
        assert_eq!(redirect("host:0", &asked), None);
    }

    #[test]
    fn what_is_no_table_of_slots_is_not_taken_for_one() {
        let asked = Address::Tcp("seed".to_owned(), 7000);
        let rows = [
            Value::Nil,
            Value::Array(vec![]),
            Value::Array(vec![Value::Int(0), Value::Int(16_384), node("h", 1)]),
            Value::Array(vec![Value::Int(2), Value::Int(1), node("h", 1)]),
            Value::Array(vec![Value::Int(-1), Value::Int(1), node("h", 1)]),
            Value::Array(vec![Value::Int(0), Value::Int(1), node("h", 70_000)]),
            Value::Array(vec![Value::Int(0), Value::Int(1)]),
        ];
        for row in rows {
            assert_eq!(ranges(&Value::Array(vec![row.clone()]), &asked), None, "{row:?}");
        }
        assert_eq!(ranges(&Value::Okay, &asked), None);
    }
}
