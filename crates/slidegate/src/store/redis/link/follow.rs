//! The master that a replica follows, in its own words.
//!
//! `FAILOVER TO`, typed at a master that Sentinels watch, tells the Sentinels nothing: for half a minute they name the
//! old one, which by then follows the new one, and says so. Its word is as good as theirs: what is written to the new
//! one reaches the old one, and nothing can be written to that. They are still listened to: when they name another
//! server than before, that is it.

use ::redis::Value;
use ::redis::aio::MultiplexedConnection;

use super::open::text;
use crate::store::redis::url::Address;

/// Whom the server behind this connection follows; nobody if it may not say it (ACL), or does not know.
pub(super) async fn master_of(connection: &mut MultiplexedConnection) -> Option<Address> {
    let mut info = ::redis::cmd("INFO");
    info.arg("replication");
    let reply = connection.send_packed_command(&info).await.ok()?;
    read(&reply)
}

fn read(reply: &Value) -> Option<Address> {
    let told = text(reply)?;
    let field = |name: &str| told.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let port = field("master_port:")?.parse().ok()?;
    Some(Address::Tcp(field("master_host:")?.to_owned(), port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replica_names_its_master_and_a_master_nobody() {
        let told = |text: &str| read(&Value::BulkString(text.as_bytes().to_vec()));
        let replica = "# Replication\r\nrole:slave\r\nmaster_host:10.0.0.2\r\nmaster_port:6380\r\n";
        assert_eq!(told(replica), Some(Address::Tcp("10.0.0.2".to_owned(), 6380)));
        assert_eq!(told("# Replication\r\nrole:master\r\nmaster_replid:0123\r\n"), None);
        assert_eq!(read(&Value::Nil), None);
    }
}
