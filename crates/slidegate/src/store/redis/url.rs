//! Store URLs: `scheme://[user[:password]@]host[:port][,host...][/path]`.
//!
//! What it is not: a general URL parser. The grammar is what users of Redis write, and every refusal says
//! where (in characters from the start, counted from 1) and what to write instead. A refusal never repeats a
//! piece of the text: a URL that is wrong may hold its password in an unexpected place.

use super::config::RedisConfigError;

/// Longer texts are no URLs: 64 hosts of 63 letters with a password fit.
const URL_LEN_MAX: usize = 8192;
/// Sentinels or seeds of a cluster; a handful is usual.
pub(super) const HOSTS_MAX: usize = 64;
/// Redis allows as many databases as `databases` says; nobody configures more.
const DATABASE_MAX: u32 = 65_535;
const PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26_379;

/// What a URL says.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct ParsedUrl {
    pub(super) topology: Topology,
    pub(super) tls: bool,
    pub(super) username: Option<String>,
    pub(super) password: Option<String>,
    pub(super) database: u32,
}

/// Who is asked for the master.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Topology {
    /// One server behind a fixed address.
    Single(Address),
    /// Whoever the sentinels say is the master of this name.
    Sentinel {
        /// The sentinels.
        sentinels: Vec<Address>,
        /// The name of the master.
        master: String,
    },
    /// A cluster, found through any of these nodes.
    Cluster(Vec<Address>),
}

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Address {
    /// A name or IP address (IPv6 without brackets) and a port.
    Tcp(String, u16),
    /// The path of a Unix socket.
    Unix(std::path::PathBuf),
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tcp(host, port) if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp(host, port) => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Single,
    Unix,
    Sentinel,
    Cluster,
}

/// Schemes, with what they mean and whether they use TLS. Valkey's own spellings follow from these.
const SCHEMES: [(&str, Kind, bool); 7] = [
    ("redis", Kind::Single, false),
    ("rediss", Kind::Single, true),
    ("redis+unix", Kind::Unix, false),
    ("redis-sentinel", Kind::Sentinel, false),
    ("rediss-sentinel", Kind::Sentinel, true),
    ("redis-cluster", Kind::Cluster, false),
    ("rediss-cluster", Kind::Cluster, true),
];

/// A piece of the URL and where it begins, in bytes.
#[derive(Clone, Copy)]
struct Piece<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Piece<'a> {
    fn split_once(self, separator: char) -> (Self, Option<Self>) {
        match self.text.find(separator) {
            Some(end) => (self.before(end), Some(self.after(end + separator.len_utf8()))),
            None => (self, None),
        }
    }

    fn before(self, end: usize) -> Self {
        Self { text: &self.text[..end], at: self.at }
    }

    fn after(self, start: usize) -> Self {
        Self { text: &self.text[start..], at: self.at + start }
    }

    /// A refusal that points at the start of this piece.
    fn refuse(self, write: impl Into<String>) -> RedisConfigError {
        RedisConfigError::Url { at: self.at + 1, write: write.into() }
    }
}

pub(super) fn parse(url: &str) -> Result<ParsedUrl, RedisConfigError> {
    let whole = Piece { text: url, at: 0 };
    if url.len() > URL_LEN_MAX {
        return Err(whole.refuse(format!("a URL of at most {URL_LEN_MAX} bytes")));
    }
    if let Some(at) = url.bytes().position(|byte| byte <= b' ' || byte == 0x7f) {
        return Err(whole
            .after(at)
            .refuse("no spaces or control characters; in a password, percent-encode them"));
    }
    let (kind, tls, rest) = scheme(whole)?;
    let (authority, path, options) = split_path(rest)?;
    let (username, password, hosts) = credentials(authority)?;
    if let Some(options) = options.filter(|_| kind != Kind::Unix) {
        return Err(options.refuse("nothing: what else there is to say has fields of its own"));
    }
    let (topology, database) = match kind {
        Kind::Unix => unix(hosts, path, options)?,
        Kind::Single => {
            let mut all = host_list(hosts, PORT)?;
            if all.len() > 1 {
                return Err(hosts.refuse(
                    "one host; for several, redis-sentinel://h1,h2/mymaster or redis-cluster://h1,h2",
                ));
            }
            (Topology::Single(all.remove(0)), database(path)?)
        }
        Kind::Sentinel => sentinel(host_list(hosts, SENTINEL_PORT)?, path, hosts)?,
        Kind::Cluster => {
            let database = database(path)?;
            if database != 0 {
                return Err(path.unwrap_or(hosts).refuse("no database number: a cluster has only 0"));
            }
            (Topology::Cluster(host_list(hosts, PORT)?), 0)
        }
    };
    Ok(ParsedUrl { topology, tls, username, password, database })
}

