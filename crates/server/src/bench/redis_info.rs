//! What a Redis server says about its own work: the text of `INFO`, sections `stats`, `commandstats` and `cpu`.
//!
//! Read before and after a run; the difference is what the run cost, and whatever else the server did meanwhile.
//! `total_commands_processed` counts commands that scripts run as well as the calls of scripts, so it is the honest
//! figure for "operations per second". Time inside scripts is that of `EVAL`, `EVALSHA` and `FCALL`, which includes the
//! commands they run. Processor time is that of the whole server process.

use std::collections::BTreeMap;

use serde::Serialize;

/// Commands that run a script; the time of what they run is within theirs.
const SCRIPT_CALLS: [&str; 6] = ["eval", "evalsha", "eval_ro", "evalsha_ro", "fcall", "fcall_ro"];

/// One reading.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Info {
    commands: u64,
    script_calls: u64,
    script_us: u64,
    cpu_us: u64,
}

/// What a server did between two readings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct ServerCost {
    /// Commands, those that scripts ran included.
    pub(super) commands: u64,
    /// Calls of scripts.
    pub(super) script_calls: u64,
    /// Microseconds inside scripts.
    pub(super) script_us: u64,
    /// Microseconds of processor time, system and user.
    pub(super) cpu_us: u64,
}

impl Info {
    /// Reads the text of `INFO everything`. `None` without the counts that every server has.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let fields: BTreeMap<&str, &str> =
            text.lines().filter_map(|line| line.trim_end().split_once(':')).collect();
        let mut info = Self {
            commands: fields.get("total_commands_processed")?.parse().ok()?,
            cpu_us: micros(fields.get("used_cpu_sys")?)? + micros(fields.get("used_cpu_user")?)?,
            ..Self::default()
        };
        for call in SCRIPT_CALLS {
            if let Some(stats) = fields.get(&*format!("cmdstat_{call}")) {
                info.script_calls += stat(stats, "calls")?;
                info.script_us += stat(stats, "usec")?;
            }
        }
        Some(info)
    }

    /// What came since an earlier reading; `None` if the server was restarted in between.
    pub(super) fn since(&self, earlier: &Self) -> Option<ServerCost> {
        Some(ServerCost {
            commands: self.commands.checked_sub(earlier.commands)?,
            script_calls: self.script_calls.checked_sub(earlier.script_calls)?,
            script_us: self.script_us.checked_sub(earlier.script_us)?,
            cpu_us: self.cpu_us.checked_sub(earlier.cpu_us)?,
        })
    }
}

/// `calls=3,usec=140,usec_per_call=46.67,...`
fn stat(stats: &str, name: &str) -> Option<u64> {
    let value = stats.split(',').filter_map(|pair| pair.split_once('=')).find(|(key, _)| *key == name)?.1;
    value.parse().ok()
}

/// `0.013196` seconds.
fn micros(seconds: &str) -> Option<u64> {
    let (whole, part) = seconds.split_once('.')?;
    let part = format!("{part:0<6}").get(..6)?.parse::<u64>().ok()?;
    whole.parse::<u64>().ok()?.checked_mul(1_000_000)?.checked_add(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a redis-server 7.0.15, after three EVAL of a script with INCR and GET, and one EVALSHA with INCR.
    const INFO: &str = "# Stats\r\ntotal_connections_received:9\r\ntotal_commands_processed:14\r\n\
        \r\n# CPU\r\nused_cpu_sys:0.013196\r\nused_cpu_user:0.004398\r\nused_cpu_sys_children:0.000000\r\n\
        used_cpu_user_children:0.000000\r\nused_cpu_sys_main_thread:0.013135\r\n\
        used_cpu_user_main_thread:0.004378\r\n\r\n# Commandstats\r\n\
        cmdstat_incr:calls=4,usec=25,usec_per_call=6.25,rejected_calls=0,failed_calls=0\r\n\
        cmdstat_eval:calls=3,usec=140,usec_per_call=46.67,rejected_calls=0,failed_calls=0\r\n\
        cmdstat_get:calls=3,usec=7,usec_per_call=2.33,rejected_calls=0,failed_calls=0\r\n\
        cmdstat_evalsha:calls=1,usec=47,usec_per_call=47.00,rejected_calls=0,failed_calls=0\r\n\
        cmdstat_script|load:calls=1,usec=19,usec_per_call=19.00,rejected_calls=0,failed_calls=0\r\n";

    #[test]
    fn the_text_of_a_real_server_is_read() {
        let info = Info::parse(INFO).unwrap();
        assert_eq!(info, Info { commands: 14, script_calls: 4, script_us: 187, cpu_us: 17_594 });
    }

    #[test]
    fn the_cost_of_a_run_is_the_difference() {
        let before = Info { commands: 10, script_calls: 2, script_us: 100, cpu_us: 10_000 };
        let cost = Info::parse(INFO).unwrap().since(&before);
        let expected = ServerCost { commands: 4, script_calls: 2, script_us: 87, cpu_us: 7_594 };
        assert_eq!(cost, Some(expected));
        let restarted = Info::parse(INFO).unwrap().since(&Info { commands: 15, ..before });
        assert_eq!(restarted, None);
    }

    #[test]
    fn what_is_no_info_is_refused() {
        for text in ["", "# Stats", "total_commands_processed:14\r\n", "total_commands_processed:x\r\n"] {
            assert_eq!(Info::parse(text), None, "{text}");
        }
        assert_eq!(
            [micros("1.5"), micros("12.0000019"), micros("x")],
            [Some(1_500_000), Some(12_000_001), None]
        );
    }
}
