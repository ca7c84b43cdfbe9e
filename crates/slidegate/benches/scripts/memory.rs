//! Memory for a key.

use std::cell::{Cell, RefCell};

use fastrand::Rng;
use serde_json::{Value, json};
use slidegate::core::time::{Millis, Now};

use crate::client::{BATCH, Client, Reply, push_command};
use crate::load::{Load, Subject};

/// Admissions in a window, the window in ms, and what the bar allows for them against the sorted set.
const CASES: [(&str, u64, u64, Option<f64>); 3] = [
    ("5000/s, window 1 s", 5000, 1000, Some(1.0 / 50.0)),
    ("70,000 in a day", 70_000, 86_400_000, None),
    ("10,000/s, window 60 s", 600_000, 60_000, None),
];

/// A whole day, so that fixed windows begin with it.
const START_MICROS: u64 = 1_767_225_600_000_000;

/// Memory of the key after a window's admissions, at equal distances.
pub(crate) fn compare(client: &mut Client, script: &str, rng: &mut Rng) -> Value {
    let names: Vec<&str> = Subject::ALL.iter().map(|subject| subject.name()).collect();
    println!("\n| bytes for a key | {} | sliding_window / sorted set | bar |", names.join(" | "));
    println!("|{}", "---|".repeat(names.len() + 3));
    let mut rows = Vec::new();
    for (name, permits, window, bar) in CASES {
        let bytes = Subject::ALL.map(|subject| match subject {
            Subject::SortedSet => of_sorted_set(client, permits, window, rng),
            _ => {
                client.command(&["FLUSHALL"]);
                let mut load = Load::new(client, script, subject, 1, 1, permits + BATCH, Millis(window));
                of_ours(client, &mut load, permits, window, rng)
            }
        });
        let ratio = bytes[1] as f64 / bytes[0] as f64;
        let cells: Vec<String> = bytes.iter().map(ToString::to_string).collect();
        let told = bar.map_or_else(|| "-".to_owned(), |bar| format!("1/{:.0}", 1.0 / bar));
        println!("| {name} | {} | **1/{:.0}** | {told} |", cells.join(" | "), 1.0 / ratio);
        rows.push(json!({ "name": name, "bytes": bytes, "ratio": ratio, "bar": bar }));
    }
    json!({ "names": names, "rows": rows })
}

fn instant(n: u64, permits: u64, window: u64) -> u64 {
    START_MICROS + n * window * 1000 / permits
}

/// What the plain script has written when the window is full: a member for each admission. Written by hand, since
/// the script has no clock but the server's.
fn of_sorted_set(client: &mut Client, permits: u64, window: u64, rng: &mut Rng) -> i64 {
    client.command(&["FLUSHALL"]);
    let n = Cell::new(0);
    client.pipeline(
        || n.get() < permits,
        |out| {
            let score = instant(n.get(), permits, window).to_string();
            let member = format!("{}:{}", n.get(), rng.u32(..));
            push_command(out, ["ZADD", "key", &score, &member].iter());
            n.set(n.get() + 1);
        },
        |_| {},
    );
    usage(client, "key")
}

fn of_ours(client: &mut Client, load: &mut Load, permits: u64, window: u64, rng: &mut Rng) -> i64 {
    let n = Cell::new(0);
    let load_of = RefCell::new(&mut *load);
    client.pipeline(
        || n.get() < permits,
        |out| {
            let now = Now::from_micros(instant(n.get(), permits, window));
            load_of.borrow_mut().push_call(rng, Some(now), out);
            n.set(n.get() + 1);
        },
        |reply| load_of.borrow_mut().look_at(reply),
    );
    usage(client, &load.first_key())
}

fn usage(client: &mut Client, key: &str) -> i64 {
    match client.command(&["MEMORY", "USAGE", key, "SAMPLES", "0"]) {
        Reply::Number(bytes) => bytes,
        other => panic!("no memory for {key}: {other:?}"),
    }
}
