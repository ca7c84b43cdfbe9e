//! The report as people read it: the figures with targets first, then what explains them.

use std::fmt::{self, Write as _};

use super::report::{Admission, Aim, Checks, Input, Latency, Report, StoreCost};

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.input)?;
        if self.ended_early {
            writeln!(f, "ended early, after {} ms", short(self.ran_ms))?;
        }
        writeln!(f, "\n{:<36}{:>14}{:>13}", "", "measured", "target")?;
        for aim in &self.targets {
            write!(f, "{aim}")?;
        }
        writeln!(f, "\nlatency, us    {}", self.latency_us)?;
        if let Some(delay) = &self.delay_us {
            writeln!(f, "begun late, us {delay}")?;
        }
        write!(f, "{}", self.checks)?;
        if let Some(admission) = &self.admission {
            admission.show(f, &self.input)?;
        }
        if let Some(store) = &self.store {
            write!(f, "{store}")?;
        }
        if let Some(server) = &self.server {
            let checks = (self.checks.allowed + self.checks.denied).max(1) as f64;
            writeln!(
                f,
                "redis          {} commands; {} us in scripts and {} us of processor time for each check",
                grouped(server.commands),
                short(server.script_us as f64 / checks),
                short(server.cpu_us as f64 / checks)
            )?;
        }
        Ok(())
    }
}

impl fmt::Display for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, keys {}", self.target, self.keys)?;
        match &self.limit {
            Some(limit) => write!(f, ", limit {limit}")?,
            None => f.write_str(", limit unknown")?,
        }
        if self.limit.is_some() && self.keys != "hot" {
            f.write_str(" each")?;
        }
        if self.limit.is_some() && self.limit_is_default {
            f.write_str(" (the default)")?;
        }
        if self.cost != 1 {
            write!(f, ", cost {}", self.cost)?;
        }
        match self.rate {
            Some(rate) => {
                write!(
                    f,
                    "\nopen loop: {} arrivals/s, at most {} under way",
                    grouped(rate.into()),
                    self.callers
                )?;
            }
            None => write!(f, "\nclosed loop: {} callers", self.callers)?,
        }
        write!(f, ", {} ms, seed {}", self.duration_ms, self.seed)?;
        for (stage, on) in [("flights", self.flights), ("denial cache", self.denial_cache)] {
            if on == Some(false) {
                write!(f, ", without {stage}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Aim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (label, unit, sign) = match self.name {
            "p99_ms" => ("99th percentile, with the store", " ms", "<="),
            "deviation_percent" => ("deviation of the admitted rate", " %", "<="),
            _ => ("store operations each second", "", "<="),
        };
        let target = format!("{sign} {}{unit}", short(self.target));
        match (self.value, self.met) {
            (Some(value), met) => {
                let met = if met == Some(true) { "ok" } else { "missed" };
                writeln!(f, "{label:<38}{:>12}{target:>13}  {met}", format!("{}{unit}", short(value)))
            }
            (None, _) => {
                writeln!(f, "{label:<38}{:>12}{target:>13}  {}", "-", self.reason.unwrap_or_default())
            }
        }
    }
}

impl fmt::Display for Latency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { p50, p90, p99, p99_9, max, mean: _ } = self;
        let [p50, p90, p99, p99_9, max] = [p50, p90, p99, p99_9, max].map(|us| short(*us));
        write!(f, "p50 {p50}  p90 {p90}  p99 {p99}  p99.9 {p99_9}  max {max}")
    }
}

impl fmt::Display for Checks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "checks         {} offered ({}/s)  {} allowed ({}/s)  {} denied  {} failed",
            grouped(self.offered),
            short(self.offered_per_s),
            grouped(self.allowed),
            short(self.allowed_per_s),
            grouped(self.denied),
            grouped(self.failed)
        )?;
        if let Some(failure) = &self.failure {
            writeln!(f, "               one failure: {failure}")?;
        }
        if self.unsent > 0 {
            let unsent = grouped(self.unsent);
            writeln!(f, "               {unsent} arrived and never began: the target can't carry this rate")?;
        }
        if self.modes.keys().any(|mode| *mode != "normal") {
            let modes: Vec<String> =
                self.modes.iter().map(|(mode, count)| format!("{} {mode}", grouped(*count))).collect();
            writeln!(f, "decided        {}", modes.join(", "))?;
        }
        if self.degraded > 0 {
            let degraded = grouped(self.degraded);
            writeln!(f, "               {degraded} outside the exact promise: the store was away, or full")?;
        }
        Ok(())
    }
}

impl Admission {
    fn show(&self, f: &mut fmt::Formatter<'_>, input: &Input) -> fmt::Result {
        let mut line = format!("largest window {} permits", grouped(self.largest_window));
        match self.bound {
            Some(bound) => {
                let _ = write!(line, " of at most {}", grouped(bound));
            }
            None => line += ", and the algorithm promises no number",
        }
        if input.keys.starts_with("zipf") {
            line += ", for the most frequent key";
        }
        if !self.complete {
            line += "; it may have been more: not all were remembered";
        }
        if self.over {
            line += ": MORE THAN THE LIMIT ADMITS";
        }
        writeln!(f, "{line}")?;
        if let (Some(permits), windows) = (self.permits_per_s, self.windows) {
            let plural = if windows == 1 { "window" } else { "windows" };
            writeln!(
                f,
                "admitted       {} permits/s, over {} whole {plural}",
                short(permits),
                grouped(windows)
            )?;
        }
        Ok(())
    }
}

impl fmt::Display for StoreCost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "store          {} calls: {} for each check, {} checks in each; {} bytes for each check",
            grouped(self.calls),
            short(self.calls_per_check),
            short(self.checks_per_call),
            short(self.bytes_per_check)
        )
    }
}

/// Three digits that count, and thousands apart: `0.00123`, `4.56`, `12,345`.
fn short(value: f64) -> String {
    let magnitude = value.abs();
    if magnitude >= 100.0 {
        let rounded = format!("{magnitude:.0}");
        let sign = if value < 0.0 { "-" } else { "" };
        return format!("{sign}{}", rounded.parse().map_or(rounded, grouped));
    }
    let decimals = [(10.0, 1), (1.0, 2), (0.1, 3), (0.01, 4)];
    let decimals =
        decimals.into_iter().find(|(from, _)| magnitude >= *from).map_or(5, |(_, decimals)| decimals);
    let text = format!("{value:.decimals$}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}

/// `12,345,678`.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_say_their_size() {
        let cases = [
            (0.0, "0"),
            (0.001_234, "0.00123"),
            (0.0456, "0.0456"),
            (-0.000_000_1, "0"),
            (-0.12, "-0.12"),
            (4.567, "4.57"),
            (45.67, "45.7"),
            (5.0, "5"),
            (-456.7, "-457"),
            (1_234_567.8, "1,234,568"),
        ];
        for (value, text) in cases {
            assert_eq!(short(value), text, "{value}");
        }
        assert_eq!([0, 999, 1000, 1_000_000].map(grouped), ["0", "999", "1,000", "1,000,000"]);
    }
}
