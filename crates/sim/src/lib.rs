//! A deterministic simulation of slidegate: instances and their store in a world on virtual time.
//!
//! [`run`] draws a world from a seed, lets it go its way, and says whether a promise was broken. A seed is all that is
//! needed to see it again. What decides is the product: the modules of [`slidegate_core`], on the store's side and on
//! the instances'. What carries it (tasks, sockets, scripts) is modelled here, as thinly as in the product, and each
//! module says which file it mirrors. `docs/simulation.md` says what is modelled and what is not.
//!
//! ```
//! let report = slidegate_sim::run(1, slidegate_sim::Broken::Nothing, false);
//! assert_eq!(report.fault, None);
//! ```
//!
//! | module | is |
//! |---|---|
//! | `scene` | what a seed decides before the first event |
//! | `world` | events: network, checks, faults |
//! | `instance` | what an instance knows |
//! | `store`, `decide` | servers, replication; one script call |
//! | `oracle` | who watches |
//! | `scale` | a large fleet without faults: load and precision |
//! | `broken`, `totals` | faults on purpose, which must be caught |

mod broken;
mod decide;
mod instance;
mod oracle;
mod queue;
mod scale;
mod scene;
mod store;
mod totals;
mod world;

pub use broken::Broken;
pub use oracle::{Rule, Violation};
pub use scale::{Load, Size, scale};
pub use world::{Figures, Report, run};
