//! What each of several equal checks is told, when they were decided as one.
//!
//! Pure arithmetic. The grants go to the first in line, and each is told what it would have been told alone,
//! decided in order at the same instant: the numbers of its turn. All it takes is that every unit granted
//! moves `used` by one and nothing else, which holds for [what merges](super::lane) and for nothing more.

use slidegate_core::algorithm::Receipt;
use slidegate_core::decision::Outcome;
use smallvec::SmallVec;

use crate::pipeline::batch::{Decided, OwnedCharge, OwnedCheck, Taken};
use crate::store::Answer;

/// The grants of a party, while they are being shared out.
#[derive(Debug)]
pub(super) struct Shares<'a> {
    check: &'a OwnedCheck,
    whole: Decided,
    /// Grants that nobody has yet.
    left: u32,
}

impl<'a> Shares<'a> {
    pub(super) fn new(check: &'a OwnedCheck, whole: Decided) -> Self {
        let left = whole.answer.granted;
        Self { check, whole, left }
    }

    /// What the next in line is told, who asked for `times`. Nothing is handed out before it is
    /// [taken](Self::take): who has left makes way for the next.
    pub(super) fn offer(&self, times: u32) -> Decided {
        let granted = times.min(self.left);
        let refused = granted < times;
        let behind = self.left - granted;
        let of_turn = |(whole, charge): (&Outcome, &OwnedCharge)| {
            let later = behind.saturating_mul(charge.cost);
            Outcome {
                used: whole.used.saturating_sub(later),
                remaining: whole.remaining.saturating_add(later).min(whole.limit),
                violated: whole.violated && refused,
                retry_after: whole.retry_after.filter(|_| refused),
                ..*whole
            }
        };
        let outcomes = self.whole.answer.outcomes.iter().zip(&self.check.charges).map(of_turn).collect();
        Decided {
            answer: Answer { granted, outcomes, ..self.whole.answer },
            receipts: self.receipts(granted).collect(),
        }
    }

    /// The next in line has these grants.
    pub(super) const fn take(&mut self, granted: u32) {
        self.left = self.left.saturating_sub(granted);
    }

    /// What nobody took.
    pub(super) fn rest(&self) -> SmallVec<[Taken; 2]> {
        let receipts: SmallVec<[_; 2]> = self.receipts(self.left).collect();
        self.check.taken(&receipts)
    }

    fn receipts(&self, granted: u32) -> impl Iterator<Item = Option<Receipt>> {
        self.whole.receipts.iter().zip(&self.check.charges).map(move |(receipt, charge)| {
            let receipt = receipt.filter(|_| granted > 0)?;
            let units = receipt.units.min(granted.saturating_mul(charge.cost));
            Some(Receipt { units, ..receipt })
        })
    }
}
