//! What processes and the machine spent of its processors' time: `/proc`, so Linux only; elsewhere nothing is known.

use std::fs;
use std::time::{Duration, Instant};

/// Each second, in the files read here, whatever the kernel's own is.
const TICKS: u32 = 100;

/// Readings since which time is counted.
pub(crate) struct Cpu {
    started: Instant,
    groups: Vec<Group>,
    machine: Option<Machine>,
}

/// Processes that are told as one.
struct Group {
    name: &'static str,
    pids: Vec<u32>,
    before: Option<Duration>,
}

/// Ticks of all processors.
#[derive(Clone, Copy)]
struct Machine {
    idle: u64,
    all: u64,
}

impl Cpu {
    #[expect(
        clippy::disallowed_methods,
        reason = "time that passes on the machine, and no decision hangs on it"
    )]
    pub(crate) fn start(groups: &[(&'static str, Vec<u32>)]) -> Self {
        let group = |(name, pids): &(&'static str, Vec<u32>)| Group {
            name,
            pids: pids.clone(),
            before: spent_by(pids),
        };
        Self { started: Instant::now(), groups: groups.iter().map(group).collect(), machine: machine() }
    }

    /// How many processors each group kept busy since, and how busy the machine was, in percent.
    pub(crate) fn told(&self) -> String {
        let lasted = self.started.elapsed().as_secs_f64();
        let cores = self.groups.iter().filter_map(|group| {
            let spent = spent_by(&group.pids)?.checked_sub(group.before?)?;
            Some(format!("{} {:.2}", group.name, spent.as_secs_f64() / lasted))
        });
        let mut told: Vec<String> = cores.collect();
        if let Some((before, after)) = self.machine.zip(machine()) {
            let all = (after.all - before.all).max(1);
            let busy = all - (after.idle - before.idle).min(all);
            told.push(format!("all processors {} % busy", busy * 100 / all));
        }
        told.join(", ")
    }
}

/// User and system time of processes.
fn spent_by(pids: &[u32]) -> Option<Duration> {
    pids.iter().map(|pid| spent(*pid)).sum()
}

fn spent(pid: u32) -> Option<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is a name in parentheses, in which anything may stand. Behind it, the 14th and 15th of all.
    let fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11).take(2);
    let ticks = fields.map(|field| field.parse::<u32>().ok()).sum::<Option<u32>>()?;
    Some(Duration::from_secs(1) * ticks / TICKS)
}

fn machine() -> Option<Machine> {
    let stat = fs::read_to_string("/proc/stat").ok()?;
    let fields = stat.lines().next()?.split_whitespace().skip(1);
    // user nice system idle iowait irq softirq steal; what follows is counted within those.
    let ticks: Vec<u64> = fields.take(8).map(|field| field.parse().ok()).collect::<Option<_>>()?;
    Some(Machine { idle: ticks.get(3)? + ticks.get(4)?, all: ticks.iter().sum() })
}
