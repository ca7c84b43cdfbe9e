//! `redis-server` and its relatives as tests need them: alone, watched by Sentinels, as a Cluster.

mod cluster;
mod options;
mod release;
mod sentinels;
mod server;
mod tls;

pub use cluster::Cluster;
pub use options::Options;
pub use release::Release;
pub use sentinels::Sentinels;
pub use server::{Reply, Server};
pub use tls::Certificates;
