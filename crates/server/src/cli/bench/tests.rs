use clap::{CommandFactory, Parser};

use super::*;

#[derive(Debug, Parser)]
struct Verb {
    #[command(flatten)]
    args: Args,
}

fn plan_of(line: &[&str]) -> Result<Plan, String> {
    let verb = Verb::try_parse_from([&["bench"], line].concat()).map_err(|error| error.to_string())?;
    plan(&verb.args)
}

#[test]
fn without_arguments_one_key_is_asked_far_above_its_limit() {
    let plan = plan_of(&[]).unwrap();
    assert_eq!(plan.limit.unwrap().to_string(), "5000/1s");
    assert!(plan.limit_is_default);
    assert_eq!((plan.load, plan.keys), (Load::Closed { callers: 512 }, Keys::Hot));
    assert_eq!((plan.duration, plan.cost, plan.seed), (Duration::from_secs(10), 1, 1));
    assert!(matches!(plan.target, Target::Store(store) if store.url == "memory" && store.flights));
}

#[test]
fn many_keys_have_a_limit_that_denies_nobody() {
    for line in [&["--uniform"][..], &["--keys", "zipf"]] {
        assert_eq!(plan_of(line).unwrap().limit.unwrap().to_string(), "1000000/1s");
    }
    let chosen = plan_of(&["--uniform", "--limit", "3/m"]).unwrap();
    assert_eq!((chosen.limit.unwrap().to_string().as_str(), chosen.limit_is_default), ("3/1m", false));
}

#[test]
fn short_forms_say_the_same_as_long_ones() {
    assert_eq!(plan_of(&["--hot"]).unwrap().keys, plan_of(&["--keys", "hot"]).unwrap().keys);
    assert_eq!(plan_of(&["--uniform"]).unwrap().keys, plan_of(&["--keys", "uniform:100000"]).unwrap().keys);
    let open = plan_of(&["--rate", "10000", "--callers", "64"]).unwrap();
    assert_eq!(open.load, Load::Open { rate: 10_000, callers: 64 });
}

#[test]
fn algorithms_have_the_names_of_the_configuration() {
    for name in ["sliding_window", "sliding_log", "fixed_window", "token_bucket", "leaky_bucket"] {
        let limit = plan_of(&["--algorithm", name]).unwrap().limit.unwrap();
        assert_eq!(limit.algorithm().name(), name);
    }
    let bucket = plan_of(&["--algorithm", "token_bucket", "--limit", "7/s"]).unwrap().limit.unwrap();
    assert_eq!(bucket.capacity(), 7);
}

#[test]
fn the_limit_of_a_target_is_known_only_if_it_is_named() {
    let target = ["--target", "http://127.0.0.1:8080/"];
    assert!(plan_of(&target).unwrap().limit.is_none());
    let named = plan_of(&[&target[..], &["--limit", "9/s"]].concat()).unwrap();
    assert_eq!(named.limit.unwrap().permits(), 9);
    let keyed = plan_of(&["--target", "http://h/{key}", "--keys", "uniform:9"]).unwrap();
    assert!(matches!(keyed.target, Target::Http(url) if url.takes_key()));
}

#[test]
fn arguments_that_make_no_sense_say_what_to_write_instead() {
    let target = "http://127.0.0.1:8080/";
    for (line, said) in [
        (&["--rate", "0"][..], "write a whole number from 1 to 10000000, of checks each second"),
        (&["--rate", "1e6"], "write a whole number from 1 to 10000000"),
        (&["--callers", "5000"], "write a whole number from 1 to 4096"),
        (&["--cost", "0"], "write a whole number from 1 to 4294967295"),
        (&["--cost", "-1"], "write a whole number from 1 to 4294967295"),
        (&["--cost", "5001"], "a cost of 5001 never fits into 5000/1s: write at most 5000"),
        (&["--duration", "10"], "a duration ends with one of the units"),
        (&["--duration", "2h"], "write a time from 100ms to 1h"),
        (&["--duration", "99ms"], "write a time from 100ms to 1h"),
        (&["--limit", "fast"], "a limit starts with a whole number of permits"),
        (
            &["--limit", "2000000/1s", "--algorithm", "sliding_log"],
            "sliding_log keeps one entry for each permit",
        ),
        (&["--algorithm", "sliding"], "possible values: sliding_window"),
        (&["--keys", "zipf:0"], "no number of keys from 1 to 10000000"),
        (&["--keys", "hot", "--uniform"], "cannot be used with"),
        (&["--hot", "--uniform"], "cannot be used with"),
        (&["--target", target, "--store", "memory"], "cannot be used with"),
        (&["--target", "https://h/"], "https is not available"),
        (&["--target", target, "--uniform"], "write {key} into it"),
        (&["--target", target, "--cost", "2"], "--cost is the target's own to decide"),
        (&["--target", target, "--no-flights"], "--no-flights is the target's own to decide"),
    ] {
        let message = plan_of(line).unwrap_err();
        assert!(message.contains(said), "{line:?}: {message}");
    }
}

#[test]
fn a_file_that_can_not_be_written_is_told_before_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("missing/run.svg");
    let line = ["bench", "--duration", "1h", "--svg", path.to_str().unwrap()];
    let message = measure(&Verb::try_parse_from(line).unwrap().args).unwrap_err();
    assert!(message.contains("run.svg can't be written"), "{message}");
}

#[test]
fn help_shows_how_it_is_used() {
    Verb::command().debug_assert();
    let help = Verb::command().render_long_help().to_string();
    assert!(help.contains("$ slidegate bench --hot"), "{help}");
    assert!(
        help.contains("Exit codes: 0 measured, 1 not measured, 2 wrong usage, 3 measured, and more"),
        "{help}"
    );
}
