//! The effective policies as a table: what is in force, in plain words, whatever the file says.
//!
//! A rate is written as permits per window, so that nobody reads `4000/1s` as one in 4000 seconds, and
//! defaults are filled in.

use std::fmt;

use slidegate::Policy;
use slidegate::core::limit::{Algorithm, Limit};
use slidegate::policy::{CostSource, Exempt, Failover, Lease, Missing, OnStoreFailure};

use crate::policy_json::{failover_name, lease_text, missing_name, on_store_failure_name};

const HEAD: [&str; 7] = ["POLICY", "LIMIT", "PERMITS", "ALGORITHM", "KEY", "COST", "NOTES"];

/// The policies of a configuration, ready to be printed: a row for each limit, aligned columns.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    rows: Vec<[String; 7]>,
}

impl Table {
    /// The table of these policies.
    pub(crate) fn of(policies: &[Policy]) -> Self {
        Self { rows: policies.iter().flat_map(rows).collect() }
    }
}

/// What concerns the whole policy stands in the row of its first limit.
fn rows(policy: &Policy) -> impl Iterator<Item = [String; 7]> {
    policy.limits().iter().enumerate().map(|(index, named)| {
        let once = |text: String| if index == 0 { text } else { String::new() };
        [
            once(policy.name().to_string()),
            named.public_name().to_string(),
            permits(named.limit()),
            algorithm(named.limit()),
            once(key(policy)),
            once(cost(policy.cost())),
            once(notes(policy)),
        ]
    })
}

fn permits(limit: &Limit) -> String {
    match limit.permits() {
        0 => format!("none (0 per {})", limit.window()),
        permits => format!("{permits} per {}", limit.window()),
    }
}

fn algorithm(limit: &Limit) -> String {
    let algorithm = limit.algorithm();
    let name = algorithm.name();
    match algorithm {
        Algorithm::SlidingWindow { resolution: Some(resolution) } => {
            format!("{name}, resolution {resolution}")
        }
        Algorithm::TokenBucket { burst } => format!("{name}, burst {burst}"),
        Algorithm::LeakyBucket { max_delay } => format!("{name}, max_delay {max_delay}"),
        _ => name.into(),
    }
}

fn key(policy: &Policy) -> String {
    match policy.key() {
        [] => "one counter".into(),
        parts => parts.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "),
    }
}

fn cost(cost: &CostSource) -> String {
    match cost {
        CostSource::Fixed(cost) => cost.to_string(),
        CostSource::From { template, min, max, default } => {
            format!("{template} {min} to {max}, else {default}")
        }
    }
}

fn notes(policy: &Policy) -> String {
    let mut notes: Vec<String> = Vec::new();
    if policy.is_shadow() {
        notes.push("shadow: denies nothing".into());
    }
    if policy.counts_denied() {
        notes.push("count_denied".into());
    }
    if policy.missing() != Missing::Count {
        notes.push(format!("missing: {}", missing_name(policy.missing())));
    }
    if policy.on_store_failure() != OnStoreFailure::default() {
        notes.push(format!("on_store_failure: {}", on_store_failure_name(policy.on_store_failure())));
    }
    if policy.failover() != Failover::default() {
        notes.push(format!("failover: {}", failover_name(policy.failover())));
    }
    if policy.lease() != Lease::None {
        notes.push(format!("lease: {}", lease_text(policy.lease())));
    }
    if policy.shards() > 1 {
        notes.push(format!("{} shards", policy.shards()));
    }
    match policy.override_count() {
        0 => {}
        1 => notes.push("1 override".into()),
        count => notes.push(format!("{count} overrides")),
    }
    notes.extend(exempt(policy.exempt()));
    notes.join("; ")
}

/// Who is exempt, without the values of headers.
fn exempt(exempt: &Exempt) -> Option<String> {
    let methods = exempt.methods.iter().map(ToString::to_string);
    let networks = exempt.client_ip.iter().map(ToString::to_string);
    let headers = exempt.headers.iter().map(|(name, _)| format!("{name}: ..."));
    let all: Vec<String> = methods.chain(networks).chain(headers).collect();
    match all.len() {
        0 => None,
        1..=4 => Some(format!("exempt: {}", all.join(", "))),
        count => Some(format!("exempt: {} and {} more", all[..3].join(", "), count - 3)),
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let head = HEAD.map(String::from);
        let lines: Vec<&[String; 7]> = std::iter::once(&head).chain(&self.rows).collect();
        let widths: [usize; 7] = std::array::from_fn(|column| {
            let lens = lines.iter().map(|line| line[column].chars().count());
            lens.max().unwrap_or(0)
        });
        for line in lines {
            let mut text = String::new();
            for (cell, width) in line.iter().zip(widths) {
                text.push_str(cell);
                text.push_str(&" ".repeat(width - cell.chars().count() + 2));
            }
            writeln!(f, "{}", text.trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use slidegate::core::time::Millis;

    use super::*;

    #[test]
    fn the_table_says_what_is_in_force() {
        let policies = [
            Policy::builder("order-create").limits("4000/1s; 100000/1h").build().unwrap(),
            Policy::builder("login")
                .limits("10/15m")
                .key("{client_ip}")
                .key("{header:x-user}")
                .missing(Missing::Skip)
                .shadow(true)
                .count_denied(true)
                .build()
                .unwrap(),
            Policy::builder("closed")
                .limits("0/s")
                .on_store_failure(OnStoreFailure::Allow)
                .failover(Failover::Fast)
                .lease(Lease::For(Millis(20)))
                .build()
                .unwrap(),
        ];
        // F32: elsewhere "per_second(4000)" meant one in 4000 seconds, and nobody saw it. What is in force
        // is printed in words.
        let expected = "\
POLICY        LIMIT           PERMITS          ALGORITHM       KEY                          COST  NOTES
order-create  order-create-1  4000 per 1s      sliding_window  one counter                  1
              order-create-2  100000 per 1h    sliding_window
login         login           10 per 15m       sliding_window  {client_ip} {header:x-user}  1     shadow: denies nothing; count_denied; missing: skip
closed        closed          none (0 per 1s)  sliding_window  one counter                  1     on_store_failure: allow; failover: fast; lease: 20ms
";
        assert_eq!(Table::of(&policies).to_string(), expected);
    }
}
