//! What one node of a Cluster thinks of all of them: the lines of `CLUSTER NODES`.

use super::Server;

/// One node, in the opinion of another or its own.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) id: String,
    pub(super) is_self: bool,
    pub(super) is_master: bool,
    /// Whether they have shaken hands, and it is not known by its address alone.
    pub(super) is_known: bool,
    /// The id of its master; `-` for a master.
    pub(super) master: String,
    pub(super) epoch: u64,
    /// First and last slot of each range that it serves.
    pub(super) slots: Vec<(u16, u16)>,
}

impl Node {
    pub(super) fn serves(&self, slot: u16) -> bool {
        self.slots.iter().any(|(first, last)| (*first..=*last).contains(&slot))
    }

    /// `ID IP:PORT@BUS FLAGS MASTER PING PONG EPOCH LINK SLOT...`
    fn parse(line: &str) -> Option<Self> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [id, _address, flags, master, _ping, _pong, epoch, _link, slots @ ..] = words.as_slice() else {
            return None;
        };
        let has = |flag: &str| flags.split(',').any(|other| other == flag);
        Some(Self {
            id: (*id).to_owned(),
            is_self: has("myself"),
            is_master: has("master"),
            is_known: !has("handshake") && !has("noaddr"),
            master: (*master).to_owned(),
            epoch: epoch.parse().ok()?,
            // Slots on the move stand in brackets, after the range that still holds them.
            slots: slots.iter().filter_map(|range| parse_range(range)).collect(),
        })
    }
}

/// All nodes that `node` knows; none if it does not answer.
pub(super) fn view(node: &Server) -> Vec<Node> {
    let Ok(answer) = node.command(&["CLUSTER", "NODES"]) else { return Vec::new() };
    let text: String = ::redis::FromRedisValue::from_redis_value(answer).unwrap_or_default();
    text.lines().filter_map(Node::parse).collect()
}

fn parse_range(range: &str) -> Option<(u16, u16)> {
    let (first, last) = range.split_once('-').unwrap_or((range, range));
    Some((first.parse().ok()?, last.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_with_ranges_single_slots_and_slots_on_the_move() {
        let line =
            "07c3 127.0.0.1:30004@31004,host myself,master - 0 1426238317239 4 connected 0-9 11 [12->-67ed]";
        let node = Node::parse(line).unwrap();
        assert!(node.is_self && node.is_master && node.is_known);
        assert_eq!((node.id.as_str(), node.epoch), ("07c3", 4));
        assert_eq!(node.slots, [(0, 9), (11, 11)]);
        assert!(node.serves(9) && !node.serves(10) && node.serves(11) && !node.serves(12));
        let replica = Node::parse("e7d1 127.0.0.1:30004@31004 slave 07c3 0 142 4 connected").unwrap();
        assert_eq!((replica.is_master, replica.master.as_str()), (false, "07c3"));
        assert_eq!(Node::parse(""), None);
    }
}
