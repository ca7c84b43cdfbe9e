//! `slidegate validate` as a user runs it.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::path::PathBuf;

use assert_cmd::Command;

fn validate(arguments: &[&str]) -> (i32, String, String) {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let output = Command::cargo_bin("slidegate")
        .unwrap()
        .current_dir(root)
        .arg("validate")
        .args(arguments)
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

#[test]
fn a_good_file_prints_its_policies_and_ends_with_0() {
    let (code, out, err) = validate(&["examples/quickstart.yaml"]);
    assert_eq!(code, 0, "{err}");
    assert_eq!(
        out,
        "POLICY      LIMIT       PERMITS    ALGORITHM       KEY          COST  NOTES\n\
         per-client  per-client  5 per 10s  sliding_window  {client_ip}  1\n"
    );
    assert_eq!(err, "examples/quickstart.yaml is good\n");
}

#[test]
fn a_broken_file_says_where_and_ends_with_1() {
    let (code, out, err) = validate(&["crates/server/tests/config/policy.missing.yaml"]);
    assert_eq!((code, out.as_str()), (1, ""));
    assert!(err.contains("policy.missing.yaml:4:14"), "{err}");
    assert!(err.contains("did you mean `skip`?"), "{err}");
    assert!(err.ends_with("can't be used: 1 error\n"), "{err}");
}

#[test]
fn a_missing_file_is_an_error_and_no_file_is_wrong_usage() {
    let (code, _, err) = validate(&["no-such-file.yaml"]);
    assert_eq!(code, 1);
    assert!(err.contains("no-such-file.yaml"), "{err}");
    assert_eq!(validate(&[]).0, 2);
}

#[test]
fn json_holds_errors_warnings_and_policies() {
    let (code, out, err) = validate(&["--json", "crates/server/tests/config/policy.missing.yaml"]);
    assert_eq!((code, err.as_str()), (1, ""));
    let answer: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(answer["valid"], false);
    assert_eq!((&answer["errors"][0]["line"], &answer["errors"][0]["column"]), (&4.into(), &14.into()));
    assert_eq!(answer["policies"], serde_json::json!([]));

    let (code, out, _) = validate(&["--json", "examples/gateway.yaml"]);
    let answer: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, &answer["valid"]), (0, &true.into()));
    assert_eq!(answer["policies"][0]["limits"][0]["permits"], 2000);
    assert_eq!(answer["warnings"][0]["severity"], "info");
}

#[test]
fn help_shows_an_example_and_the_exit_codes() {
    let (code, out, _) = validate(&["--help"]);
    assert_eq!(code, 0);
    assert!(
        out.contains("$ slidegate validate examples/gateway.yaml") && out.contains("Exit codes"),
        "{out}"
    );
}
