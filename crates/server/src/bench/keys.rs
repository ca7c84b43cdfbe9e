//! Whose counter a check asks: one key, or one of many, drawn by a seeded generator.
//!
//! Keys are numbers from 0; the most frequent one of `hot` and `zipf` is 0, and it is the one that is watched for
//! what it admits.

use std::fmt;
use std::str::FromStr;

use fastrand::Rng;

/// The most keys: 127 bytes each in the embedded store, so 1.6 GB.
const KEYS_MAX: u32 = 10_000_000;

const KEYS_DEFAULT: u32 = 100_000;

/// As steep as the popularity of pages and users usually is.
const EXPONENT_DEFAULT: f64 = 1.1;

/// Beyond it nearly every check is of one key: `hot` says so better.
const EXPONENT_MAX: f64 = 5.0;

/// How keys are drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Keys {
    /// One key.
    Hot,
    /// Each as often as any other.
    Uniform { count: u32 },
    /// Key k as often as 1/(k+1)^exponent.
    Zipf { count: u32, exponent: f64 },
}

impl Keys {
    pub(crate) const UNIFORM: Self = Self::Uniform { count: KEYS_DEFAULT };

    /// How many there are.
    pub(crate) const fn count(self) -> u32 {
        match self {
            Self::Hot => 1,
            Self::Uniform { count } | Self::Zipf { count, .. } => count,
        }
    }

    /// Whether key 0 gets enough checks that what it admits says something about a limit.
    pub(crate) const fn has_watched_key(self) -> bool {
        match self {
            Self::Hot | Self::Zipf { .. } => true,
            Self::Uniform { count } => count == 1,
        }
    }
}

impl fmt::Display for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hot => f.write_str("hot"),
            Self::Uniform { count } => write!(f, "uniform:{count}"),
            Self::Zipf { count, exponent } => write!(f, "zipf:{count}:{exponent}"),
        }
    }
}

const HOW: &str = "write hot, uniform:100000, or zipf:100000:1.1";

impl FromStr for Keys {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts: Vec<&str> = text.split(':').collect();
        match parts[..] {
            ["hot"] => Ok(Self::Hot),
            ["uniform"] => Ok(Self::UNIFORM),
            ["uniform", keys] => Ok(Self::Uniform { count: count(keys)? }),
            ["zipf"] => Ok(Self::Zipf { count: KEYS_DEFAULT, exponent: EXPONENT_DEFAULT }),
            ["zipf", keys] => Ok(Self::Zipf { count: count(keys)?, exponent: EXPONENT_DEFAULT }),
            ["zipf", keys, steep] => Ok(Self::Zipf { count: count(keys)?, exponent: exponent(steep)? }),
            _ => Err(HOW.to_owned()),
        }
    }
}

fn count(text: &str) -> Result<u32, String> {
    let count = text.parse().ok().filter(|count| (1..=KEYS_MAX).contains(count));
    count.ok_or_else(|| format!("{text:?} is no number of keys from 1 to {KEYS_MAX}: {HOW}"))
}

fn exponent(text: &str) -> Result<f64, String> {
    let exponent = text.parse().ok().filter(|exponent| (0.0..=EXPONENT_MAX).contains(exponent));
    exponent.ok_or_else(|| format!("{text:?} is no exponent from 0 to {EXPONENT_MAX}: {HOW}"))
}

/// Draws keys: one for each caller, so that callers share nothing.
#[derive(Debug)]
pub(super) struct Draw {
    random: Rng,
    shape: Shape,
}

#[derive(Debug)]
enum Shape {
    Hot,
    Uniform(u32),
    Zipf(Zipf),
}

impl Draw {
    pub(super) fn new(keys: Keys, random: Rng) -> Self {
        let shape = match keys {
            Keys::Hot => Shape::Hot,
            Keys::Uniform { count } => Shape::Uniform(count),
            Keys::Zipf { count, exponent } => Shape::Zipf(Zipf::new(count, exponent)),
        };
        Self { random, shape }
    }

    pub(super) fn key(&mut self) -> u32 {
        match &self.shape {
            Shape::Hot => 0,
            Shape::Uniform(count) => self.random.u32(..*count),
            Shape::Zipf(zipf) => zipf.key(&mut self.random),
        }
    }
}

/// Draws from a Zipf distribution in constant time and without tables: rejection-inversion, after W. Hörmann and
/// G. Derflinger, "Rejection-inversion to generate variates from monotone discrete distributions" (1996).
///
/// Ranks count from 1, as in the paper. `area` is an integral of x^-exponent.
#[derive(Debug)]
struct Zipf {
    exponent: f64,
    count: f64,
    area_first: f64,
    area_last: f64,
    accepted_at_once: f64,
}

