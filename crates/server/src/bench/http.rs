//! An HTTP target: any URL that answers 429 when it limits.
//!
//! One kept connection for each caller, HTTP/1.1 in clear, GET without a body. 2xx is allowed, 429 denied, all else a
//! failure. Where a run has many keys, `{key}` in the URL stands for the key's number.

use std::str::FromStr;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::store::StoreFigures;
use super::subject::{Answer, Caller, Subject, Verdict};

/// How long a request may take. Whoever waits longer has given up.
const ANSWER_TIME: Duration = Duration::from_secs(10);

/// How long a connection may take.
const CONNECT_TIME: Duration = Duration::from_secs(3);

/// After a connection failed, before the next is tried: a server that is gone would otherwise be asked as fast as
/// the machine can refuse.
const PAUSE: Duration = Duration::from_millis(100);

const PLACE: &str = "{key}";

/// The longest URL.
const URL_LEN_MAX: usize = 8192;

/// A URL, with or without a place for the key.
#[derive(Clone, Debug)]
pub(crate) struct Url {
    text: String,
    /// Host and port, to connect to.
    address: String,
    host: HeaderValue,
    /// What stands before and after the key in the target, or all of it.
    target: (String, Option<String>),
}

impl Url {
    /// Whether the key has a place.
    pub(crate) const fn takes_key(&self) -> bool {
        self.target.1.is_some()
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }

    fn uri(&self, key: u32) -> Result<Uri, http::uri::InvalidUri> {
        let (before, after) = &self.target;
        match after {
            None => Uri::from_str(before),
            Some(after) => Uri::try_from(format!("{before}{key}{after}")),
        }
    }
}

impl FromStr for Url {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const HOW: &str = "write http://HOST:PORT/PATH, as in http://127.0.0.1:8080/?user={key}";
        if text.len() > URL_LEN_MAX {
            return Err(format!("a URL may have at most {URL_LEN_MAX} bytes: {HOW}"));
        }
        // Braces belong into no URL; a digit does.
        let uri: Uri = text.replacen(PLACE, "0", 1).parse().map_err(|error| format!("{error}: {HOW}"))?;
        match uri.scheme_str() {
            Some("http") => {}
            Some("https") => {
                return Err("https is not available: measure over http, on the server's machine".to_owned());
            }
            _ => return Err(HOW.to_owned()),
        }
        let authority = uri.authority().filter(|authority| !authority.as_str().contains('@')).ok_or(HOW)?;
        let address = format!("{}:{}", authority.host(), authority.port_u16().unwrap_or(80));
        let host = HeaderValue::from_str(authority.as_str()).map_err(|_| HOW)?;
        let path = text.strip_prefix("http://").and_then(|rest| rest.strip_prefix(authority.as_str()));
        // What is sent begins with a slash: `http://host?query` leaves it out.
        let path = path.ok_or(HOW)?.split('#').next().unwrap_or_default();
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        let target = match path.split_once(PLACE) {
            Some((before, after)) => (before.to_owned(), Some(after.to_owned())),
            None => (path, None),
        };
        Ok(Self { text: text.to_owned(), address, host, target })
    }
}

/// A server that is asked.
#[derive(Debug)]
pub(super) struct Server(pub(super) Url);

impl Subject for Server {
    type Caller = Connection;

    async fn caller(&self) -> Result<Connection, String> {
        let mut connection = Connection { url: self.0.clone(), uri: None, sender: None };
        connection.connect().await.map_err(|error| format!("{}: {error}", self.0.address))?;
        if !self.0.takes_key() {
            connection.uri = self.0.uri(0).ok();
        }
        Ok(connection)
    }

    fn figures(&self) -> Option<StoreFigures> {
        None
    }
}

/// A kept connection; a new one when it broke.
#[derive(Debug)]
pub(super) struct Connection {
    url: Url,
    /// The target, where it is always the same.
    uri: Option<Uri>,
    sender: Option<SendRequest<Empty<Bytes>>>,
}

impl Caller for Connection {
    async fn ask(&mut self, key: u32) -> Answer {
        match timeout(ANSWER_TIME, self.exchange(key)).await {
            Ok(Ok(status)) if status.is_success() => Answer::of(Verdict::Allowed),
            Ok(Ok(StatusCode::TOO_MANY_REQUESTS)) => Answer::of(Verdict::Denied),
            Ok(Ok(status)) => Answer::of(Verdict::Failed(format!("status {status}"))),
            Ok(Err(reason)) => Answer::of(Verdict::Failed(reason)),
            Err(_) => {
                self.sender = None;
                Answer::of(Verdict::Failed(format!("no answer within {} s", ANSWER_TIME.as_secs())))
            }
        }
    }
}

