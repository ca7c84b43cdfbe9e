//! The benchmark `memory`: runs it, and draws how a check's cost grows with keys and with permits.
//!
//! Drawn is the mean that criterion estimates, in nanoseconds for each call.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{env, fs};

use serde_json::Value;
use slidegate_plot::{self as plot, Line, Plot, Scale};

use crate::step::{self, Done, Failure};

/// The groups that are drawn.
const KEYS: &str = "keys";
const PERMITS: &str = "permits";

pub(super) fn run() -> Done {
    let results = target().join("criterion");
    for group in [KEYS, PERMITS] {
        // Sizes that an earlier run had measured would be drawn as if they were of this one.
        match fs::remove_dir_all(results.join(group)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(failed(&results.join(group), &error));
            }
            _ => {}
        }
    }
    step::run("cargo bench --package slidegate --bench memory")?;
    draw(&results)
}

fn draw(results: &Path) -> Done {
    let folder = step::root().join("docs/benchmarks");
    fs::create_dir_all(&folder).map_err(|error| failed(&folder, &error))?;
    let pictures = [("p9-keys.svg", by_keys(results)?), ("p9-permits.svg", by_permits(results)?)];
    for (name, picture) in pictures {
        let path = folder.join(name);
        fs::write(&path, picture).map_err(|error| failed(&path, &error))?;
        step::note(&format!("drawn: docs/benchmarks/{name}"));
    }
    Ok(())
}

/// The bare map is drawn twice: as measured, and lifted to where slidegate begins. A check does more than a
/// map's lookup, so only their growth can be compared.
fn by_keys(results: &Path) -> Result<String, Failure> {
    let group = results.join(KEYS);
    let slidegate = series(&group, "slidegate_")?;
    let map = series(&group, "hashmap_")?;
    let lift = match (slidegate.first(), map.first()) {
        (Some((keys, check)), Some((same, lookup))) if keys.total_cmp(same).is_eq() => check / lookup,
        _ => return Err(Failure::Step(format!("{}: the sizes differ", group.display()))),
    };
    let lifted = map.iter().map(|&(keys, lookup)| (keys, lookup * lift)).collect();
    Ok(plot::svg(&Plot {
        title: "Cost of one check as keys grow",
        x_label: "keys, all warm, one chosen at random",
        y_label: "time for each call (ns)",
        x_scale: Scale::Log,
        y_scale: Scale::Log,
        lines: &[
            Line { name: "slidegate: policy by name, key from text, decision", points: slidegate },
            Line { name: "slidegate, if it grew as the hash map does", points: lifted },
            Line { name: "HashMap<String, AtomicU64>: lookup and add", points: map },
        ],
    }))
}

fn by_permits(results: &Path) -> Result<String, Failure> {
    Ok(plot::svg(&Plot {
        title: "Cost of one check as permits in the window grow",
        x_label: "permits in a window of 1 s, always full",
        y_label: "time for each check (ns)",
        x_scale: Scale::Log,
        y_scale: Scale::Linear,
        lines: &[Line { name: "slidegate", points: series(&results.join(PERMITS), "")? }],
    }))
}

/// The means of the benchmarks in a group whose names are `prefix` and a number, by that number.
fn series(group: &Path, prefix: &str) -> Result<Vec<(f64, f64)>, Failure> {
    let mut points = BTreeMap::new();
    for entry in fs::read_dir(group).map_err(|error| failed(group, &error))? {
        let entry = entry.map_err(|error| failed(group, &error))?;
        let name = entry.file_name();
        let size = name.to_str().and_then(|name| name.strip_prefix(prefix)?.parse::<u32>().ok());
        if let Some(size) = size {
            points.insert(size, mean(&entry.path().join("new/estimates.json"))?);
        }
    }
    if points.is_empty() {
        return Err(Failure::Step(format!("{}: no results called {prefix}NUMBER", group.display())));
    }
    Ok(points.into_iter().map(|(size, mean)| (f64::from(size), mean)).collect())
}

fn mean(estimates: &Path) -> Result<f64, Failure> {
    let text = fs::read_to_string(estimates).map_err(|error| failed(estimates, &error))?;
    let json: Value = serde_json::from_str(&text).map_err(|error| failed(estimates, &error))?;
    let mean = json.pointer("/mean/point_estimate").and_then(Value::as_f64).filter(|mean| *mean > 0.0);
    mean.ok_or_else(|| failed(estimates, &"no mean.point_estimate above 0"))
}

fn failed(path: &Path, error: &dyn std::fmt::Display) -> Failure {
    Failure::Step(format!("{}: {error}", path.display()))
}

/// Where cargo builds, and criterion keeps its results.
fn target() -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| step::root().join("target"), PathBuf::from)
}

#[cfg(test)]
mod tests {
    use std::process;

    use super::*;

    /// A folder of results as criterion leaves them; removed when dropped.
    struct Results(PathBuf);

    impl Results {
        fn of(test: &str, benchmarks: &[(&str, &str)]) -> Self {
            let results = Self(env::temp_dir().join(format!("xtask-bench-{test}-{}", process::id())));
            for (name, estimates) in benchmarks {
                let folder = results.0.join(name).join("new");
                fs::create_dir_all(&folder).unwrap();
                fs::write(folder.join("estimates.json"), estimates).unwrap();
            }
            results
        }
    }

    impl Drop for Results {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn took(nanoseconds: u32) -> String {
        format!(r#"{{"mean":{{"point_estimate":{nanoseconds}.0}},"median":{{"point_estimate":1.0}}}}"#)
    }

    #[test]
    fn a_series_is_in_the_order_of_its_sizes_and_of_its_own_name() {
        let results = Results::of(
            "order",
            &[
                ("keys/slidegate_1000", &took(200)),
                ("keys/slidegate_100", &took(150)),
                ("keys/hashmap_100", &took(50)),
                ("keys/report", "{}"),
            ],
        );
        let points = series(&results.0.join(KEYS), "slidegate_").unwrap();
        assert_eq!(points, [(100.0, 150.0), (1000.0, 200.0)]);
    }

    #[test]
    fn growth_is_compared_from_the_same_beginning() {
        let results = Results::of(
            "growth",
            &[
                ("keys/slidegate_1000", &took(300)),
                ("keys/slidegate_100000", &took(600)),
                ("keys/hashmap_1000", &took(30)),
                ("keys/hashmap_100000", &took(60)),
            ],
        );
        let svg = by_keys(&results.0).unwrap();
        let lines: Vec<&str> =
            svg.lines().filter_map(|line| line.split_once("points=")).map(|line| line.1).collect();
        assert_eq!(lines.len(), 3);
        assert_eq!(lines[0], lines[1]);
        assert_ne!(lines[0], lines[2]);
    }

    #[test]
    fn results_that_are_missing_or_no_results_are_told_with_their_place() {
        let results = Results::of("faults", &[("permits/10", "{}"), ("keys/slidegate_10", &took(1))]);
        let told = |outcome: Result<String, Failure>| outcome.unwrap_err().to_string();
        assert!(told(by_permits(&results.0)).ends_with("estimates.json: no mean.point_estimate above 0"));
        assert!(told(by_keys(&results.0)).ends_with("keys: no results called hashmap_NUMBER"));
        assert!(told(by_permits(&results.0.join("gone"))).contains("permits: "));
    }
}
