//! How much of a key an instance may use while it can't know what the others use: in a local era, and in a roll call.
//!
//! # Why
//! When the store goes away, N permits of the last window may have been spent, however they were spread over the
//! instances. If each took its share at once, traffic that moves between them would add up: 1875 of 1000 were
//! admitted. So for a window an instance stays below what it held itself, and those sums were N at most. In a roll call
//! it is the same: the new master may not know yet what others were granted.
//!
//! A key that the instance has no history of gets the share: all of them together are the limit, but with what others
//! hold it may be passed by up to those shares.
//!
//! # Units
//! Permits; instants in microseconds on the instance's clock.

use super::Era;
use crate::time::Millis;

/// The most that may be held at once in a local era. `share`: of the limit. `held`: what the instance held when the
/// era began ([`Grants::held_when`](super::grants::Grants::held_when)).
pub fn local_cap(era: Era, now_us: u64, window: Millis, share: u32, held: Option<u32>) -> u32 {
    let first_window = now_us < era.began_us.saturating_add(window.0.saturating_mul(1000));
    held.filter(|_| first_window).map_or(share, |held| held.min(share))
}

/// The most that may be held at once in a roll call; `None`: no bound, since a window has passed.
pub fn roll_call_cap(era: Era, now_us: u64, window: Millis, share: u32, held: Option<u32>) -> Option<u32> {
    let open = now_us < era.began_us.saturating_add(window.0.saturating_mul(1000));
    open.then(|| held.unwrap_or(share))
}

/// What may be taken yet, of a cap and what is held now.
pub const fn room(cap: u32, held: u32) -> u32 {
    cap.saturating_sub(held)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Millis = Millis(1_000);
    const ERA: Era = Era { number: 1, began_us: 5_000_000 };

    #[test]
    fn for_a_window_an_instance_stays_below_its_share_and_what_it_held() {
        for (held, cap) in [(Some(10), 10), (Some(500), 125), (None, 125)] {
            assert_eq!(local_cap(ERA, 5_000_000, SECOND, 125, held), cap);
            assert_eq!(local_cap(ERA, 5_999_999, SECOND, 125, held), cap);
            assert_eq!(local_cap(ERA, 6_000_000, SECOND, 125, held), 125);
        }
    }

    #[test]
    fn in_a_roll_call_it_stays_below_what_it_held_and_after_a_window_nothing_holds_it() {
        for (held, cap) in [(Some(10), 10), (Some(500), 500), (None, 125)] {
            assert_eq!(roll_call_cap(ERA, 5_000_000, SECOND, 125, held), Some(cap));
            assert_eq!(roll_call_cap(ERA, 5_999_999, SECOND, 125, held), Some(cap));
            assert_eq!(roll_call_cap(ERA, 6_000_000, SECOND, 125, held), None);
        }
        assert_eq!((room(10, 3), room(10, 30)), (7, 0));
    }
}
