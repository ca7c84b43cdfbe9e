//! The benchmark `hot`: runs it, and draws how many calls a hot key costs the server as instances are added.

use std::fs;

use serde_json::Value;
use slidegate_plot::{self as plot, Line, Plot, Scale};

use crate::step::{self, Done, Failure};

/// Where the benchmark leaves its figures, for the picture.
const FIGURES: &str = "target/hot.json";
const PICTURE: &str = "docs/benchmarks/hot-key.svg";

/// What is drawn: as many lines as a plot has.
const VARIANTS: [&str; 3] = ["flights alone", "leases", "shards"];

pub(super) fn run() -> Done {
    let figures = step::root().join(FIGURES);
    let _ = fs::remove_file(&figures);
    step::run(&format!(
        "cargo bench --package slidegate --bench hot -- --json {}",
        figures.to_str().ok_or_else(|| failed("its path is no text"))?
    ))?;
    let text = fs::read_to_string(&figures).map_err(|error| failed(&error.to_string()))?;
    let json = serde_json::from_str(&text).map_err(|error| failed(&error.to_string()))?;
    fs::write(step::root().join(PICTURE), picture(&json)?)
        .map_err(|error| Failure::Step(format!("{PICTURE}: {error}")))?;
    step::note(&format!("drawn: {PICTURE}"));
    Ok(())
}

fn picture(figures: &Value) -> Result<String, Failure> {
    let rows = figures.as_array().ok_or_else(|| failed("no rows"))?;
    let number = |row: &Value, field: &str| row.get(field).and_then(Value::as_f64);
    let mut lines = Vec::new();
    for name in VARIANTS {
        let of_one = rows.iter().filter(|row| row.get("variant").and_then(Value::as_str) == Some(name));
        let points: Option<Vec<_>> =
            of_one.map(|row| number(row, "instances").zip(number(row, "calls"))).collect();
        let points = points.filter(|points| !points.is_empty());
        lines.push(Line { name, points: points.ok_or_else(|| failed(&format!("no numbers of {name}")))? });
    }
    Ok(plot::column(&[Plot {
        title: "One hot key: calls to the server",
        x_label: "instances",
        y_label: "calls each second",
        x_scale: Scale::Linear,
        y_scale: Scale::Log,
        lines: &lines,
    }]))
}

fn failed(why: &str) -> Failure {
    Failure::Step(format!("{FIGURES}: {why}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn figures_become_a_line_for_each_variant() {
        let row = |variant: &str, instances: u32| json!({ "variant": variant, "instances": instances, "calls": 100.0 });
        let rows: Vec<Value> = VARIANTS.iter().flat_map(|name| [row(name, 1), row(name, 8)]).collect();
        assert_eq!(picture(&json!(rows)).unwrap().matches("<polyline").count(), 3);
        assert_eq!(
            picture(&json!([])).unwrap_err().to_string(),
            "target/hot.json: no numbers of flights alone"
        );
    }
}
