//! Whole files: examples that load, broken ones that say why, and anything at all without a panic.

use std::collections::BTreeSet;
use std::fs;

use proptest::prelude::*;

use super::*;

/// One broken file for each field, and some that are broken as a whole.
const BROKEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/config");

const EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples");

fn lookup(name: &str) -> Option<String> {
    match name {
        "SECRET" => Some("correct-horse-battery".into()),
        "N" => Some("20o".into()),
        "EMPTY" => Some(String::new()),
        _ => None,
    }
}

fn read(name: &str, text: &str) -> Result<Loaded, Report> {
    let source = Source { name: name.into(), text: text.into() };
    parse(source, Path::new(BROKEN), &lookup)
}

fn broken_files() -> Vec<(String, String)> {
    let mut files: Vec<_> = fs::read_dir(BROKEN)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "yaml"))
        .map(|path| {
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            (name, fs::read_to_string(path).unwrap())
        })
        .collect();
    files.sort();
    files
}

#[test]
fn the_quickstart_configuration_loads_without_a_warning() {
    let loaded = quickstart().unwrap_or_else(|report| panic!("{report}"));
    assert_eq!(loaded.config.policies.len(), 1);
    assert!(loaded.warnings.is_empty(), "{}", loaded.warnings);
}

#[test]
fn the_examples_load_without_warnings() {
    for name in ["full.yaml", "gateway.yaml", "quickstart.yaml"] {
        let loaded = load(&Path::new(EXAMPLES).join(name)).unwrap_or_else(|report| panic!("{report}"));
        assert!(loaded.config.gateway.is_some());
        let warnings = loaded.warnings.entries().filter(|entry| entry.severity == "warning");
        assert_eq!(warnings.collect::<Vec<_>>(), [], "{name}");
    }
}

#[test]
fn every_field_has_a_broken_file_and_stands_in_the_full_example() {
    let full = fs::read_to_string(Path::new(EXAMPLES).join("full.yaml")).unwrap();
    let files: BTreeSet<String> = broken_files().into_iter().map(|(name, _)| name).collect();
    for (section, fields) in schema::ALL {
        for field in fields {
            assert!(files.contains(&format!("{section}.{field}")), "no broken file for {section}.{field}");
            assert!(full.contains(&format!("{field}:")), "examples/full.yaml lacks {section}.{field}");
        }
    }
}

#[test]
fn broken_files_say_what_to_write_instead() {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path(format!("{BROKEN}/snapshots"));
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| {
        for (name, text) in broken_files() {
            let report = match read(&format!("{name}.yaml"), &text) {
                Ok(_) => panic!("{name}.yaml loads"),
                Err(report) => report.to_string(),
            };
            // The path differs from machine to machine.
            let report = report.replace(BROKEN, "tests/config");
            for secret in ["correct-horse", "hunter2", "20o"] {
                assert!(!report.contains(secret), "{name}.yaml shows {secret}:\n{report}");
            }
            insta::assert_snapshot!(name, report);
        }
    });
}
