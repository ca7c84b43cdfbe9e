//! The built-in upstream: answers with the request as an upstream would have received it, for trying things
//! out before there is one.

use std::collections::BTreeMap;
use std::pin::Pin;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, COOKIE};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response};
use http_body::Body as _;
use http_body_util::{Either, Full};
use serde::Serialize;

use super::Answer;
use super::body::RequestBody;
use super::refusal::Refusal;

/// Not shown even to whoever sent them: terminals are shared, and their output is pasted into tickets.
const SECRET: [HeaderName; 2] = [AUTHORIZATION, COOKIE];

#[derive(Serialize)]
struct Echo<'a> {
    method: &'a str,
    path: &'a str,
    query: Option<&'a str>,
    headers: BTreeMap<&'a str, String>,
    body_bytes: u64,
}

/// Reads the body to its end, and answers 200.
pub(super) async fn answer(parts: &Parts, body: RequestBody) -> Result<Answer, Refusal> {
    let echo = Echo {
        method: parts.method.as_str(),
        path: parts.uri.path(),
        query: parts.uri.query(),
        headers: headers(&parts.headers),
        body_bytes: count(body).await?,
    };
    // Text and a number: there is nothing in it that could fail to be written.
    let mut text = serde_json::to_string_pretty(&echo).unwrap_or_default();
    text.push('\n');
    let mut response = Response::new(Either::Left(Full::default()));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if parts.method == Method::HEAD {
        headers.insert(CONTENT_LENGTH, text.len().into());
    } else {
        *response.body_mut() = Either::Left(Full::new(Bytes::from(text)));
    }
    Ok(response)
}

fn headers(headers: &HeaderMap) -> BTreeMap<&str, String> {
    let mut shown: BTreeMap<&str, String> = BTreeMap::new();
    for (name, value) in headers {
        let value =
            if SECRET.contains(name) { "…".into() } else { String::from_utf8_lossy(value.as_bytes()) };
        shown
            .entry(name.as_str())
            .and_modify(|lines| {
                lines.push_str(", ");
                lines.push_str(&value);
            })
            .or_insert_with(|| value.into_owned());
    }
    shown
}

async fn count(mut body: RequestBody) -> Result<u64, Refusal> {
    let upload = body.upload();
    let mut bytes = 0;
    while let Some(frame) = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
        let frame = frame.map_err(|_| upload.fault().unwrap_or(Refusal::BodyBroken))?;
        bytes += frame.data_ref().map_or(0, Bytes::len) as u64;
    }
    Ok(bytes)
}
