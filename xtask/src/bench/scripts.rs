//! The benchmark `scripts`: runs it, and draws what a check costs the server as more of them share a call.

use std::fs;

use serde_json::Value;
use slidegate_plot::{self as plot, Line, Plot, Scale};

use crate::step::{self, Done, Failure};

/// Where the benchmark leaves its figures, for the picture.
const FIGURES: &str = "target/scripts.json";
const PICTURE: &str = "docs/benchmarks/p1-scripts.svg";

pub(super) fn run() -> Done {
    let figures = step::root().join(FIGURES);
    let _ = fs::remove_file(&figures);
    step::run(&format!(
        "cargo bench --package slidegate --bench scripts -- --json {}",
        figures.to_str().ok_or_else(|| failed("its path is no text"))?
    ))?;
    let text = fs::read_to_string(&figures).map_err(|error| failed(&error.to_string()))?;
    let json = serde_json::from_str(&text).map_err(|error| failed(&error.to_string()))?;
    fs::write(step::root().join(PICTURE), picture(&json)?)
        .map_err(|error| Failure::Step(format!("{PICTURE}: {error}")))?;
    step::note(&format!("drawn: {PICTURE}"));
    Ok(())
}

/// One plot for each number of keys, on the first server that was measured.
fn picture(figures: &Value) -> Result<String, Failure> {
    let curves = figures.pointer("/0/curves").and_then(Value::as_array);
    let curves = curves.ok_or_else(|| failed("no curves of the first server"))?;
    let titles = ["Server time of one check, one key", "Server time of one check, 10,000 keys"];
    let plots = titles.iter().zip(curves).map(|(title, curve)| plot_of(title, curve));
    Ok(plot::column(&plots.collect::<Result<Vec<_>, _>>()?))
}

fn plot_of<'a>(title: &'a str, curve: &Value) -> Result<Plot<'a>, Failure> {
    let numbers = |field: &str| {
        let values = curve.get(field).and_then(Value::as_array);
        let numbers = values.and_then(|values| values.iter().map(Value::as_f64).collect::<Option<Vec<_>>>());
        numbers.ok_or_else(|| failed(&format!("no numbers in {field}")))
    };
    let base = curve.get("base").and_then(Value::as_f64).ok_or_else(|| failed("no base"))?;
    let per_call = numbers("per_call")?;
    let ours = per_call.iter().copied().zip(numbers("ours")?).collect();
    let lines = vec![
        Line { name: "sliding_window, ledgers of 8 instances", points: ours },
        Line {
            name: "plain sorted-set script, one check in each call",
            points: per_call.iter().map(|per_call| (*per_call, base)).collect(),
        },
    ];
    Ok(Plot {
        title,
        x_label: "checks in a call",
        y_label: "us for each check",
        x_scale: Scale::Log,
        y_scale: Scale::Linear,
        // Two lines for the life of a verb that ends right after.
        lines: Box::leak(lines.into_boxed_slice()),
    })
}

fn failed(why: &str) -> Failure {
    Failure::Step(format!("{FIGURES}: {why}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn figures_become_a_plot_for_each_number_of_keys() {
        let curve = json!({ "keys": 1, "base": 8.0, "per_call": [1, 16], "ours": [6.0, 0.5] });
        let svg = picture(&json!([{ "curves": [curve, curve] }])).unwrap();
        assert_eq!(svg.matches("<polyline").count(), 4);
    }

    #[test]
    fn figures_that_are_missing_are_told() {
        let failure = picture(&json!([{ "curves": [{ "base": 8.0 }] }])).unwrap_err();
        assert_eq!(failure.to_string(), "target/scripts.json: no numbers in per_call");
    }
}
