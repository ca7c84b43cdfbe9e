//! At most so many counters, and what gives way for a new one.

use super::*;
