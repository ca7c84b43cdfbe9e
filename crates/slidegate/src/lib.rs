//! Exact sliding-window rate limiting, embedded in a process.
//!
//! For every instant, no more than the limit was admitted in the window before it: not on average, not
//! approximately, and not twice as many around a boundary.
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! use slidegate::{Limiter, Policy};
//!
//! let limiter = Limiter::builder()
//!     .policy(Policy::builder("per-user").limits("10/s; 1000/h").key("{header:x-user-id}").build()?)
//!     .build()?;
//!
//! let decision = limiter.check("per-user", &["user-1001"]).await?;
//! assert!(decision.is_allowed());
//! # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
//! ```
//!
//! The futures need no runtime: with the memory store they are ready at the first poll.
//!
//! # Concepts
//!
//! A **policy** ([`Policy`]) is a name, one or several limits, and templates that say whose counter a request
//! belongs to. All its limits are charged together or not at all, and so are several policies of one check
//! ([`Limiter::check_all`]): what one of them refuses costs nothing in the others.
//!
//! A **limit** is so many permits in a window, `10/s`, `100/m`, `5000/1h`, under an
//! [algorithm](core::limit::Algorithm): `sliding_window` unless you choose another.
//!
//! A **key** is a list of values, one for each template of the policy. By hand you give them yourself; for
//! HTTP requests, [`Limiter::check_request`] finds them in [`RequestFacts`]. Lists that differ never share a
//! counter, whatever the values hold. Values of `{secret:...}` templates are hashed before they go anywhere.
//!
//! A **cost** is how many permits a check takes: 1, unless [`Ask::cost`] or the policy says otherwise. A cost of
//! 0 reads and takes nothing.
//!
//! A **decision** ([`Decision`]) says whether to go on and, for each limit, what is used, what is left, and
//! until when. Denied is a value, not an error. Its [`retry_after`](Decision::retry_after) is exact: the
//! time at which *this cost* fits in *all* limits that refused it, if nobody else takes it first.
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! # use slidegate::{Ask, Limiter, Policy};
//! # let limiter = Limiter::builder()
//! #     .policy(Policy::builder("per-user").limits("1/m").key("{header:x-user-id}").build()?)
//! #     .policy(Policy::builder("everyone").limits("500/s").build()?)
//! #     .build()?;
//! let asks = [Ask::new("per-user", &["user-1001"]), Ask::new("everyone", &[]).cost(5)];
//! let _ = limiter.check_all(&asks).await?;
//! let denied = limiter.check_all(&asks).await?;
//!
//! let refused_by: Vec<_> = denied.violated().map(|state| state.name).collect();
//! assert_eq!(refused_by, ["per-user"]);
//! assert!(denied.retry_after().is_some());
//! let everyone = limiter.peek("everyone", &[]).await?;
//! assert_eq!(everyone.limits().next().unwrap().outcome.used, 5);
//! # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
//! ```
//!
//! The **mode** ([`Mode`]) says who answered. `normal` is the exact promise, and so are `cached`: a store that
//! instances share had denied it, and its permits can't be back yet; and `leased`: this instance had taken the permit
//! ahead ([`PolicyBuilder::lease`](policy::PolicyBuilder::lease)). What is degraded shows in every decision
//! and in the metrics. The memory store has one such mode: `full`, when it holds nothing but keys that are
//! denied now and so refuses a new one. With a shared store that is away or does not answer in time, the
//! policies decide ([`PolicyBuilder::on_store_failure`](policy::PolicyBuilder::on_store_failure)): `local`, from
//! this instance's share of the limits, unless told otherwise; `deny_all` if any of them denies, or if nobody
//! knows how many instances there are; `allow_all` if all of them allow. In the last two nobody counted, and a
//! decision has no numbers but the limits themselves. Peeks, resets and settled reservations are errors then.
//!
//! A **reservation** ([`Limiter::reserve`]) charges an estimate now and settles the actual cost later, once. One
//! that is dropped is given back.
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! # use slidegate::{Ask, Limiter, Policy, Settled};
//! # let limiter = Limiter::builder()
//! #     .policy(Policy::builder("tokens").limits("10000/m").key("{header:x-user-id}").build()?)
//! #     .build()?;
//! let estimate = Ask::new("tokens", &["user-1001"]).cost(4000);
//! let (decision, reservation) = limiter.reserve(&[estimate]).await?;
//! if let Some(reservation) = reservation {
//!     // ... the answer of the language model took 1500 tokens ...
//!     let settled = reservation.commit(1500).await?;
//!     assert_eq!(settled, Settled::Done { given_back: 2500, charged: 0 });
//! }
//! # assert!(decision.is_allowed());
//! # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
//! ```
//!
//! # Errors
//! A [`CheckError`] is a question that has no answer: an unknown policy, a key that does not fit, a cost above
//! what the limit can ever hold. A [`StoreError`] is a store that could not do what it was asked. Limits,
//! templates and policies are checked when they are built, so a limiter that exists is a valid one.
//!
//! # Testing
//! With the feature `test-util`, `testing::FakeClock` stands still until you move it, so that tests of your
//! limits neither sleep nor flicker.
#![cfg_attr(
    feature = "test-util",
    doc = r#"
