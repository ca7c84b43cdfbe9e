//! Whole files: examples that load, broken ones that say why, and anything at all without a panic.

use std::collections::BTreeSet;
use std::fs;

use proptest::prelude::*;
use slidegate::core::time::Millis;
use slidegate::policy::{Failover, OnStoreFailure};

use super::*;

/// One broken file for each field, and some that are broken as a whole.
const BROKEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/config");

const EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples");

fn lookup(name: &str) -> Option<String> {
    match name {
        "SECRET" => Some("correct-horse-battery".into()),
        "N" => Some("20o".into()),
        "SLASHED" => Some("hunter2/hunter2".into()),
        "REDIS_PASSWORD" => Some("swordfish".into()),
        "EMPTY" => Some(String::new()),
        _ => None,
    }
}

fn read(name: &str, text: &str) -> Result<Loaded, Report> {
    let source = Source { name: name.into(), text: text.into() };
    parse(source, Path::new(BROKEN), &lookup)
}

/// The YAML files of a folder, in order, with their names.
fn files(folder: &Path) -> Vec<(String, String)> {
    let mut files: Vec<_> = fs::read_dir(folder)
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

fn broken_files() -> Vec<(String, String)> {
    files(Path::new(BROKEN))
}

fn snapshots() -> insta::Settings {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path(format!("{BROKEN}/snapshots"));
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings
}

#[test]
fn the_quickstart_configuration_loads_without_a_warning() {
    let loaded = quickstart().unwrap_or_else(|report| panic!("{report}"));
    assert_eq!(loaded.config.policies.len(), 1);
    assert!(loaded.warnings.is_empty(), "{}", loaded.warnings);
}

#[test]
fn the_examples_load_without_warnings() {
    for name in
        ["full.yaml", "gateway.yaml", "quickstart.yaml", "benchmark.yaml", "cluster.yaml", "redis.yaml"]
    {
        let loaded = load(&Path::new(EXAMPLES).join(name)).unwrap_or_else(|report| panic!("{report}"));
        assert!(loaded.config.gateway.is_some());
        let warnings = loaded.warnings.entries().filter(|entry| entry.severity == "warning");
        assert_eq!(warnings.collect::<Vec<_>>(), [], "{name}");
    }
}

#[test]
fn configurations_in_the_documents_load_without_warnings() {
    let docs = Path::new(EXAMPLES).join("../docs");
    let mut count = 0;
    for entry in fs::read_dir(docs).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "md") {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        for block in text.split("```yaml\n").skip(1) {
            let yaml = block.split("```").next().unwrap();
            let loaded = read(&path.display().to_string(), yaml).unwrap_or_else(|report| panic!("{report}"));
            let warnings = loaded.warnings.entries().filter(|entry| entry.severity == "warning");
            assert_eq!(warnings.collect::<Vec<_>>(), [], "{}", path.display());
            count += 1;
        }
    }
    assert!(count >= 2, "only {count} configurations found");
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

// R170: a misspelled field was ignored, and with it the limit that it was to set. Each broken file must be
// refused, with its cause.
#[test]
fn broken_files_say_what_to_write_instead() {
    snapshots().bind(|| {
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

#[test]
fn files_as_people_write_them_load() {
    for (name, text) in files(&Path::new(BROKEN).join("good")) {
        let loaded = read(&name, &text).unwrap_or_else(|report| panic!("{report}"));
        // The limiter that is built from it must not find more.
        let built = slidegate::Limiter::builder().policies(loaded.config.policies).build();
        assert!(built.is_ok(), "{name}: {built:?}");
    }
}

#[test]
fn line_ends_of_windows_are_line_ends() {
    let text = "policies:\r\n  - name: windows\r\n    limits:\r\n      - 10/s\r\n      - 1 / m\r\n";
    assert_eq!(read("good.yaml", text).unwrap().config.policies[0].limits().len(), 2);
    let report = read("bad.yaml", &text.replace("1 / m", "1 / x")).unwrap_err().to_string();
    let quoted = "--> bad.yaml:5:13\n  |\n5 |       - 1 / x\n  |             ^\n";
    assert!(report.contains(quoted), "{report}");
}

#[test]
fn an_open_configuration_comes_out_as_it_is_written() {
    let text = fs::read_to_string(Path::new(BROKEN).join("good/open-doors.yaml")).unwrap();
    let config = read("open-doors", &text).unwrap().config;
    assert_eq!(config.client_ip.trust, slidegate::http::client_ip::Trust::Hops(2));
    assert_eq!(config.client_ip.header, "forwarded");
    let gateway = config.gateway.unwrap();
    assert_eq!(gateway.routes[0].host.as_deref(), Some("*.example.com"));
    assert_eq!(gateway.routes[0].timeout, std::time::Duration::from_secs(3600));
    assert_eq!(gateway.routes[1].timeout, std::time::Duration::from_secs(30));
    assert_eq!(gateway.routes[1].upstream, Upstream::Http("upstream.internal:80".parse().unwrap()));
    let roles = |door: &DoorConfig| match &door.tokens {
        Tokens::Anyone => Vec::new(),
        Tokens::List(tokens) => tokens.iter().map(|token| token.role).collect(),
    };
    assert_eq!(roles(&config.api.unwrap()), [Role::Write, Role::Write]);
    assert_eq!(roles(&config.admin.unwrap()), [Role::Read, Role::Write]);
    // R106: no permits deny everything, and that is no error.
    assert_eq!(config.policies[0].limits()[0].limit().permits(), 0);
    assert_eq!(config.policies[0].override_count(), 3);
    assert_eq!(config.telemetry.log, LogFormat::Json);
}

#[test]
fn dangerous_set_ups_are_warned_of() {
    snapshots().bind(|| {
        for (name, text) in files(&Path::new(BROKEN).join("warnings")) {
            let loaded = read(&format!("{name}.yaml"), &text).unwrap_or_else(|report| panic!("{report}"));
            insta::assert_snapshot!(format!("warnings.{name}"), loaded.warnings.to_string());
        }
    });
}

#[test]
fn variables_are_used_and_never_shown() {
    let text = "policies:\n  - { name: p, limits: [\"${RATE}/s\"], exempt: { header: { x-internal: \"${KEY}\" } } }\n";
    let lookup = |name: &str| match name {
        "RATE" => Some("25".to_owned()),
        "KEY" => Some("open-sesame".to_owned()),
        _ => None,
    };
    let source = Source { name: "variables.yaml".into(), text: text.into() };
    let loaded = parse(source, Path::new(""), &lookup).unwrap();
    let policy = &loaded.config.policies[0];
    assert_eq!(policy.limits()[0].limit().permits(), 25);
    assert_eq!(&*policy.exempt().headers[0].1, b"open-sesame");
    assert!(!format!("{loaded:?}").contains("open-sesame"));
}

#[test]
fn a_shared_store_comes_out_as_it_is_written_and_shows_no_password() {
    let text = fs::read_to_string(Path::new(BROKEN).join("good/redis.yaml")).unwrap();
    let loaded = read("redis", &text).unwrap();
    assert!(loaded.warnings.entries().all(|entry| entry.severity != "warning"), "{}", loaded.warnings);
    let shown = format!("{loaded:?}");
    assert!(!shown.contains("hunter2"), "{shown}");
    let Loaded { config, .. } = loaded;
    let StoreKind::Redis { config: redis, time } = config.store.kind else {
        panic!("not {:?}", config.store)
    };
    assert!(redis.has_password() && redis.speaks_tls());
    assert_eq!(time, Millis(80));
    let shown = format!("{redis:?}");
    for part in [
        r#"Cluster([Tcp("h1", 7000), Tcp("h2", 6379)])"#,
        r#"prefix: "shop""#,
        "budget",
        "client_clock: true",
        "instances: Some(8)",
        "on_slow_store: None",
        "failures: 3",
        "slow: Millis(50), slow_for: Millis(1000)",
        "fast: Millis(20), fast_for: Millis(2000)",
        "recover_for: Millis(200)",
    ] {
        assert!(shown.contains(part), "{shown}");
    }
    assert!(config.store.secret_key.is_some());
    let of = |policy: &slidegate::Policy| (policy.on_store_failure(), policy.failover());
    assert_eq!(of(&config.policies[0]), (OnStoreFailure::Allow, Failover::Fast));
    assert_eq!(of(&config.policies[1]), (OnStoreFailure::Deny, Failover::Exact));
}

#[test]
fn every_url_of_a_store_is_taken() {
    for url in [
        "redis://127.0.0.1:6379/0",
        "valkey://h",
        "rediss://:${REDIS_PASSWORD}@h:6380",
        "redis+unix:///run/redis.sock?db=1",
        "redis-sentinel://h1:26379,h2/mymaster/0",
        "rediss-sentinel://h1/mymaster",
        "redis-cluster://h1:7000,h2:7001",
        "rediss-cluster://user:${REDIS_PASSWORD}@[::1]:7000",
    ] {
        let text = format!("policies: [{{ name: p, limits: [10/s] }}]\nstore: {{ url: \"{url}\" }}\n");
        let loaded = read("url.yaml", &text).unwrap_or_else(|report| panic!("{report}"));
        let StoreKind::Redis { config, time } = &loaded.config.store.kind else { panic!("{url}") };
        assert_eq!((config.has_password(), *time), (url.contains('$'), Millis(10)));
        let shown = format!("{loaded:?}{}", loaded.warnings);
        assert!(!shown.contains("swordfish"), "{shown}");
    }
}

#[test]
fn files_that_cannot_be_read_are_named() {
    let missing = load(Path::new("/no/such/file.yaml")).unwrap_err().to_string();
    assert!(missing.contains("/no/such/file.yaml") && missing.contains("can't be opened"), "{missing}");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("c.yaml");
    fs::write(&path, b"policies:\n  - name: \xff\n").unwrap();
    let binary = load(&path).unwrap_err().to_string();
    assert!(binary.contains("in line 2"), "{binary}");
    fs::write(&path, "#".repeat(1024 * 1024 + 1)).unwrap();
    let large = load(&path).unwrap_err().to_string();
    assert!(large.contains("larger than 1 MiB"), "{large}");
    let directory = load(folder.path()).unwrap_err().to_string();
    assert!(directory.contains("can't be read"), "{directory}");
}

#[test]
fn all_faults_are_found_in_one_run_and_the_first_fifty_shown() {
    let mut text = String::from("policies:\n");
    for n in 0..60 {
        text.push_str(&format!("  - {{ name: p{n}, limits: [\"{n}\"] }}\n"));
    }
    let report = read("many.yaml", &text).unwrap_err();
    assert_eq!(report.entries().count(), 60);
    assert!(report.to_string().ends_with("... and 10 more\n"), "{report}");
}

/// Reads and prints, whatever comes of it.
fn endure(text: &str) {
    let shown = match read("any.yaml", text) {
        Ok(loaded) => format!("{}{}", loaded.warnings, Table::of(&loaded.config.policies)),
        Err(report) => {
            assert!(report.entries().any(|entry| entry.severity == "error"));
            report.to_string()
        }
    };
    // Lines are shortened and findings counted, so a report stays readable.
    assert!(shown.len() < 200_000, "{} bytes", shown.len());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Whatever a file holds, reading it ends in a configuration or in a report: it never panics.
    #[test]
    fn any_text_is_endured(text in ".{0,200}") {
        endure(&text);
    }

    /// The same for texts made of what YAML and our grammar are made of.
    #[test]
    fn any_yaml_is_endured(words in proptest::collection::vec(proptest::sample::select(vec![
        "policies", "limits", "key", "name", "gateway", "routes", "match", "store", ":", ": ", "- ", "\n", "\n  ",
        "\n    ", "{", "}", "[", "]", "\"", "'", "&a ", "*a", "<<: ", "|", ">", "!!int ", "!x ", "---", "#", "?",
        "${N}", "${", "~", "null", "off", "1e3", "0x1", "-1", ".nan", "10/s", "é", "\u{feff}", "\t", "\r\n", ",",
    ]), 0..60)) {
        endure(&words.concat());
    }

    /// The same for the full example with a stretch replaced, removed or doubled.
    #[test]
    fn any_change_of_the_full_example_is_endured(
        at in 0.0..1.0_f64,
        len in 0_usize..40,
        insert in "[ -~\n]{0,12}",
        doubled in any::<bool>(),
    ) {
        let full = include_str!("../../../../examples/full.yaml");
        let chars: Vec<char> = full.chars().collect();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss, reason = "a test")]
        let start = (at * chars.len() as f64) as usize;
        let end = (start + len).min(chars.len());
        let kept = if doubled { start } else { end };
        let text: String = chars[..end].iter().copied().chain(insert.chars()).chain(chars[kept..].iter().copied()).collect();
        endure(&text);
    }
}
