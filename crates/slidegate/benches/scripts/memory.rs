//! Memory for a key.

use std::cell::{Cell, RefCell};

use fastrand::Rng;
use serde_json::{Value, json};
use slidegate::core::time::{Millis, Now};

use crate::Options;
use crate::client::{BATCH, Client, Reply, push_command};
use crate::load::{Load, Subject};
use crate::progress::Progress;

/// A key at a steady rate, for a window.
struct Case {
    name: &'static str,
    /// In a window.
    admissions: u64,
    /// Milliseconds.
    window: u64,
    /// What is allowed against the sorted set.
    bar: Option<f64>,
}

const CASES: [Case; 3] = [
    Case { name: "5000/s, window 1 s", admissions: 5000, window: 1000, bar: Some(1.0 / 50.0) },
    Case { name: "70,000 in a day", admissions: 70_000, window: 86_400_000, bar: None },
    Case { name: "10,000/s, window 60 s", admissions: 600_000, window: 60_000, bar: None },
];

/// Of a case of more admissions only what the bar compares is measured: by the general script, which most others
/// take, each of them would take up to a minute, and show nothing that the smallest case doesn't.
const ADMISSIONS_OF_ALL_MAX: u64 = 10_000;

/// A whole day, so that fixed windows begin with it.
const START_MICROS: u64 = 1_767_225_600_000_000;

impl Case {
    fn measures(&self, subject: Subject) -> bool {
        matches!(subject, Subject::SortedSet | Subject::EXACT) || self.admissions <= ADMISSIONS_OF_ALL_MAX
    }

    /// When an admission comes, in microseconds since the epoch.
    const fn instant(&self, n: u64) -> u64 {
        START_MICROS + n * self.window * 1000 / self.admissions
    }
}

/// Memory of the key after a window's admissions, at equal distances.
pub(crate) fn compare(client: &mut Client, options: &Options, progress: &Progress) -> Value {
    let mut rng = Rng::with_seed(options.seed);
    let names: Vec<&str> = Subject::ALL.iter().map(|subject| subject.name()).collect();
    println!("\n| bytes for a key | {} | sliding_window / sorted set | bar |", names.join(" | "));
    println!("|{}", "---|".repeat(names.len() + 3));
    let mut rows = Vec::new();
    for case in &CASES {
        let bytes = Subject::ALL.map(|subject| {
            case.measures(subject).then(|| {
                progress.step(&format!("memory, {}: {}", case.name, subject.name()));
                client.command(&["FLUSHALL"]);
                match subject {
                    Subject::SortedSet => of_sorted_set(client, case, &mut rng),
                    _ => of_ours(client, case, subject, &options.script, &mut rng),
                }
            })
        });
        let ratio = bytes[1].zip(bytes[0]).map(|(ours, base)| ours as f64 / base as f64);
        let ratio = ratio.expect("these two are always measured");
        let or_dash = |cell: Option<String>| cell.unwrap_or_else(|| "-".to_owned());
        let cells = bytes.map(|bytes| or_dash(bytes.map(|bytes| bytes.to_string())));
        let bar = or_dash(case.bar.map(|bar| format!("1/{:.0}", 1.0 / bar)));
        println!("| {} | {} | **1/{:.0}** | {bar} |", case.name, cells.join(" | "), 1.0 / ratio);
        rows.push(json!({ "name": case.name, "bytes": bytes, "ratio": ratio, "bar": case.bar }));
    }
    json!({ "names": names, "rows": rows })
}

/// What the plain script has written when the window is full: a member for each admission. Written by hand, since
/// the script has no clock but the server's.
fn of_sorted_set(client: &mut Client, case: &Case, rng: &mut Rng) -> i64 {
    let n = Cell::new(0);
    client.pipeline(
        || n.get() < case.admissions,
        |out| {
            let score = case.instant(n.get()).to_string();
            let member = format!("{}:{}", n.get(), rng.u32(..));
            push_command(out, ["ZADD", "key", &score, &member].iter());
            n.set(n.get() + 1);
        },
        |_| {},
    );
    usage(client, "key")
}

fn of_ours(client: &mut Client, case: &Case, subject: Subject, script: &str, rng: &mut Rng) -> i64 {
    let permits = case.admissions + BATCH;
    let load = &RefCell::new(Load::new(client, script, subject, 1, 1, permits, Millis(case.window)));
    let n = Cell::new(0);
    client.pipeline(
        || n.get() < case.admissions,
        |out| {
            load.borrow_mut().push_call(rng, Some(Now::from_micros(case.instant(n.get()))), out);
            n.set(n.get() + 1);
        },
        |reply| load.borrow_mut().look_at(reply),
    );
    usage(client, &load.borrow().first_key())
}

fn usage(client: &mut Client, key: &str) -> i64 {
    match client.command(&["MEMORY", "USAGE", key, "SAMPLES", "0"]) {
        Reply::Number(bytes) => bytes,
        other => panic!("no memory for {key}: {other:?}"),
    }
}