```
# tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
use std::sync::Arc;
use slidegate::{testing::FakeClock, Limiter, MemoryStore, Policy};

let clock = Arc::new(FakeClock::default());
let limiter = Limiter::builder()
    .policy(Policy::builder("login").limits("1/m").key("{client_ip}").build()?)
    .store(MemoryStore::builder().clock(clock.clone()).build())
    .build()?;

let _ = limiter.check("login", &["203.0.113.7"]).await?;
let denied = limiter.check("login", &["203.0.113.7"]).await?;
clock.advance(denied.retry_after().expect("denied"));
assert!(limiter.check("login", &["203.0.113.7"]).await?.is_allowed());
# Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
```
"#
)]
//!
//! # What "exact" means, and what not
//! Under `sliding_window` and `sliding_log`, for every instant t on the store's clock, the permits admitted in
//! (t - W, t] never exceed N; a permit that is exactly W old no longer counts. The memory store reads its
//! clock under the lock that it decides under, so threads don't blur this.
//!
//! * *By the store's clock*, not by the clock at the other end of a network.
//! * Quota comes back up to 1 ms late, and under limits of more than 4096 permits over long windows up to
//!   1/4096 of the window late; never early.
//! * `fixed_window` admits up to 2N around a boundary, `token_bucket` up to burst + rate x T in any T: that is
//!   what those algorithms are.
//! * A [commit](Reservation::commit) beyond what was reserved is charged past the limit.
//! * [`Limiter::reset`], a raised limit and a clock that is set forward give quota that was not there before.
//! * A memory store that overflows may drop a counter with permits left, whose client then starts afresh;
//!   never one that is denied now ([`MemoryStore`]; the figure is `live_evictions`).
//! * Limits of several processes add up, until they share a store.
//!
//! # Changing limits
//! Limits come with every check, so a second limiter over the same store, as an [`Arc`](std::sync::Arc), goes on
//! with the same counters under other limits. Give both the same [`SecretKey`](secret::SecretKey) if any policy has secret parts.
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! use std::sync::Arc;
//! use slidegate::{Limiter, MemoryStore, Policy};
//!
//! let store = Arc::new(MemoryStore::default());
//! let load = |limits: &str| {
//!     let policy = Policy::builder("all").limits(limits).build()?;
//!     Ok::<_, Box<dyn std::error::Error>>(Limiter::builder().policy(policy).store(store.clone()).build()?)
//! };
//! assert!(load("1/h")?.check("all", &[]).await?.is_allowed());
//! assert!(!load("1/h")?.check("all", &[]).await?.is_allowed());
//! assert!(load("2/h")?.check("all", &[]).await?.is_allowed());
//! # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
//! ```
//!
//! # Features
//! * `test-util`: the clock for tests. Nothing else is optional yet.
//!
//! # Where to read on
//! * [`policy`]: key templates, costs, overrides, exemptions, policies that only watch.
//! * [`http`]: the answers that clients get, and who the client is.
//! * [`store`]: the contract that every store keeps, for writing one. [`store::memory`]: the one that is here.
//! * [`metrics`]: what happened, counted by policy.
//! * [`core`]: the decisions themselves, as pure functions of `(now, limit, cost)`.

pub mod clock;
pub mod decision;
pub mod error;
pub mod facts;
pub mod http;
pub mod limiter;
pub mod metrics;
#[cfg(feature = "redis")]
mod pipeline;
pub mod policy;
mod random;
pub mod reservation;
pub mod secret;
#[doc(hidden)]
pub mod spelling;
pub mod store;
#[cfg(feature = "test-util")]
pub mod testing;

pub use decision::{Decision, Mode};
pub use error::{CheckError, StoreError};
pub use facts::{Client, RequestFacts};
pub use limiter::{Ask, Limiter};
pub use policy::Policy;
pub use reservation::Reservation;
pub use slidegate_core as core;
pub use store::memory::MemoryStore;
#[cfg(feature = "redis")]
pub use store::redis::RedisStore;
pub use store::{ReservationId, Settled, Store};

/// The README's example is compiled and run with those of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
