//! Opening one connection: TCP (with TLS if asked for) or a Unix socket, log in, choose the database, and find
//! out who answers. Nothing is tried twice here: the supervisor does that.
//!
//! Who answers is asked with `HELLO`, which says version and role, needs no permission of the ACL, and is older
//! than the oldest release that the scripts run on; and with `PING`, which a server refuses as long as it can't
//! take other commands either (LOADING, BUSY).

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ::redis::aio::MultiplexedConnection;
use ::redis::{AsyncConnectionConfig, Cmd, Pipeline, ProtocolVersion, PushInfo, RedisConnectionInfo, Value};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsConnector;
use tracing::debug;

use super::masters::Master;
use super::refusal::{self, Refusal};
use super::task::OwnedTask;
use super::tls::Authenticated;
use crate::error::{Fault, StoreError};
use crate::store::redis::config::Login;
use crate::store::redis::url::Address;

/// Commands that wait to be written. More than the 50 of the library's default, which costs a tenth of the
/// throughput at 64 callers.
const WRITE_QUEUE: usize = 1024;
/// Probes of a silent connection: after this time, every so often, so many. Without them a host that vanished
/// is noticed by nobody while there is no traffic and no watchdog.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(5);
const KEEPALIVE_EVERY: Duration = Duration::from_secs(2);
const KEEPALIVE_TRIES: u32 = 3;
/// Bytes that nobody acknowledges for so long mean that the connection is gone.
#[cfg(target_os = "linux")]
const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(3);
/// The scripts need what 6.2 brought.
const VERSION_MIN: (u32, u32) = (6, 2);

/// How to open connections: all that does not depend on where to.
#[derive(Clone)]
pub(super) struct Connector {
    tls: Option<Authenticated>,
    login: Option<Login>,
    database: u32,
    /// For the transport and again for the greeting.
    patience: Duration,
}

/// A connection, and the task that writes and reads for it.
pub(super) struct Transport {
    pub(super) connection: MultiplexedConnection,
    pub(super) driver: OwnedTask,
    /// Resolves when the connection has broken.
    pub(super) broken: oneshot::Receiver<()>,
}

/// A connection whose server has answered.
pub(super) struct Opened {
    pub(super) transport: Transport,
    pub(super) hello: Hello,
}

/// Who answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hello {
    pub(super) is_master: bool,
    pub(super) is_cluster: bool,
    /// How long it took to answer a `PING`.
    pub(super) round_trip: Duration,
}

/// Why a connection was not opened.
#[derive(Clone, Debug)]
pub(super) struct NotOpened {
    pub(super) fault: Fault,
    /// For the log. Never what a server says about a command: it may repeat a password.
    pub(super) why: String,
}

impl NotOpened {
    fn new(fault: Fault, why: impl ToString) -> Self {
        Self { fault, why: why.to_string() }
    }

    fn disconnected(why: impl ToString) -> Self {
        Self::new(Fault::Disconnected, why)
    }
}

impl Connector {
    pub(super) const fn new(
        tls: Option<Authenticated>,
        login: Option<Login>,
        database: u32,
        patience: Duration,
    ) -> Self {
        Self { tls, login, database, patience }
    }

    pub(super) const fn patience(&self) -> Duration {
        self.patience
    }

    /// Opens a connection for commands.
    pub(super) async fn open(&self, address: &Address) -> Result<Opened, NotOpened> {
        let settings = RedisConnectionInfo::default().set_skip_set_lib_name();
        let mut transport = self.dial(address, &settings, config()).await?;
        let greeting = greet(&mut transport.connection, self);
        let hello = within(self.patience, "no answer to the greeting", greeting).await?;
        Ok(Opened { transport, hello })
    }

    /// Opens a connection that listens: what is published goes to `pushes`. RESP3, so that commands can be sent
    /// over it as well.
    pub(super) async fn listen(
        &self,
        address: &Address,
        pushes: UnboundedSender<PushInfo>,
    ) -> Result<Transport, NotOpened> {
        let mut settings =
            RedisConnectionInfo::default().set_skip_set_lib_name().set_protocol(ProtocolVersion::RESP3);
        if let Some(login) = &self.login {
            settings = settings.set_username(login.username.as_deref().unwrap_or("default"));
            settings = settings.set_password(&login.password);
        }
        self.dial(address, &settings, config().set_push_sender(pushes)).await
    }

