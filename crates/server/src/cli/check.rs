//! `slidegate check`: one decision from the shell, asked of a running server, or of the store that a configuration
//! names ([`store`]).
//!
//! Not a client library: one request, one answer, then it ends. Exit codes are those of the decision, so that
//! scripts can branch on them: 0 allowed, 10 denied, 1 no decision, 2 used wrongly.

use std::fmt::{self, Write as _};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use slidegate::core::decision::{Cost, Mode};
use slidegate::core::time::Millis;

use crate::decision_json::DecisionJson;

mod store;

/// Of a decision: denied. Away from 1 and 2, which mean that there is none.
const EXIT_DENIED: u8 = 10;

/// How long the whole exchange may take. A server that lets a shell wait longer is as good as away.
const TIME_MAX: Duration = Duration::from_secs(5);

/// The longest answer that is read: a decision about one policy has a few hundred bytes.
const ANSWER_LEN_MAX: usize = 1024 * 1024;

/// The longest token file that is read.
const TOKEN_FILE_LEN_MAX: u64 = 64 * 1024;

const AFTER_HELP: &str = "\
Exit codes: 0 allowed, 10 denied, 1 no decision, 2 wrong usage.

Examples:
  $ slidegate check --policy per-user --key client_ip=203.0.113.7 --key header:x-user-id=1001
  $ slidegate check --policy order-create --cost 5 --json | jq .retry_after_ms
  $ slidegate check --policy order-create --cost 0        # look without charging
  $ slidegate check --policy order-create --config slidegate.yaml   # no server: of its Redis store";

/// Ask a running server, or a Redis store, for one decision
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// The policy to ask
    #[arg(long, value_name = "NAME")]
    policy: String,

    /// A part of the key, by the name of its template: client_ip=203.0.113.7. Once for each part
    #[arg(long = "key", value_name = "NAME=VALUE", value_parser = parse_key_part)]
    key: Vec<(String, String)>,

    /// What to charge; 0 looks without charging
    #[arg(long, value_name = "N", default_value_t = 1, allow_negative_numbers = true, value_parser = parse_cost)]
    cost: Cost,

    /// Where the server's API listens
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8082", value_parser = parse_server)]
    server: Uri,

    /// Ask the Redis store that this configuration names, instead of a server
    #[arg(long, value_name = "FILE", conflicts_with_all = ["server", "token_file"])]
    config: Option<PathBuf>,

    /// Print the decision as JSON
    #[arg(long)]
    json: bool,

    /// A file whose first line is the token to show
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

/// Asks, prints, and says by the exit code what came of it.
pub(crate) async fn run(args: Args) -> ExitCode {
    match ask(&args).await {
        Ok(answer) => {
            // Whoever closed the pipe has read enough; the exit code still counts.
            let _ = std::io::stdout().write_all(answer.text(args.json).as_bytes());
            if let Some(note) = &answer.note {
                eprintln!("warning: {note}");
            }
            answer.exit_code()
        }
        Err(message) => {
            eprintln!("error: {message}");
            ExitCode::FAILURE
        }
    }
}

/// A decision as it came, and as it was understood.
#[derive(Debug)]
struct Answer {
    json: String,
    decision: DecisionJson<'static>,
    /// What should be known about how it was made.
    note: Option<String>,
}

impl Answer {
    fn exit_code(&self) -> ExitCode {
        if self.decision.allowed { ExitCode::SUCCESS } else { EXIT_DENIED.into() }
    }

    fn text(&self, as_json: bool) -> String {
        if as_json { format!("{}\n", self.json) } else { in_words(&self.decision) }
    }
}

async fn ask(args: &Args) -> Result<Answer, String> {
    let body = json!({"policy": args.policy, "key": key_map(&args.key)?, "cost": args.cost});
    if let Some(file) = &args.config {
        return store::ask(file, body.to_string()).await;
    }
    let token = args.token_file.as_deref().map(read_token).transpose()?;
    let server = args.server.authority().map_or("", |authority| authority.as_str());
    let uri = format!("http://{server}/v1/check");
    let mut request = Request::post(uri).header(header::CONTENT_TYPE, "application/json");
    if let Some(token) = token {
        request = request.header(header::AUTHORIZATION, token);
    }
    let request =
        request.body(Full::new(Bytes::from(body.to_string()))).map_err(|error| error.to_string())?;
    let (status, body) = tokio::time::timeout(TIME_MAX, exchange(request))
        .await
        .unwrap_or_else(|_| Err(format!("no answer within {} s", TIME_MAX.as_secs())))
        .map_err(|error| format!("{server}: {error}"))?;
    understand(status, &body).map_err(|error| format!("{server}: {error}"))
}

async fn exchange(request: Request<Full<Bytes>>) -> Result<(StatusCode, Bytes), String> {
    let client = Client::builder(TokioExecutor::new()).build_http();
    let response = client.request(request).await.map_err(|error| {
        if error.is_connect() {
            "nothing answers there: is `slidegate serve` running? Name another place with --server".to_owned()
        } else {
            format!("this is no HTTP server, or it went away: {error}")
        }
    })?;
    let (head, body) = response.into_parts();
    let body = Limited::new(body, ANSWER_LEN_MAX).collect().await;
    let body = body.map_err(|error| format!("the answer breaks off: {error}"))?;
    Ok((head.status, body.to_bytes()))
}