fn scheme(whole: Piece<'_>) -> Result<(Kind, bool, Piece<'_>), RedisConfigError> {
    let Some(end) = whole.text.find("://") else {
        return Err(whole.refuse("a URL that begins with redis://, as in redis://127.0.0.1:6379"));
    };
    let given = whole.text[..end].to_ascii_lowercase();
    let spelled = given.replacen("valkey", "redis", 1);
    let known = SCHEMES.iter().find(|(name, ..)| *name == spelled);
    let Some((_, kind, tls)) = known else {
        let names = SCHEMES.map(|(name, ..)| name);
        let write = crate::spelling::nearest(&spelled, names.iter())
            .map_or_else(|| format!("one of the schemes {}", names.join(", ")), |name| format!("{name}://"));
        return Err(whole.refuse(write));
    };
    Ok((*kind, *tls, whole.after(end + 3)))
}

/// Authority, path (without its slash) and options (from their `?` or `#` on).
type Parts<'a> = (Piece<'a>, Option<Piece<'a>>, Option<Piece<'a>>);

/// The path begins at the first slash, unless an `@` comes later: then that slash is part of a password that
/// should have been encoded.
fn split_path(rest: Piece<'_>) -> Result<Parts<'_>, RedisConfigError> {
    let end = rest.text.find(['/', '?', '#']).unwrap_or(rest.text.len());
    let (authority, path) = (rest.before(end), rest.after(end));
    if path.text.contains('@') && !authority.text.contains('@') && !authority.text.is_empty() {
        return Err(path.refuse("/ as %2F, ? as %3F, # as %23 in user and password"));
    }
    let end = path.text.find(['?', '#']).unwrap_or(path.text.len());
    let options = Some(path.after(end)).filter(|options| !options.text.is_empty());
    let path = path.before(end);
    Ok((authority, path.text.starts_with('/').then(|| path.after(1)), options))
}

type Credentials<'a> = (Option<String>, Option<String>, Piece<'a>);

fn credentials(authority: Piece<'_>) -> Result<Credentials<'_>, RedisConfigError> {
    let Some(end) = authority.text.rfind('@') else {
        return Ok((None, None, authority));
    };
    let (user, password) = authority.before(end).split_once(':');
    if let Some(at) = user.text.find('@') {
        return Err(user.after(at).refuse("@ as %40 in user and password"));
    }
    let username = if user.text.is_empty() { None } else { Some(decode(user)?) };
    let password = password.filter(|text| !text.text.is_empty()).map(decode).transpose()?;
    Ok((username, password, authority.after(end + 1)))
}

fn decode(piece: Piece<'_>) -> Result<String, RedisConfigError> {
    let mut rest = piece;
    while let Some(at) = rest.text.find('%') {
        let digits = rest.text.as_bytes().get(at + 1..at + 3);
        if !digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit)) {
            return Err(rest.after(at).refuse("% as %25 in user and password"));
        }
        rest = rest.after(at + 3);
    }
    let decoded = percent_encoding::percent_decode_str(piece.text).decode_utf8();
    decoded.map(Into::into).map_err(|_| piece.refuse("user and password in UTF-8"))
}

fn host_list(hosts: Piece<'_>, port: u16) -> Result<Vec<Address>, RedisConfigError> {
    let mut all = Vec::new();
    let mut rest = Some(hosts);
    while let Some(piece) = rest {
        let (host, next) = piece.split_once(',');
        rest = next;
        if all.len() == HOSTS_MAX {
            return Err(host.refuse(format!("at most {HOSTS_MAX} hosts: the others are found through them")));
        }
        let address = host_port(host, port)?;
        if !all.contains(&address) {
            all.push(address);
        }
    }
    Ok(all)
}

