//! Eight instances with one policy and one store, each on a port that it keeps when it is started again.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use slidegate_testbed::clock::Clock;
use slidegate_testbed::crowd::Crowd;
use slidegate_testbed::instance::Instance;
use slidegate_testbed::port;

pub(crate) const INSTANCES: usize = 8;

/// How the load is spread over the instances: unevenly.
const SHARES: [u32; INSTANCES] = [5, 4, 3, 2, 1, 1, 1, 1];

/// What the instances limit, and how.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) permits: u32,
    pub(crate) window: Duration,
    /// Further lines of the policy, as in `failover: fast`.
    pub(crate) policy: String,
    /// Further options of the store, as in `timeout: 100ms`.
    pub(crate) store: String,
}

impl Plan {
    pub(crate) fn new(permits: u32, window: Duration) -> Self {
        Self { permits, window, policy: String::new(), store: String::new() }
    }

    /// Ledgers are kept, or not.
    pub(crate) fn failover(mut self, how: &str) -> Self {
        self.policy += &format!(", failover: {how}");
        self
    }

    /// A further option of the store.
    pub(crate) fn store(mut self, option: &str) -> Self {
        self.store += &format!(", {option}");
        self
    }

    /// So many times what the limit allows, unevenly, and out of phase.
    pub(crate) fn offered(&self, times: u64, lasts: Duration, seed: u64) -> Crowd {
        let window_ms = u64::try_from(self.window.as_millis()).unwrap();
        let per_second = u64::from(self.permits) * 1000 * times / window_ms;
        Crowd::offering(per_second, lasts).shares(&SHARES).connections(16).seed(seed)
    }

    fn configuration(&self, url: &str, ports: [u16; 2]) -> String {
        let Self { permits, window, policy, store } = self;
        let [gateway, admin] = ports;
        format!(
            "store: {{ url: \"{url}\"{store} }}\n\
             headers: {{ mode: true }}\n\
             policies: [{{ name: all, limits: [\"{permits}/{}ms\"]{policy} }}]\n\
             gateway: {{ listen: \"127.0.0.1:{gateway}\", routes: [{{ match: {{ prefix: / }}, policies: [all], upstream: echo }}] }}\n\
             admin: {{ listen: \"127.0.0.1:{admin}\" }}\n",
            window.as_millis()
        )
    }
}

/// The instances, in the order of the crowd's addresses.
#[derive(Debug)]
pub(crate) struct Fleet {
    pub(crate) instances: Vec<Instance>,
    ports: Vec<[u16; 2]>,
}

impl Fleet {
    /// Starts all of them, and waits until each has heard of the others.
    pub(crate) fn start(plan: &Plan, url: &str) -> Self {
        Self::start_at(plan, url, &[])
    }

    /// [`start`](Self::start), and the clocks of the first are these.
    pub(crate) fn start_at(plan: &Plan, url: &str, clocks: &[Clock]) -> Self {
        let ports: Vec<[u16; 2]> = (0..INSTANCES).map(|_| [port::free(), port::free()]).collect();
        let program = assert_cmd::cargo::cargo_bin("slidegate");
        let instances = std::thread::scope(|scope| {
            let starting: Vec<_> = ports
                .iter()
                .enumerate()
                .map(|(index, ports)| {
                    let (configuration, clock) = (plan.configuration(url, *ports), clocks.get(index));
                    let program = &program;
                    scope.spawn(move || Instance::start_at(program, &configuration, clock))
                })
                .collect();
            starting.into_iter().map(|one| one.join().unwrap()).collect()
        });
        let fleet = Self { instances, ports };
        fleet.wait_for_each_other();
        fleet
    }

    /// Where the crowd goes.
    pub(crate) fn addresses(&self) -> Vec<String> {
        self.ports.iter().map(|[gateway, _]| format!("127.0.0.1:{gateway}")).collect()
    }

    /// Each says that all are there.
    pub(crate) fn wait_for_each_other(&self) {
        use slidegate_testbed::wait;
        wait::until("instances that have heard of each other", wait::PATIENCE, || {
            (0..INSTANCES).all(|index| self.metric(index, "slidegate_store_instances") == INSTANCES as u64)
        });
    }

    /// A metric without labels, of one instance; 0 if there is none.
    pub(crate) fn metric(&self, index: usize, name: &str) -> u64 {
        let text = self.admin(index, "/metrics");
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.and_then(|value| value.parse().ok()).unwrap_or(0)
    }

    /// The gateways' checks by the time that they took: bounds in microseconds, and how many were within each, of all
    /// instances together.
    pub(crate) fn check_times_us(&self) -> Vec<(u64, u64)> {
        const BUCKET: &str = "slidegate_check_duration_seconds_bucket{";
        let mut sums = BTreeMap::new();
        for index in 0..INSTANCES {
            let text = self.admin(index, "/metrics");
            let own = text.lines().filter(|line| line.starts_with(BUCKET) && line.contains("\"gateway\""));
            for (bound, count) in own.filter_map(bucket) {
                *sums.entry(bound).or_default() += count;
            }
        }
        sums.into_iter().collect()
    }

    /// What the admin port answers; nothing if it does not.
    pub(crate) fn admin(&self, index: usize, path: &str) -> String {
        let address = format!("127.0.0.1:{}", self.ports[index][1]);
        let ask = || -> std::io::Result<String> {
            let mut stream = TcpStream::connect(&address)?;
            stream.set_read_timeout(Some(Duration::from_secs(5)))?;
            write!(stream, "GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n")?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            Ok(answer)
        };
        ask().unwrap_or_default()
    }
}

/// `...{le="0.00025",door="gateway"} 17`: the bound in microseconds, and the number within it.
fn bucket(line: &str) -> Option<(u64, u64)> {
    let (labels, count) = line.rsplit_once(' ')?;
    let bound = labels.split_once("le=\"")?.1.split_once('"')?.0;
    let bound_us = match bound.parse::<f64>().ok()? * 1e6 {
        infinite if infinite.is_infinite() => u64::MAX,
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "of a second at the most"
        )]
        us => us.round() as u64,
    };
    Some((bound_us, count.parse().ok()?))
}