    async fn dial(
        &self,
        address: &Address,
        settings: &RedisConnectionInfo,
        config: AsyncConnectionConfig,
    ) -> Result<Transport, NotOpened> {
        within(self.patience, "no connection in time", async {
            match address {
                Address::Unix(path) => {
                    let stream = UnixStream::connect(path).await.map_err(NotOpened::disconnected)?;
                    start(stream, settings, config).await
                }
                Address::Tcp(host, port) => {
                    let stream = connect(host, *port, self.patience).await?;
                    match &self.tls {
                        None => start(stream, settings, config).await,
                        Some(tls) => {
                            let name = ServerName::try_from(host.clone()).map_err(NotOpened::disconnected)?;
                            let connector = TlsConnector::from(tls.client_config());
                            let stream = connector
                                .connect(name, stream)
                                .await
                                .map_err(|error| NotOpened::disconnected(format!("TLS: {error}")))?;
                            start(stream, settings, config).await
                        }
                    }
                }
            }
        })
        .await
    }
}

fn config() -> AsyncConnectionConfig {
    // Every call has a deadline of its own, which covers more than the reply.
    AsyncConnectionConfig::new().set_response_timeout(None).set_pipeline_buffer_size(WRITE_QUEUE)
}

async fn within<T>(
    patience: Duration,
    otherwise: &str,
    work: impl Future<Output = Result<T, NotOpened>>,
) -> Result<T, NotOpened> {
    timeout(patience, work).await.unwrap_or_else(|_| Err(NotOpened::disconnected(otherwise)))
}

/// Tries the addresses of a name one after another, and each for its share of the time only: the first may be a
/// black hole.
async fn connect(host: &str, port: u16, patience: Duration) -> Result<TcpStream, NotOpened> {
    let found: Vec<SocketAddr> =
        tokio::net::lookup_host((host, port)).await.map_err(NotOpened::disconnected)?.collect();
    let share = patience / u32::try_from(found.len()).unwrap_or(u32::MAX).max(1);
    let mut last = NotOpened::disconnected("the name has no address");
    for address in found {
        match timeout(share, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => return tune(&stream).map(|()| stream).map_err(NotOpened::disconnected),
            Ok(Err(error)) => last = NotOpened::disconnected(error),
            Err(_) => last = NotOpened::disconnected("no connection in time"),
        }
    }
    Err(last)
}

fn tune(stream: &TcpStream) -> std::io::Result<()> {
    // Without, small commands wait for the acknowledgement of earlier ones: half of the throughput.
    stream.set_nodelay(true)?;
    let socket = socket2::SockRef::from(stream);
    let keepalive = socket2::TcpKeepalive::new().with_time(KEEPALIVE_AFTER);
    #[cfg(target_os = "linux")]
    let keepalive = keepalive.with_interval(KEEPALIVE_EVERY).with_retries(KEEPALIVE_TRIES);
    socket.set_tcp_keepalive(&keepalive)?;
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(UNACKNOWLEDGED_MAX))?;
    Ok(())
}

async fn start<S>(
    stream: S,
    settings: &RedisConnectionInfo,
    config: AsyncConnectionConfig,
) -> Result<Transport, NotOpened>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let opened = MultiplexedConnection::new_with_config(settings, stream, config).await;
    let (connection, driver) = opened.map_err(|error| match error.kind() {
        ::redis::ErrorKind::AuthenticationFailed => {
            NotOpened::new(Fault::NotAuthenticated, Fault::NotAuthenticated)
        }
        _ => NotOpened::new(refusal::of_transport(&error), error.category()),
    })?;
    let (ended, broken) = oneshot::channel();
    let driver = OwnedTask::spawn(async move {
        driver.await;
        // Nobody listens any more if the connection was left before.
        let _ = ended.send(());
    });
    Ok(Transport { connection, driver, broken })
}

