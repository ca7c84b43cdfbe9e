//! `slidegate check --config`: the store itself is asked, without a server.

use assert_cmd::Command;
use serde_json::Value;
use slidegate_testbed::redis::Server;

use crate::client::post;
use crate::{configuration, instance};

/// Exit code, standard output, standard error of a check of the store that this configuration names.
fn check(folder: &tempfile::TempDir, store: &str, line: &[&str]) -> (i32, String, String) {
    let file = folder.path().join("slidegate.yaml");
    std::fs::write(&file, configuration(store)).unwrap();
    let file = file.to_str().unwrap();
    let line = [&["check", "--config", file], line].concat();
    let output = Command::cargo_bin("slidegate").unwrap().args(line).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap().replace(file, "FILE");
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

#[test]
fn the_store_is_asked_and_shares_its_counters_with_servers() {
    let server = Server::start();
    let folder = tempfile::tempdir().unwrap();
    let store = format!("url: \"{}\"", server.url());
    let (code, out, err) = check(&folder, &store, &["--policy", "strict", "--cost", "3"]);
    assert_eq!((code, &*err), (0, ""));
    assert!(out.starts_with("strict: 2 of 5 left, more in ") && out.ends_with("\nallowed\n"), "{out}");

    let instance = instance(&format!("{store}, timeout: 5s"));
    let of_server = post(&instance.address("api"), "/v1/check", r#"{"policy":"strict","cost":2}"#);
    assert_eq!(of_server.json()["limits"][0]["remaining"], 0);

    let (code, out, err) = check(&folder, &store, &["--policy", "strict", "--json"]);
    assert_eq!((code, &*err), (10, ""));
    let decision: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&decision["allowed"], &decision["mode"]), (&false.into(), &"normal".into()));

    let (code, out, err) = check(&folder, &store, &["--policy", "strct"]);
    assert_eq!((code, &*out), (1, ""));
    assert_eq!(err, "error: FILE: no policy is called \"strct\": did you mean \"strict\"?\n");
    let (code, _, err) = check(&folder, &store, &["--policy", "strict", "--cost", "6"]);
    assert_eq!(code, 1);
    assert_eq!(err, "error: FILE: a cost of 6 never fits: limit strict of policy strict holds 5\n");
}

#[test]
fn without_the_store_the_policy_decides_and_a_warning_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start();
    let store = format!("url: \"{}\"", server.url());
    server.kill();
    let warning = "warning: FILE: the store did not decide: there is no connection\n";
    let (code, out, err) = check(&folder, &store, &["--policy", "strict"]);
    assert_eq!((code, &*err), (10, warning));
    assert!(out.ends_with("denied by strict: the store is away (mode deny_all)\n"), "{out}");
    let (code, out, err) = check(&folder, &store, &["--policy", "lenient"]);
    assert_eq!((code, &*err), (0, warning));
    assert!(out.ends_with("allowed (mode allow_all)\n"), "{out}");
    let (code, out, err) = check(&folder, &store, &["--policy", "lenient", "--cost", "0"]);
    assert_eq!((code, &*out), (1, ""));
    assert_eq!(err, "error: FILE: the store is unavailable: there is no connection\n");
}
