//! slidegate
pub mod clock;
pub mod decision;
pub mod error;
pub mod facts;
pub mod http;
pub mod limiter;
pub mod metrics;
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
pub use store::{ReservationId, Settled, Store};