/// Logs in, chooses the database and asks who is there. One after another: of a pipeline, an answer that is no RESP
/// can't be told from an end of the connection.
async fn greet(connection: &mut MultiplexedConnection, connector: &Connector) -> Result<Hello, NotOpened> {
    if let Some(login) = &connector.login {
        let mut auth = ::redis::cmd("AUTH");
        auth.arg(login.username.as_deref()).arg(&login.password);
        ask(connection, "AUTH", &auth).await?;
    }
    if connector.database != 0 {
        let mut select = ::redis::cmd("SELECT");
        select.arg(connector.database);
        ask(connection, "SELECT", &select).await?;
    }
    let who = read_hello(&ask(connection, "HELLO", &hello()).await?)?;
    let asked = Instant::now();
    ask(connection, "PING", &::redis::cmd("PING")).await?;
    Ok(Hello { round_trip: asked.elapsed(), ..who })
}

/// Which master answers. One that may not say it (ACL) is another each time.
pub(super) async fn master(
    connection: &mut MultiplexedConnection,
    patience: Duration,
) -> Result<Master, NotOpened> {
    let mut info = ::redis::cmd("INFO");
    info.arg("replication");
    let asked = async {
        match connection.send_packed_command(&info).await {
            Ok(Value::ServerError(error)) => {
                debug!(code = error.code(), "INFO replication is refused");
                Ok(Master::unknown())
            }
            Ok(reply) => Ok(text(&reply).and_then(Master::of_info).unwrap_or_else(Master::unknown)),
            Err(error) => Err(NotOpened::new(refusal::of_transport(&error), error.category())),
        }
    };
    within(patience, "no answer to INFO", asked).await
}

async fn ask(connection: &mut MultiplexedConnection, name: &str, command: &Cmd) -> Result<Value, NotOpened> {
    match connection.send_packed_command(command).await {
        Ok(Value::ServerError(error)) => Err(refused(name, &error)),
        Ok(reply) => Ok(reply),
        Err(error) => Err(NotOpened::new(refusal::of_transport(&error), error.category())),
    }
}

/// Named, so that `CLIENT LIST` tells whose connection it is.
fn hello() -> Cmd {
    let mut hello = ::redis::cmd("HELLO");
    hello.arg(2).arg("SETNAME").arg("slidegate");
    hello
}

/// The code and the command's name, and nothing else: servers repeat the arguments of what they don't know.
fn refused(name: &str, error: &::redis::ServerError) -> NotOpened {
    let unknown = error.details().is_some_and(|detail| detail.starts_with("unknown command"));
    let fault = match (name, refusal::of_server(error)) {
        ("HELLO", _) if unknown => Fault::TooOld,
        // `ERR AUTH <password> called without any password configured`, and the like.
        ("AUTH", _) => Fault::NotAuthenticated,
        (_, Refusal::Final { error, .. }) => error.fault().unwrap_or(Fault::Protocol),
        _ => Fault::Protocol,
    };
    NotOpened::new(fault, format!("{name} is refused with {}", error.code()))
}

fn read_hello(reply: &Value) -> Result<Hello, NotOpened> {
    let version = field(reply, "version").and_then(|text| {
        let mut numbers = text.split('.').map(|number| number.parse::<u32>().ok());
        Some((numbers.next()??, numbers.next()??))
    });
    let Some(version) = version else {
        return Err(NotOpened::new(Fault::Protocol, "HELLO names no version"));
    };
    if version < VERSION_MIN {
        return Err(NotOpened::new(Fault::TooOld, format!("its version is {}.{}", version.0, version.1)));
    }
    let is_master = field(reply, "role").is_none_or(|role| role == "master");
    let is_cluster = field(reply, "mode") == Some("cluster");
    Ok(Hello { is_master, is_cluster, round_trip: Duration::ZERO })
}