impl Connection {
    async fn exchange(&mut self, key: u32) -> Result<StatusCode, String> {
        if self.sender.is_none()
            && let Err(error) = self.connect().await
        {
            tokio::time::sleep(PAUSE).await;
            return Err(error);
        }
        let result = self.send(key).await;
        if result.is_err() || self.sender.as_ref().is_some_and(SendRequest::is_closed) {
            self.sender = None;
        }
        result
    }

    async fn send(&mut self, key: u32) -> Result<StatusCode, String> {
        let Some(sender) = &mut self.sender else { return Err("no connection".to_owned()) };
        let uri = match &self.uri {
            Some(uri) => uri.clone(),
            None => self.url.uri(key).map_err(|error| error.to_string())?,
        };
        let request = Request::get(uri).header(header::HOST, &self.url.host).body(Empty::new());
        let request = request.map_err(|error| error.to_string())?;
        sender.ready().await.map_err(told)?;
        let response = sender.send_request(request).await.map_err(told)?;
        let (head, mut body) = response.into_parts();
        // To the end, or the connection can't be used again. Nothing is kept, so no length is too much.
        while let Some(frame) = body.frame().await {
            frame.map_err(told)?;
        }
        Ok(head.status)
    }

    async fn connect(&mut self) -> Result<(), String> {
        let connecting = timeout(CONNECT_TIME, TcpStream::connect(&self.url.address)).await;
        let stream = connecting
            .map_err(|_| format!("no connection within {} s", CONNECT_TIME.as_secs()))?
            .map_err(|error| format!("nothing answers there ({error}): is the server running?"))?;
        stream.set_nodelay(true).map_err(|error| error.to_string())?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(told)?;
        // It ends with its sender.
        tokio::spawn(connection);
        self.sender = Some(sender);
        Ok(())
    }
}

fn told(error: hyper::Error) -> String {
    format!("the connection broke: {error}")
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::routing::get;

    use super::*;

    #[test]
    fn a_url_is_sent_as_it_was_written() {
        for (text, address, sent) in [
            ("http://127.0.0.1:8080", "127.0.0.1:8080", "/"),
            ("http://h/a/b?c=d", "h:80", "/a/b?c=d"),
            ("http://h:1/u/{key}?x", "h:1", "/u/7?x"),
            ("http://h?user={key}", "h:80", "/?user=7"),
            ("http://[::1]:9/a#b", "[::1]:9", "/a"),
        ] {
            let url: Url = text.parse().unwrap();
            assert_eq!((url.address.as_str(), url.uri(7).unwrap().to_string().as_str()), (address, sent));
            assert_eq!(url.takes_key(), text.contains("{key}"));
        }
        for (text, said) in [
            ("https://h/", "https is not available"),
            ("h:80/a", "write http://HOST:PORT/PATH"),
            ("/a", "write http://HOST:PORT/PATH"),
            ("http://u:p@h/", "write http://HOST:PORT/PATH"),
            ("http://{key}:80/", "write http://HOST:PORT/PATH"),
            ("http://h/a b", "write http://HOST:PORT/PATH"),
        ] {
            let message = text.parse::<Url>().unwrap_err();
            assert!(message.contains(said), "{text}: {message}");
        }
    }

    #[tokio::test]
    async fn statuses_are_verdicts_and_a_closed_connection_is_opened_again() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let status = |code: u16| StatusCode::from_u16(code).unwrap();
        let answer = async move |axum::extract::Path(code): axum::extract::Path<u16>| {
            (status(code), [(header::CONNECTION, if code == 200 { "close" } else { "keep-alive" })], "body")
        };
        let router = Router::new().route("/{code}", get(answer));
        tokio::spawn(async move { axum::serve(listener, router).await });
        let url: Url = format!("http://{address}/{PLACE}").parse().unwrap();
        let mut caller = Server(url).caller().await.unwrap();
        let mut said = Vec::new();
        for code in [200, 204, 429, 503] {
            said.push(caller.ask(code).await.verdict);
        }
        let failed = Verdict::Failed("status 503 Service Unavailable".into());
        assert_eq!(said, [Verdict::Allowed, Verdict::Allowed, Verdict::Denied, failed]);
    }

    #[tokio::test]
    async fn a_server_that_is_not_there_is_told_before_the_run() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        let url: Url = format!("http://{address}/").parse().unwrap();
        let message = Server(url).caller().await.unwrap_err();
        assert!(message.starts_with(&format!("{address}: nothing answers there")), "{message}");
    }
}
