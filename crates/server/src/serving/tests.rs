use super::*;
use http_body_util::Full;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

/// Answers with the peer's address.
struct Peer;

impl Handle for Peer {
    type Body = Full<Bytes>;

    async fn handle(&self, _request: Request<Incoming>, connection: &Connection) -> Response<Full<Bytes>> {
        Response::new(Full::from(format!("{:?}", connection.peer)))
    }
}

fn server() -> Server<Peer> {
    let bounds = Bounds::new(8192);
    Server { handler: Arc::new(Peer), bounds, protocols: protocols(bounds.head_bytes) }
}

// R080: over a Unix socket there is no address, and hashing it panicked.
#[tokio::test]
async fn a_peer_without_an_address_is_served() {
    let (mut client, socket) = UnixStream::pair().unwrap();
    let (_open, closed) = watch::channel(false);
    let serving = tokio::spawn(async move { server().attend(socket, None, closed).await.is_some() });
    client.write_all(b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).await.unwrap();
    assert!(answer.ends_with("None"), "{answer}");
    assert!(serving.await.unwrap(), "the socket came back");
}

#[test]
fn only_a_lack_that_passes_makes_the_port_rest() {
    use io::ErrorKind::{ConnectionAborted, OutOfMemory};
    assert!(is_about_one_connection(&ConnectionAborted.into()));
    assert!(!is_about_one_connection(&OutOfMemory.into()));
    let no_descriptors = io::Error::from_raw_os_error(24);
    assert!(!is_about_one_connection(&no_descriptors));
}

mod watch_on_activity {
    use super::*;

    const BOUNDS: Bounds =
        Bounds { head_bytes: 0, head_time: Duration::from_secs(30), idle_time: Duration::from_secs(75) };

    fn is_due(activity: &Activity) -> bool {
        matches!(activity.due(&BOUNDS, Instant::now()), Due::Now)
    }

    async fn pass(secs: u64) {
        tokio::time::advance(Duration::from_secs(secs)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_head_has_its_time_from_the_connection_on() {
        let activity = Activity::new(Instant::now());
        pass(29).await;
        activity.heard();
        assert!(!is_due(&activity));
        pass(1).await;
        assert!(is_due(&activity));
    }

    #[tokio::test(start_paused = true)]
    async fn a_later_head_has_its_time_from_its_first_byte_on() {
        let activity = Arc::new(Activity::new(Instant::now()));
        drop(Busy::begin(&activity));
        pass(74).await;
        assert!(!is_due(&activity));
        activity.heard();
        pass(29).await;
        activity.heard();
        assert!(!is_due(&activity));
        pass(1).await;
        assert!(is_due(&activity));
    }

    #[tokio::test(start_paused = true)]
    async fn silence_is_counted_from_the_end_of_the_last_request() {
        let activity = Arc::new(Activity::new(Instant::now()));
        let (first, second) = (Busy::begin(&activity), Busy::begin(&activity));
        pass(1000).await;
        assert!(!is_due(&activity));
        drop(first);
        pass(1000).await;
        assert!(!is_due(&activity), "the second is still being answered");
        drop(second);
        pass(74).await;
        assert!(!is_due(&activity));
        pass(1).await;
        assert!(is_due(&activity));
    }
}
