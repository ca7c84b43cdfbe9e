//! Clients of several instances at once, who come when they come (*open loop*): an instance that answers slowly is
//! not spared, and what waited for it shows in the latencies.
//!
//! Each request is recorded with the times of one clock, from which [`largest_window`] proves or fails to prove
//! that a limit was broken. A crowd is offered over HTTP/1.1 on kept connections.
//!
//! It runs on threads of its own, in real time, and can be asked how far it is ([`Running::answered`]): a test waits
//! for that, makes something fail, and waits for the rest.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::Instant;

mod client;
mod outcome;
mod schedule;
mod tests;
mod window;

pub use outcome::{Answer, Outcome, Record, Told};
pub use window::largest_window;

use client::{Answered, Client};
use schedule::Gate;

/// Requests that a crowd may have: each is a record of 40 bytes.
const REQUESTS_MAX: u64 = 20_000_000;

/// How a crowd comes. Begin with [`Crowd::offering`].
#[derive(Clone, Debug)]
pub struct Crowd {
    per_second: u64,
    lasts: Duration,
    shares: Vec<u32>,
    connections: usize,
    patience: Duration,
    elsewhere: bool,
    path: String,
    fields: Vec<(String, String)>,
    seed: u64,
}

impl Crowd {
    /// So many requests per second, to all instances together, for so long.
    #[must_use]
    pub fn offering(per_second: u64, lasts: Duration) -> Self {
        Self {
            per_second,
            lasts,
            shares: Vec::new(),
            // Enough for 1000 requests per second and instance that take 32 ms each.
            connections: 32,
            patience: Duration::from_secs(5),
            elsewhere: false,
            path: "/".to_owned(),
            fields: Vec::new(),
            seed: 1,
        }
    }

    /// How much each instance gets, in proportion: `[8, 1, 1]`. Without it, and beyond its end, 1.
    #[must_use]
    pub fn shares(mut self, shares: &[u32]) -> Self {
        self.shares = shares.to_vec();
        self
    }

    /// Connections to each instance, which is also how many requests may be under way there; those that come while
    /// all are busy wait, and their latency counts. 32 without it.
    #[must_use]
    pub const fn connections(mut self, each: usize) -> Self {
        self.connections = each;
        self
    }

    /// How long an answer may take before it is given up. 5 s without it.
    #[must_use]
    pub const fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Clients do what a balancer does when instances come and go: where one refuses connections, they go to the next,
    /// and what was sent over a connection that ended without a byte of an answer is sent again. Without it, both
    /// are [`Answer::Broken`].
    #[must_use]
    pub const fn elsewhere(mut self) -> Self {
        self.elsewhere = true;
        self
    }

    /// What is asked for. `/` without it.
    #[must_use]
    pub fn path(mut self, path: &str) -> Self {
        path.clone_into(&mut self.path);
        self
    }