/// A decision is a decision by its body and its status both: nothing else is taken for "allowed".
fn understand(status: StatusCode, body: &[u8]) -> Result<Answer, String> {
    /// Of a problem, what is worth telling.
    #[derive(Deserialize)]
    struct Problem {
        title: String,
        detail: Option<String>,
    }
    if let Ok(decision) = serde_json::from_slice::<DecisionJson<'_>>(body)
        && decision.allowed == status.is_success()
    {
        let json = String::from_utf8_lossy(body).into_owned();
        return Ok(Answer { json, decision, note: None });
    }
    if let Ok(problem) = serde_json::from_slice::<Problem>(body) {
        let what = problem.detail.unwrap_or(problem.title);
        return Err(match status {
            StatusCode::UNAUTHORIZED => format!("{what}\nname the token's file with --token-file"),
            _ => what,
        });
    }
    Err(format!("it answers {status}, but not as an API port does: is it another port?"))
}

fn in_words(decision: &DecisionJson<'_>) -> String {
    let mut text = String::new();
    for limit in &decision.limits {
        let _ = match limit.remaining {
            Some(left) => write!(text, "{}: {left} of {} left", limit.name, limit.limit),
            None => write!(text, "{}: of {}, nobody knows how many are left", limit.name, limit.limit),
        };
        if let Some(reset @ 1..) = limit.reset_after_ms {
            let _ = write!(text, ", more in {}", Wait(reset));
        }
        text.push('\n');
    }
    text += if decision.allowed { "allowed" } else { "denied" };
    if !decision.violated.is_empty() {
        let _ = write!(text, " by {}", decision.violated.join(", "));
    }
    match decision.retry_after_ms {
        Some(wait) => {
            let _ = write!(text, ": try again in {}", Wait(wait));
        }
        None if decision.mode == Mode::DenyAll.name() => text += ": the store is away",
        None if !decision.allowed => text += ": waiting does not help",
        None => {}
    }
    if decision.delay_ms > 0 {
        let _ = write!(text, ", after a delay of {}", Wait(decision.delay_ms));
    }
    if decision.shadow {
        text += " (a shadow policy would have denied it)";
    }
    if decision.mode != "normal" {
        let _ = write!(text, " (mode {})", decision.mode);
    }
    text.push('\n');
    text
}

/// A number of milliseconds for people: exact below ten seconds, above in whole seconds, rounded up. JSON has
/// it exactly.
struct Wait(u64);

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 < 10_000 {
            return write!(f, "{}", Millis(self.0));
        }
        let mut seconds = Millis(self.0).ceil_secs();
        let mut space = "";
        for (unit, length) in [("d", 86_400), ("h", 3600), ("m", 60), ("s", 1)] {
            if seconds >= length {
                write!(f, "{space}{}{unit}", seconds / length)?;
                seconds %= length;
                space = " ";
            }
        }
        Ok(())
    }
}

fn parse_key_part(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("write NAME=VALUE, as in client_ip=203.0.113.7".to_owned()),
    }
}

fn parse_cost(text: &str) -> Result<Cost, String> {
    text.parse().map_err(|_| format!("write a whole number from 0 to {}", Cost::MAX))
}

fn key_map(parts: &[(String, String)]) -> Result<Map<String, Value>, String> {
    let mut map = Map::new();
    for (name, value) in parts {
        if map.insert(name.clone(), value.clone().into()).is_some() {
            return Err(format!("--key {name}=… is there twice"));
        }
    }
    Ok(map)
}

fn parse_server(text: &str) -> Result<Uri, String> {
    const HOW: &str = "write http://HOST:PORT, as in http://127.0.0.1:8082";
    let uri: Uri = text.parse().map_err(|error| format!("{error}: {HOW}"))?;
    match uri.scheme_str() {
        Some("http") | None => {}
        Some("https") => {
            return Err("https is not available yet: ask over http, on the server's machine".to_owned());
        }
        Some(_) => return Err(HOW.to_owned()),
    }
    let bare = matches!(uri.path(), "" | "/") && uri.query().is_none();
    if uri.authority().is_none() || !bare {
        return Err(HOW.to_owned());
    }
    Ok(uri)
}

/// The first line of a file that is neither empty nor a comment, as a header's value.
fn read_token(file: &Path) -> Result<HeaderValue, String> {
    use std::io::Read as _;
    let mut text = String::new();
    std::fs::File::open(file)
        .and_then(|file| file.take(TOKEN_FILE_LEN_MAX).read_to_string(&mut text))
        .map_err(|error| format!("{} can't be read: {error}", file.display()))?;
    let token =
        text.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with('#')).ok_or_else(
            || format!("{} holds no token: write one into it, in a line of its own", file.display()),
        )?;
    let mut value = HeaderValue::try_from(format!("Bearer {token}"))
        .map_err(|_| format!("{}: the token holds characters that no header can", file.display()))?;
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
mod tests;
