//! The examples of docs/api.md, asked one after another of the policies that it shows.

use std::path::Path;

use serde_json::Value;

use super::*;
use crate::{config, store};

const DOCS: &str = include_str!("../../../../../docs/api.md");

/// The fenced blocks: what they are marked as, and their text.
fn blocks() -> Vec<(&'static str, &'static str)> {
    let fenced = DOCS.split("```").skip(1).step_by(2);
    fenced.map(|block| block.split_once('\n').unwrap()).collect()
}

/// The same without what depends on the clock or on chance.
fn timeless(mut json: Value) -> Value {
    match &mut json {
        Value::Object(members) => {
            for (name, value) in members.iter_mut() {
                let varies = name.ends_with("_ms") && value.is_number() || name == "reservation";
                *value = if varies { Value::from("varies") } else { timeless(value.take()) };
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| *item = timeless(item.take())),
        _ => {}
    }
    json
}

fn limiter() -> slidegate::Limiter<store::AnyStore> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("docs.yaml");
    let (_, yaml) = blocks().into_iter().find(|(mark, _)| *mark == "yaml").unwrap();
    std::fs::write(&file, yaml).unwrap();
    let loaded = config::load(Path::new(&file)).unwrap_or_else(|report| panic!("{report}"));
    store::limiter(loaded.config.policies, &loaded.config.store).unwrap()
}

#[tokio::test]
async fn the_documentation_says_what_the_api_does() {
    let (mut context, _) = context([]);
    context.limiter = limiter();
    let api = router(context, &door(Tokens::Anyone));
    let examples: Vec<_> = blocks().into_iter().filter(|(mark, _)| ["http", "json"].contains(mark)).collect();
    let mut reservation = None;
    for pair in examples.chunks(2) {
        let [("http", request), ("json", answer)] = pair else {
            panic!("an http block without the json that answers it: {pair:?}");
        };
        let (line, body) = request.split_once("\n\n").unwrap();
        let mut body: Value = serde_json::from_str(body).unwrap();
        if let Some(id) = body.get_mut("reservation") {
            *id = reservation.clone().unwrap();
        }
        let reply = ask(&api, line.strip_prefix("POST ").unwrap(), body.to_string()).await.json();
        reservation = reply.get("reservation").cloned().or(reservation);
        let answer: Value = serde_json::from_str(answer).unwrap();
        assert_eq!(timeless(reply), timeless(answer), "{request}");
    }
    assert!(reservation.is_some() && examples.len() > 10, "too few examples");
}