/// A field of a reply that lists names and values in turn (RESP2) or is a map (RESP3).
pub(super) fn field<'a>(reply: &'a Value, name: &str) -> Option<&'a str> {
    let mut found = match reply {
        Value::Map(pairs) => pairs.iter().find(|(key, _)| text(key) == Some(name)).map(|(_, value)| value),
        Value::Array(flat) => {
            flat.chunks_exact(2).find(|pair| text(&pair[0]) == Some(name)).map(|pair| &pair[1])
        }
        _ => None,
    };
    found.take().and_then(text)
}

/// The text of a reply that is one.
pub(super) fn text(value: &Value) -> Option<&str> {
    match value {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => Some(text),
        _ => None,
    }
}

/// Whether the server still answers and is still a master. Any answer counts, a refusal too: a server that is
/// BUSY is there.
pub(super) async fn still_master(connection: &mut MultiplexedConnection) -> Result<(), Fault> {
    let mut check = Pipeline::new();
    check.add_command(::redis::cmd("HELLO")).add_command(::redis::cmd("PING"));
    let replies = connection.send_packed_commands(&check, 0, 2).await;
    let replies = replies.map_err(|error| refusal::of_transport(&error))?;
    if replies.first().is_some_and(|hello| field(hello, "role").is_some_and(|role| role != "master")) {
        return Err(Fault::ReadOnly);
    }
    match replies.get(1) {
        Some(Value::ServerError(error)) => match refusal::of_server(error) {
            Refusal::Final { error: StoreError::Unavailable { fault }, leave: true } => Err(fault),
            _ => Ok(()),
        },
        _ => Ok(()),
    }
}

/// The shared parts of everything that opens connections.
pub(super) type SharedConnector = Arc<Connector>;

#[cfg(test)]
mod tests {
    use super::*;

    fn hello_of(version: &str, role: &str, mode: &str) -> Value {
        let bulk = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let pairs = [("server", "redis"), ("version", version), ("mode", mode), ("role", role)];
        let mut words: Vec<Value> =
            pairs.iter().flat_map(|(name, value)| [bulk(name), bulk(value)]).collect();
        words.extend([bulk("modules"), Value::Array(Vec::new())]);
        Value::Array(words)
    }

    fn refusal_of(name: &str, line: &str) -> NotOpened {
        match ::redis::parse_redis_value(format!("-{line}\r\n").as_bytes()) {
            Ok(Value::ServerError(error)) => refused(name, &error),
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn servers_older_than_the_scripts_need_are_refused_by_version() {
        for version in ["6.0.16", "5.0.7", "3.2.12", "6.1"] {
            let refused = read_hello(&hello_of(version, "master", "standalone")).expect_err("too old");
            assert_eq!(refused.fault, Fault::TooOld, "{version}");
        }
        for version in ["6.2.0", "7.0.15", "8.2.1", "9.1.2", "10.0"] {
            let hello = read_hello(&hello_of(version, "master", "standalone")).expect("new enough");
            assert!(hello.is_master, "{version}");
        }
        // Before 6.0 there is no HELLO to ask.
        assert_eq!(refusal_of("HELLO", "ERR unknown command 'HELLO'").fault, Fault::TooOld);
        assert!(Fault::TooOld.to_string().contains("needs Redis 6.2 or newer"));
    }

    #[test]
    fn a_replica_is_no_master() {
        let hello = read_hello(&hello_of("7.0.15", "replica", "cluster")).expect("new enough");
        assert!(!hello.is_master);
        assert!(read_hello(&Value::Okay).is_err());
        assert!(read_hello(&hello_of("seven", "master", "standalone")).is_err());
    }

    #[test]
    fn what_a_server_repeats_of_a_password_is_not_told() {
        let lines = [
            "ERR unknown command 'AUTH', with args beginning with: 'user' 'hunter2'",
            "ERR AUTH hunter2 called without any password configured for the default user.",
            "WRONGPASS invalid username-password pair or user is disabled: hunter2",
        ];
        for line in lines {
            let refused = refusal_of("AUTH", line);
            assert_eq!(refused.fault, Fault::NotAuthenticated);
            assert!(!format!("{refused:?}").contains("hunter2"), "{refused:?}");
        }
    }
}