impl Zipf {
    fn new(count: u32, exponent: f64) -> Self {
        let count = f64::from(count);
        let mut zipf = Self { exponent, count, area_first: 0.0, area_last: 0.0, accepted_at_once: 0.0 };
        zipf.area_first = zipf.area(1.5) - 1.0;
        zipf.area_last = zipf.area(count + 0.5);
        zipf.accepted_at_once = 2.0 - zipf.rank_at(zipf.area(2.5) - zipf.weight(2.0));
        zipf
    }

    fn key(&self, random: &mut Rng) -> u32 {
        loop {
            let area = self.area_last + random.f64() * (self.area_first - self.area_last);
            let at = self.rank_at(area);
            let rank = at.round().clamp(1.0, self.count);
            if rank - at <= self.accepted_at_once || area >= self.area(rank + 0.5) - self.weight(rank) {
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "a whole number from 0 to below the number of keys"
                )]
                return (rank - 1.0) as u32;
            }
        }
    }

    fn weight(&self, rank: f64) -> f64 {
        (-self.exponent * rank.ln()).exp()
    }

    fn area(&self, rank: f64) -> f64 {
        let log = rank.ln();
        let power = (1.0 - self.exponent) * log;
        // Its limit, where the quotient would lose its digits: an exponent of 1.
        let quotient = if power.abs() > 1e-8 { power.exp_m1() / power } else { 1.0 + power / 2.0 };
        quotient * log
    }

    /// The inverse of `area`.
    fn rank_at(&self, area: f64) -> f64 {
        let power = (area * (1.0 - self.exponent)).max(-1.0);
        let quotient = if power.abs() > 1e-8 { power.ln_1p() / power } else { 1.0 - power / 2.0 };
        (quotient * area).exp()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(keys: Keys, draws: u32) -> Vec<u32> {
        let mut counts = vec![0; usize::try_from(keys.count()).unwrap()];
        let mut draw = Draw::new(keys, Rng::with_seed(7));
        for _ in 0..draws {
            counts[usize::try_from(draw.key()).unwrap()] += 1;
        }
        counts
    }

    #[test]
    fn each_key_comes_as_often_as_its_distribution_says() {
        const DRAWS: u32 = 200_000;
        for exponent in [0.0, 0.5, 1.0, 1.1, 3.0] {
            let counts = drawn(Keys::Zipf { count: 20, exponent }, DRAWS);
            let weights: Vec<f64> = (1..=20_u32).map(|rank| f64::from(rank).powf(-exponent)).collect();
            let sum: f64 = weights.iter().sum();
            for (key, (count, weight)) in counts.iter().zip(&weights).enumerate() {
                let expected = weight / sum * f64::from(DRAWS);
                // Five standard deviations; the seed is fixed, so this can't flicker.
                let slack = 5.0 * expected.sqrt() + 1.0;
                assert!((f64::from(*count) - expected).abs() < slack, "{exponent} {key}: {count} {expected}");
            }
        }
        let uniform = drawn(Keys::Uniform { count: 20 }, DRAWS);
        assert!(uniform.iter().all(|count| count.abs_diff(DRAWS / 20) < 500), "{uniform:?}");
        assert_eq!(drawn(Keys::Hot, 9), [9]);
        assert_eq!(drawn(Keys::Zipf { count: 1, exponent: 1.1 }, 9), [9]);
    }

    #[test]
    fn the_same_seed_draws_the_same_keys() {
        let keys = Keys::Zipf { count: 1000, exponent: 1.1 };
        assert_eq!(drawn(keys, 1000), drawn(keys, 1000));
    }

    #[test]
    fn a_distribution_reads_as_it_prints() {
        for text in ["hot", "uniform:100000", "zipf:1000:1.1", "uniform:10000000", "zipf:1:0"] {
            assert_eq!(text.parse::<Keys>().unwrap().to_string(), text);
        }
        assert_eq!("zipf".parse::<Keys>().unwrap().to_string(), "zipf:100000:1.1");
        for (text, said) in [
            ("", HOW),
            ("normal:5", HOW),
            ("uniform:0", "no number of keys from 1 to 10000000"),
            ("uniform:10000001", "no number of keys"),
            ("zipf:5:NaN", "no exponent from 0 to 5"),
            ("zipf:5:-1", "no exponent"),
            ("zipf:5:1:1", HOW),
        ] {
            let message = text.parse::<Keys>().unwrap_err();
            assert!(message.contains(said) && message.contains(HOW), "{text}: {message}");
        }
    }
}
