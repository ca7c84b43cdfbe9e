use std::time::Duration;

use super::super::keys::Keys;
use super::super::plan::StoreChoice;
use super::super::recorder::{Recorder, Timeline, Times};
use super::super::store::StoreFigures;
use super::super::subject::{Answer, Verdict};
use super::*;

const MS: u64 = 1_000_000;

fn plan(limit: Option<&str>, keys: Keys) -> Plan {
    Plan {
        target: Target::Store(StoreChoice {
            url: "redis://user:secret@127.0.0.1:6379/0".into(),
            flights: true,
            denial_cache: false,
        }),
        limit: limit.map(|text| text.parse().unwrap()),
        limit_is_default: false,
        load: Load::Open { rate: 1000, callers: 9 },
        duration: Duration::from_millis(350),
        keys,
        cost: 1,
        seed: 4,
    }
}

/// A run of 350 ms, one check each millisecond, answered after half of one; `allowed` says which are.
fn raw(allowed: impl Fn(u64) -> bool) -> Raw {
    let timeline = Timeline::new(Duration::from_millis(350));
    let mut recorder = Recorder::new(Load::Open { rate: 1000, callers: 1 }, true);
    for at in 0..350 {
        let verdict = if allowed(at) { Verdict::Allowed } else { Verdict::Denied };
        let times = Times { intended: at * MS, sent: at * MS, answered: at * MS + MS / 2 };
        recorder.note(&timeline, 0, times, Answer::of(verdict));
    }
    recorder.flush(&timeline);
    let mut totals = Totals::new();
    totals.add(recorder);
    let admitted = timeline.admitted(350 * MS);
    Raw { totals, unsent: 0, ran_ns: 350 * MS, ended_early: false, admitted, figures: None }
}

/// Ten in each window of 100 ms, a millisecond later each time.
fn ten_of_each_window(at: u64) -> bool {
    at % 101 < 10
}

#[test]
fn an_exact_limiter_has_no_deviation_and_no_violation() {
    let report = Report::new(&plan(Some("10/100ms"), Keys::Hot), raw(ten_of_each_window), None).unwrap();
    let admission = report.admission.as_ref().unwrap();
    assert_eq!((admission.largest_window, admission.bound, admission.over), (10, Some(10), false));
    assert_eq!((admission.windows, admission.deviation_percent), (2, Some(0.0)));
    assert_eq!(admission.permits_per_s, Some(100.0));
    assert_eq!(report.targets.each_ref().map(|aim| aim.met), [Some(true), Some(true), None]);
    assert_eq!(report.admitted_per_100ms, [10, 10, 10, 10]);
    assert!(!report.is_violation());
}

#[test]
fn one_more_than_the_limit_in_a_window_is_a_violation() {
    let report = Report::new(&plan(Some("10/100ms"), Keys::Hot), raw(|at| at % 101 < 11), None).unwrap();
    let admission = report.admission.as_ref().unwrap();
    assert_eq!((admission.largest_window, admission.over), (11, true));
    assert!((admission.deviation_percent.unwrap() - 10.0).abs() < 1e-9, "{admission:?}");
    assert_eq!(report.targets[1].met, Some(false));
    assert!(report.is_violation());
    let text = report.to_string();
    assert!(text.contains("11 permits of at most 10: MORE THAN THE LIMIT ADMITS"), "{text}");
}

#[test]
fn a_figure_that_can_not_be_given_says_why() {
    let reason = |plan: &Plan, allowed: fn(u64) -> bool| {
        let report = Report::new(plan, raw(allowed), None).unwrap();
        (report.targets[1].value, report.targets[1].reason.unwrap())
    };
    for (plan, allowed, said) in [
        (plan(None, Keys::Hot), ten_of_each_window as fn(u64) -> bool, "say with --limit"),
        (plan(Some("10/100ms"), Keys::UNIFORM), ten_of_each_window, "no key is asked often enough"),
        (plan(Some("10/100ms"), Keys::Hot), |_| true, "the load stays below the limit"),
        (plan(Some("200/100ms"), Keys::Hot), |at| at > 0, "the load stays below the limit"),
        (plan(Some("10/200ms"), Keys::Hot), |at| at < 10, "the run is shorter than two windows"),
    ] {
        let (value, reason) = reason(&plan, allowed);
        assert!(value.is_none() && reason.contains(said), "{said}: {reason}");
    }
}

#[test]
fn costs_are_counted_in_permits_and_what_they_can_not_use_is_no_deviation() {
    let plan = Plan { cost: 3, ..plan(Some("32/100ms"), Keys::Hot) };
    let report = Report::new(&plan, raw(ten_of_each_window), None).unwrap();
    let admission = report.admission.as_ref().unwrap();
    assert_eq!((admission.largest_window, admission.deviation_percent), (30, Some(0.0)));
}

#[test]
fn a_run_without_a_decision_is_an_error_that_says_why() {
    let timeline = Timeline::new(Duration::from_millis(350));
    let mut recorder = Recorder::new(Load::Open { rate: 1000, callers: 1 }, true);
    let times = Times { intended: 0, sent: 0, answered: MS };
    recorder.note(&timeline, 0, times, Answer::of(Verdict::Failed("the store is unavailable".into())));
    let mut totals = Totals::new();
    totals.add(recorder);
    let raw = Raw { totals, ..raw(|_| true) };
    let message = Report::new(&plan(Some("10/100ms"), Keys::Hot), raw, None).unwrap_err();
    assert_eq!(message, "no check was decided: the store is unavailable");
}

#[test]
fn everything_is_in_the_table_and_in_json_and_no_password() {
    let mut raw = raw(ten_of_each_window);
    raw.figures = Some(StoreFigures { calls: 7, checks: 350, bytes: 3500 });
    raw.totals.counts.failed = 2;
    raw.totals.counts.failure = Some("it broke".into());
    raw.unsent = 5;
    raw.totals.counts.modes = [40, 300, 0, 10, 0, 0, 0];
    let server = ServerCost { commands: 14, script_calls: 7, script_us: 700, cpu_us: 1400 };
    let report = Report::new(&plan(Some("10/100ms"), Keys::Hot), raw, Some(server)).unwrap();
    let text = report.to_string();
    insta::assert_snapshot!(text);
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["input"]["target"], "redis://127.0.0.1:6379/0");
    assert_eq!(json["targets"][2]["value"], 40.0);
    assert_eq!(json["checks"]["offered"], 357);
    assert_eq!(json["checks"]["modes"], serde_json::json!({"normal": 40, "cached": 300, "local": 10}));
    assert_eq!(json["checks"]["degraded"], 10);
    assert_eq!(json["store"]["checks_per_call"], 50.0);
    assert_eq!(json["server"]["commands"], 14);
    assert!(!text.contains("secret") && !json.to_string().contains("secret"));
}

#[test]
fn the_picture_shows_both() {
    let report = Report::new(&plan(Some("10/100ms"), Keys::Hot), raw(ten_of_each_window), None).unwrap();
    let svg = report.svg();
    for text in [">Latency<", ">latency (us)<", ">Admitted<", ">checks admitted in 100 ms<"] {
        assert!(svg.contains(text), "{text}");
    }
    assert_eq!(svg.matches("<polyline").count(), 2);
    assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
}