fn host_port(piece: Piece<'_>, default: u16) -> Result<Address, RedisConfigError> {
    let (host, port) = match piece.text.strip_prefix('[') {
        Some(inner) => {
            let Some(end) = inner.find(']') else {
                return Err(piece.refuse("] after an IPv6 address, as in [::1]:6379"));
            };
            if inner[..end].parse::<std::net::Ipv6Addr>().is_err() {
                return Err(piece.refuse("an IPv6 address between the brackets, as in [::1]:6379"));
            }
            let rest = piece.after(end + 2);
            let port = match rest.text.strip_prefix(':') {
                Some(_) => Some(rest.after(1)),
                None if rest.text.is_empty() => None,
                None => return Err(rest.refuse(": and the port after ]")),
            };
            (piece.after(1).before(end), port)
        }
        None => piece.split_once(':'),
    };
    if host.text.is_empty() {
        return Err(host.refuse("a host, as in redis://127.0.0.1:6379"));
    }
    let bracketed = piece.text.starts_with('[');
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    if !bracketed && !host.text.bytes().all(plain) {
        return Err(
            host.refuse("a host name of letters, digits, - and ., or an IP address (IPv6 in brackets)")
        );
    }
    let port = match port {
        None => default,
        Some(port) => match port.text.parse::<u16>() {
            Ok(number) if number > 0 && port.text.bytes().all(|byte| byte.is_ascii_digit()) => number,
            _ => {
                return Err(port.refuse(
                    "a port from 1 to 65535 (an IPv6 address stands in brackets; : in a password is %3A)",
                ));
            }
        },
    };
    Ok(Address::Tcp(host.text.to_owned(), port))
}

fn database(path: Option<Piece<'_>>) -> Result<u32, RedisConfigError> {
    let Some(path) = path.filter(|path| !path.text.is_empty()) else {
        return Ok(0);
    };
    let digits = path.text.bytes().all(|byte| byte.is_ascii_digit());
    match path.text.parse() {
        Ok(number) if digits && number <= DATABASE_MAX => Ok(number),
        _ => Err(path.refuse(format!("a database number from 0 to {DATABASE_MAX}, or nothing"))),
    }
}

fn sentinel(
    sentinels: Vec<Address>,
    path: Option<Piece<'_>>,
    hosts: Piece<'_>,
) -> Result<(Topology, u32), RedisConfigError> {
    let missing = "/ and the name of the master after the sentinels, as in redis-sentinel://h1,h2/mymaster";
    let Some(path) = path else {
        return Err(hosts.after(hosts.text.len()).refuse(missing));
    };
    let (master, number) = path.split_once('/');
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    if master.text.is_empty() {
        return Err(master.refuse(missing));
    }
    if !master.text.bytes().all(plain) {
        return Err(master.refuse("the master's name: Sentinel takes letters, digits, -, . and _"));
    }
    Ok((Topology::Sentinel { sentinels, master: master.text.to_owned() }, database(number)?))
}

/// The path of a socket has slashes of its own, so the database is an option here: `?db=1`.
fn unix(
    hosts: Piece<'_>,
    path: Option<Piece<'_>>,
    options: Option<Piece<'_>>,
) -> Result<(Topology, u32), RedisConfigError> {
    if !hosts.text.is_empty() {
        return Err(hosts.refuse("an absolute path after ://, as in redis+unix:///run/redis.sock"));
    }
    let Some(path) = path.filter(|path| !path.text.is_empty()) else {
        return Err(hosts.refuse("the socket's path, as in redis+unix:///run/redis.sock"));
    };
    let number = match options {
        None => 0,
        Some(options) if options.text.starts_with("?db=") => database(Some(options.after(4)))?,
        Some(options) => return Err(options.refuse("?db= and a number, or nothing")),
    };
    Ok((Topology::Single(Address::Unix(format!("/{}", decode(path)?).into())), number))
}

#[cfg(test)]
mod tests;
