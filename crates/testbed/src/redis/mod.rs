//! `redis-server` and its relatives as tests need them: alone, watched by Sentinels, as a Cluster.

mod options;
mod release;
mod server;
mod tls;

pub use options::Options;
pub use release::Release;
pub use server::{Reply, Server};
pub use tls::Certificates;