    /// A header field of every request.
    #[must_use]
    pub fn field(mut self, name: &str, value: &str) -> Self {
        self.fields.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Which moments within their periods requests come at. A test prints it.
    #[must_use]
    pub const fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Sends the crowd to these addresses (`127.0.0.1:PORT`), and returns when all was answered.
    ///
    /// # Panics
    ///
    /// As [`start`](Self::start).
    #[must_use]
    pub fn run(&self, addresses: &[String]) -> Outcome {
        self.start(addresses).finish()
    }

    /// Sends the crowd, and returns when it has its connections and begins.
    ///
    /// # Panics
    ///
    /// When nothing can come of it: no address, no connection allowed, more than 20 million requests.
    #[must_use]
    pub fn start(&self, addresses: &[String]) -> Running {
        assert!(!addresses.is_empty() && self.connections > 0, "a crowd needs somewhere to go");
        let requests = u128::from(self.per_second) * self.lasts.as_millis() / 1000;
        assert!(requests <= u128::from(REQUESTS_MAX), "{requests} requests; at most {REQUESTS_MAX}");
        let answered = Arc::new(AtomicU64::new(0));
        let (begun, begins) = std::sync::mpsc::channel();
        let (crowd, addresses, counter) = (self.clone(), addresses.to_vec(), Arc::clone(&answered));
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Runtime::new().expect("threads for the crowd");
            runtime.block_on(crowd.go(&addresses, &counter, begun))
        });
        // An error means that the thread has panicked, which `finish` passes on.
        let start = begins.recv().unwrap_or_else(|_| Instant::now());
        Running { thread, answered, start }
    }

    async fn go(
        self,
        addresses: &[String],
        answered: &Arc<AtomicU64>,
        begun: std::sync::mpsc::Sender<Instant>,
    ) -> Outcome {
        let gates = self.gates(addresses.len());
        let mut crews = Vec::new();
        for (instance, address) in addresses.iter().enumerate() {
            let request: Arc<[u8]> = self.request(address).into_bytes().into();
            let next = Arc::new(AtomicUsize::new(0));
            for _ in 0..self.connections {
                let mut client = Client::new(self.ways(addresses, instance), self.patience);
                client.connect().await;
                let (request, next) = (Arc::clone(&request), Arc::clone(&next));
                crews.push(Worker { instance, client, request, next, answered: Arc::clone(answered) });
            }
        }
        let start = Instant::now();
        let workers: Vec<_> = crews
            .into_iter()
            .map(|worker| {
                let gate = &gates[worker.instance];
                let (arrivals, due) = (Arc::clone(&gate.arrivals), Arc::clone(&gate.due));
                tokio::spawn(worker.work(arrivals, due, start))
            })
            .collect();
        let pacer = tokio::task::spawn_blocking(move || schedule::pace(&gates, start, self.connections));
        let _ = begun.send(start);
        pacer.await.expect("the pacer does not panic");
        let mut records = Vec::new();
        for worker in workers {
            records.extend(worker.await.expect("workers do not panic"));
        }
        Outcome { records }
    }

    /// Where a client of this instance connects, in the order of its tries.
    fn ways(&self, addresses: &[String], instance: usize) -> Vec<String> {
        let count = if self.elsewhere { addresses.len() } else { 1 };
        addresses.iter().cycle().skip(instance).take(count).cloned().collect()
    }

    /// The arrivals at each instance.
    fn gates(&self, instances: usize) -> Vec<Gate> {
        let share = |index| u64::from(self.shares.get(index).copied().unwrap_or(1));
        let sum: u64 = (0..instances).map(share).sum::<u64>().max(1);
        (0..instances)
            .zip(self.seed..)
            .map(|(index, seed)| {
                // The remainders of the division would be missing from the whole: the running sum has them.
                let upto = |count: usize| self.per_second * (0..count).map(share).sum::<u64>() / sum;
                let arrivals = schedule::arrivals(upto(index + 1) - upto(index), self.lasts, seed);
                Gate { arrivals: Arc::new(arrivals), due: Arc::new(Semaphore::new(0)) }
            })
            .collect()
    }

    fn request(&self, address: &str) -> String {
        let mut request = format!("GET {} HTTP/1.1\r\nhost: {address}\r\n", self.path);
        for (name, value) in &self.fields {
            let _ = write!(request, "{name}: {value}\r\n");
        }
        request + "\r\n"
    }
}

/// A crowd on its way.
#[derive(Debug)]
pub struct Running {
    thread: JoinHandle<Outcome>,
    answered: Arc<AtomicU64>,
    start: Instant,
}

impl Running {
    /// How many requests were answered or given up until now.
    #[must_use]
    pub fn answered(&self) -> u64 {
        self.answered.load(Ordering::Relaxed)
    }

    /// The time on the clock of the records, in microseconds since the start: when the test did something.
    #[must_use]
    pub fn now_us(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    /// Waits for the rest.
    ///
    /// # Panics
    ///
    /// When the crowd did.
    #[must_use]
    pub fn finish(self) -> Outcome {
        match self.thread.join() {
            Ok(outcome) => outcome,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

/// One connection's client, which sends the next request that is due whenever it is free.
struct Worker {
    instance: usize,
    client: Client,
    request: Arc<[u8]>,
    /// The next arrival at this instance that nobody has taken.
    next: Arc<AtomicUsize>,
    answered: Arc<AtomicU64>,
}

impl Worker {
    async fn work(mut self, arrivals: Arc<Vec<u64>>, due: Arc<Semaphore>, start: Instant) -> Vec<Record> {
        let since_start = || u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX);
        let mut records = Vec::new();
        // First the permit, then the arrival that it stands for: the other way round, one that is due would wait for
        // one who holds a later permit.
        while let Ok(permit) = due.acquire().await {
            permit.forget();
            let index = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(intended_us) = arrivals.get(index).copied() else { break };
            let sent_us = since_start();
            let Answered { answer, told, tries } = self.client.ask(&self.request).await;
            let (instance, answered_us) = (self.instance, since_start());
            records.push(Record { instance, intended_us, sent_us, answered_us, answer, told, tries });
            self.answered.fetch_add(1, Ordering::Relaxed);
        }
        records
    }
}
