//! `slidegate bench` as a user runs it: against the embedded store, against a running server, and against one that
//! breaks its promise. Nothing here depends on how fast the machine is.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;

use serde_json::Value;
use slidegate_testbed::redis::Server;

/// Exit code, standard output, standard error.
fn bench(arguments: &[&str]) -> (i32, String, String) {
    let program = assert_cmd::cargo::cargo_bin("slidegate");
    let output = Command::new(program).arg("bench").args(arguments).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

/// A run with `--json`, which must succeed.
fn measured(arguments: &[&str]) -> Value {
    let (code, out, err) = bench(&[arguments, &["--json"]].concat());
    // Without a terminal there is no progress bar.
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    serde_json::from_str(&out).unwrap()
}

fn number(json: &Value, pointer: &str) -> f64 {
    json.pointer(pointer).and_then(Value::as_f64).unwrap_or_else(|| panic!("{pointer}: {json}"))
}

#[test]
fn a_closed_loop_on_one_key_is_held_to_its_limit() {
    let run = measured(&["--hot", "--limit", "100/100ms", "--callers", "16", "--duration", "1s"]);
    assert_eq!(run["input"]["loop"], "closed");
    assert_eq!((&run["input"]["limit"], &run["input"]["keys"]), (&"100/100ms".into(), &"hot".into()));
    assert_eq!(run["targets"][0]["name"], "p99_ms");
    assert!(number(&run, "/latency_us/p50") <= number(&run, "/latency_us/p99"));
    assert!(number(&run, "/latency_us/p99") <= number(&run, "/latency_us/max"));
    // Exact: a window never holds more. And asked without a pause, it is used.
    assert!(number(&run, "/admission/largest_window") <= 100.0);
    assert_eq!(run["admission"]["over"], false);
    assert!(number(&run, "/checks/allowed") <= 1200.0);
    assert!(number(&run, "/checks/allowed") > 0.0 && number(&run, "/checks/denied") > 0.0);
    assert_eq!(run["checks"]["failed"], 0);
    assert_eq!(run["checks"]["degraded"], 0);
    let decided = number(&run, "/checks/allowed") + number(&run, "/checks/denied");
    assert!((number(&run, "/checks/modes/normal") - decided).abs() < 0.5, "{run}");
    let steps: f64 = run["admitted_per_100ms"].as_array().unwrap().iter().filter_map(Value::as_f64).sum();
    assert!(steps <= number(&run, "/checks/allowed"), "{run}");
    assert_eq!((&run["store"], &run["input"]["flights"]), (&Value::Null, &Value::Null));
    assert_eq!(run["targets"][2]["reason"], "the store is in this process");
}

// P3, at a size that a busy machine reaches: a hot key costs one call for each round trip.
#[test]
fn a_store_on_redis_is_measured_on_both_sides() {
    let redis = Server::start();
    let run = measured(&[
        "--store",
        &redis.url(),
        "--hot",
        "--no-denial-cache",
        "--limit",
        "100/100ms",
        "--callers",
        "64",
        "--duration",
        "1s",
    ]);
    assert!(number(&run, "/admission/largest_window") <= 100.0, "{run}");
    assert!(number(&run, "/checks/allowed") > 0.0, "{run}");
    let (calls, per_call) = (number(&run, "/store/calls"), number(&run, "/store/checks_per_call"));
    assert!(calls > 0.0 && per_call > 2.0, "{run}");
    // The server's own count has every script call, and the commands inside.
    assert!(number(&run, "/server/script_calls") >= calls, "{run}");
    assert!(number(&run, "/server/commands") > number(&run, "/server/script_calls"), "{run}");
    assert!(number(&run, "/targets/2/value") > 0.0, "{run}");
}

#[test]
fn an_open_loop_offers_its_rate_however_it_is_answered() {
    let run =
        measured(&["--hot", "--limit", "50/100ms", "--rate", "2000", "--duration", "1s", "--seed", "9"]);
    assert_eq!((&run["input"]["loop"], &run["input"]["rate"]), (&"open".into(), &2000.into()));
    // What the machine could not begin is offered too. Five standard deviations of a Poisson process.
    let offered = number(&run, "/checks/offered");
    let answered = number(&run, "/checks/allowed") + number(&run, "/checks/denied");
    assert!((1750.0..2250.0).contains(&offered), "{offered}");
    assert!((answered + number(&run, "/checks/unsent") - offered).abs() < 0.5, "{run}");
    assert!(number(&run, "/delay_us/p99") <= number(&run, "/latency_us/max"));
    assert!(number(&run, "/admission/largest_window") <= 50.0);
}

#[test]
fn many_keys_are_never_denied_by_default_and_say_so() {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("run.json");
    let svg = folder.path().join("run.svg");
    let (json_is, svg_is) = (format!("--json={}", json.display()), svg.display().to_string());
    let (code, out, err) =
        bench(&["--uniform", "--callers", "4", "--duration", "200ms", &json_is, "--svg", &svg_is]);
    assert_eq!((code, err.as_str()), (0, ""));
    assert!(out.starts_with("memory, keys uniform:100000, limit 1000000/1s each (the default)\n"), "{out}");
    assert!(out.contains("no key is asked often enough"), "{out}");
    let run: Value = serde_json::from_str(&std::fs::read_to_string(json).unwrap()).unwrap();
    assert_eq!((&run["checks"]["denied"], &run["admission"]), (&0.into(), &Value::Null));
    let svg = std::fs::read_to_string(svg).unwrap();
    assert!(svg.starts_with("<svg") && svg.matches("<polyline").count() == 2, "{svg}");
}

/// Ends the process when a test fails before it does.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn serve(folder: &Path) -> (Ended, String) {
    let path = folder.join("slidegate.yaml");
    let text = "policies: [{ name: all, limits: [10/100ms] }]\n\
        gateway: { listen: \"127.0.0.1:0\", routes: [{ match: { prefix: / }, policies: [all], upstream: echo }] }\n";
    std::fs::write(&path, text).unwrap();
    let mut command = Command::new(assert_cmd::cargo::cargo_bin("slidegate"));
    command.args(["serve", "--config"]).arg(path).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut server = Ended(command.spawn().unwrap());
    let mut said = BufReader::new(server.0.stdout.take().unwrap()).lines().map(Result::unwrap);
    let url = said.find_map(|line| line.strip_prefix("gateway  ").map(str::to_owned)).unwrap();
    (server, url)
}

