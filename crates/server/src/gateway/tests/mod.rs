//! The gateway on real sockets: real clients in front, a real server behind.

mod bounds;
mod faults;
mod forwarding;
mod framing;
mod limits;
mod policies;
mod routes;
mod shutdown;
mod support;
