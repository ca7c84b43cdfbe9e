//! The instruments of slidegate's tests and benchmarks: real servers on free ports of the loopback, and ways to
//! make them fail.
//!
//! It is only ever a dev-dependency, or used by a benchmark: nothing of it is shipped. It is no mock: whatever
//! answers here is the program that answers in production.
//!
//! * [`redis`]: `redis-server` and its relatives, alone, watched by Sentinels, or as a Cluster.
//! * [`proxy`]: a network that delays, stalls, swallows and cuts.
//! * [`instance`]: `slidegate serve` as a process.
//! * [`clock`]: wall clocks that are wrong, and step.
//! * [`crowd`]: clients that come when they come, and what can be proved from the answers they got.
//!
//! # Invariants
//!
//! * **What was started ends**, by its process id: when its owner is dropped, when a test panics, and on Linux
//!   also when the test process is killed ([`process`] says how).
//! * **Nothing is shared** between two tests: each server has its own ports and its own directory.
//! * **Nothing waits for a time to pass**: every wait is for a condition, and has an end ([`wait`]).
//! * **What can't be had is a panic** that says what was tried and what the server printed: a test that lacks
//!   its server has nothing else to do. What a *server* answers is a value, errors included.

pub mod clock;
pub mod crowd;
pub mod instance;
pub mod port;
pub mod process;
pub mod proxy;
pub mod random;
pub mod redis;
pub mod wait;