#[test]
fn a_running_gateway_is_measured_over_http() {
    let folder = tempfile::tempdir().unwrap();
    let (_server, url) = serve(folder.path());
    let run = measured(&["--target", &url, "--limit", "10/100ms", "--callers", "8", "--duration", "1s"]);
    assert_eq!(run["input"]["target"], url);
    assert_eq!((&run["checks"]["failed"], &run["admission"]["over"]), (&0.into(), &false.into()));
    assert!(number(&run, "/checks/allowed") > 0.0 && number(&run, "/checks/denied") > 0.0, "{run}");
    let open = measured(&[
        "--target",
        &format!("{url}/{{key}}"),
        "--keys",
        "zipf:50",
        "--rate",
        "500",
        "--duration",
        "300ms",
    ]);
    assert_eq!(open["checks"]["failed"], 0);
    assert_eq!((&open["input"]["limit"], &open["admission"]), (&Value::Null, &Value::Null));
    assert_eq!(open["targets"][1]["reason"], "say with --limit what the target is held to");
}

/// Answers every request with 200, and tells of the first.
fn always_yes() -> (SocketAddr, mpsc::Receiver<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (asked, first) = mpsc::channel();
    thread::spawn(move || {
        for connection in listener.incoming().map_while(Result::ok) {
            let asked = asked.clone();
            thread::spawn(move || say_yes(connection, &asked));
        }
    });
    (address, first)
}

fn say_yes(mut connection: TcpStream, asked: &mpsc::Sender<()>) {
    let mut buffer = [0; 4096];
    // A request without a body fits into one piece, and the next comes after the answer.
    while connection.read(&mut buffer).is_ok_and(|len| len > 0) {
        let _ = asked.send(());
        if connection.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").is_err() {
            return;
        }
    }
}

#[test]
fn over_admission_that_is_proven_has_an_exit_code_of_its_own() {
    let (address, _asked) = always_yes();
    let target = format!("http://{address}/");
    let (code, out, err) =
        bench(&["--target", &target, "--limit", "2/1h", "--callers", "3", "--duration", "1s"]);
    assert_eq!((code, err.as_str()), (3, ""), "{out}");
    assert!(out.contains("of at most 2: MORE THAN THE LIMIT ADMITS"), "{out}");
}

#[test]
fn an_interrupted_run_prints_what_it_has() {
    let (address, asked) = always_yes();
    let mut command = Command::new(assert_cmd::cargo::cargo_bin("slidegate"));
    command.args(["bench", "--target", &format!("http://{address}/"), "--callers", "2", "--duration", "1h"]);
    let mut run = Ended(command.stdout(Stdio::piped()).spawn().unwrap());
    // It listens for signals before it asks the first time, and has an answer once it asks again.
    for _ in 0..4 {
        asked.recv().unwrap();
    }
    assert!(Command::new("kill").args(["-INT", &run.0.id().to_string()]).status().unwrap().success());
    let mut out = String::new();
    run.0.stdout.take().unwrap().read_to_string(&mut out).unwrap();
    assert!(out.contains("\nended early, after ") && out.contains("checks"), "{out}");
    assert_eq!(run.0.wait().unwrap().code(), Some(0));
}

#[test]
fn what_can_not_be_measured_is_1_and_wrong_usage_2() {
    let (code, out, err) = bench(&["--store", "mongodb://u:secret@h1:27017/mymaster"]);
    assert_eq!((code, out.as_str()), (1, ""));
    assert!(err.starts_with("error: ") && !err.contains("secret"), "{err}");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let (code, _, err) = bench(&["--target", &format!("http://{address}/")]);
    assert_eq!(code, 1);
    assert!(err.contains("nothing answers there") && err.contains("is the server running?"), "{err}");
    let (code, _, err) = bench(&["--rate", "fast"]);
    assert_eq!(code, 2);
    assert!(err.contains("write a whole number from 1 to 10000000"), "{err}");
}
