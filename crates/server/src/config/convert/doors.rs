//! `api` and `admin`: where they listen, and for whom.

use std::net::{IpAddr, SocketAddr};

use super::net;
use crate::config::fields::{Fields, Reader};
use crate::config::files::Files;
use crate::config::model::{DoorConfig, Tokens};
use crate::config::schema;
use crate::config::source::Span;
use crate::config::tokens::Style;
use crate::config::yaml::Node;

/// An address that something listens at, and where that is written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Listen {
    pub(super) door: &'static str,
    pub(super) address: SocketAddr,
    pub(super) at: Span,
}

/// What is particular to a door.
struct Kind {
    name: &'static str,
    fields: &'static [&'static str],
    token_field: &'static str,
    example: &'static str,
    style: Style,
}

const API: Kind = Kind {
    name: "api",
    fields: &schema::API,
    token_field: "token_file",
    example: "127.0.0.1:8082",
    style: Style::Bare,
};

const ADMIN: Kind = Kind {
    name: "admin",
    fields: &schema::ADMIN,
    token_field: "tokens_file",
    example: "127.0.0.1:8090",
    style: Style::WithRole,
};

/// A door that may be left out; `None` outside means that it is broken.
type Door = Option<Option<DoorConfig>>;

/// Reads both sections, and refuses addresses that meet.
pub(super) fn doors(
    fields: &Fields<'_>,
    files: &Files<'_>,
    gateway: Option<Listen>,
    reader: &mut Reader<'_>,
) -> (Door, Door) {
    let mut taken: Vec<Listen> = gateway.into_iter().collect();
    let mut read = |kind: &Kind| match fields.get(kind.name) {
        None => Some(None),
        Some(node) => door(node, kind, files, &mut taken, reader).map(Some),
    };
    (read(&API), read(&ADMIN))
}

fn door(
    node: &Node,
    kind: &Kind,
    files: &Files<'_>,
    taken: &mut Vec<Listen>,
    reader: &mut Reader<'_>,
) -> Option<DoorConfig> {
    let fields = Fields::of(node, kind.name, kind.fields, reader)?;
    let help = format!("write listen: {}", kind.example);
    let listen_node = fields.require("listen", &help, reader);
    let listen = listen_node.and_then(|node| net::listen(node, kind.example, reader));
    if let (Some(address), Some(node)) = (listen, listen_node) {
        let listen = Listen { door: kind.name, address, at: node.at };
        refuse_clash(listen, taken, reader);
        taken.push(listen);
    }
    let tokens = match fields.get(kind.token_field) {
        Some(node) => Some(Tokens::List(tokens(node, kind, files, reader)?)),
        None => None,
    };
    match (listen?, tokens) {
        (listen, Some(tokens)) => Some(DoorConfig { listen, tokens }),
        (listen, None) if listen.ip().is_loopback() => Some(DoorConfig { listen, tokens: Tokens::Anyone }),
        (listen, None) => {
            reader.error(
                listen_node.map_or(node.at, |node| node.at),
                format!("`{}` at {listen} can be reached from other machines, and has no token", kind.name),
                format!("write {}: FILE, or listen: {}", kind.token_field, kind.example),
            );
            None
        }
    }
}

fn tokens(
    node: &Node,
    kind: &Kind,
    files: &Files<'_>,
    reader: &mut Reader<'_>,
) -> Option<Vec<crate::config::tokens::Token>> {
    let help = match kind.style {
        Style::Bare => "name a file with one token in a line",
        Style::WithRole => "name a file with lines such as `read TOKEN` and `write TOKEN`",
    };
    let scalar = reader.text(node, kind.token_field, help)?;
    match files.tokens(&scalar.text, kind.style) {
        Ok(tokens) => Some(tokens),
        Err(message) => {
            reader.unreadable(node, 0, kind.token_field, message, help);
            None
        }
    }
}

fn refuse_clash(listen: Listen, taken: &[Listen], reader: &mut Reader<'_>) {
    let clash = taken.iter().find(|other| meet(other.address, listen.address));
    if let Some(other) = clash {
        reader.error(
            listen.at,
            format!("`{}` can't listen at {}: `{}` already does", listen.door, listen.address, other.door),
            "give each its own port",
        );
    }
}

/// Whether two sockets ask for the same port of the same address. Port 0 is any that is free; `::` takes
/// the IPv4 addresses as well.
fn meet(one: SocketAddr, other: SocketAddr) -> bool {
    let covers = |all: IpAddr, some: IpAddr| {
        all == some || (all.is_unspecified() && (all.is_ipv6() || some.is_ipv4()))
    };
    one.port() == other.port()
        && one.port() != 0
        && (covers(one.ip(), other.ip()) || covers(other.ip(), one.ip()))
}
