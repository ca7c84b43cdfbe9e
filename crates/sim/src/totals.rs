//! A ledger that counts totals in place of calls, for [`Broken::Totals`]: what was tried, and
//! found wanting. The key keeps how much it has granted an instance in all, and a call says how much was accepted.
//!
//! The difference is taken back, or put back. A call that is executed late brings an old total, and has permits taken
//! back that have been spent.

use slidegate_core::algorithm::tick_log::layout::Image;
use slidegate_core::instance::grants::PutBack;
use slidegate_core::ledger::{self, Call, Row, Verdict};
use slidegate_core::time::Now;

use crate::broken::Broken;
use crate::decide::{self, Ask, Told};

pub(crate) fn check(image: &mut Image, now: Now, ask: &Ask) -> Told {
    let Some(line) = &ask.line else { return decide::check(image, now, ask, Broken::Nothing) };
    let accepted = line.ack;
    image.settle(now, &ask.limit);
    let row = image.ledger.iter_mut().find(|row| row.identity == ask.identity);
    let known = row.as_ref().map_or(0, |row| row.seq);
    if known < accepted && !line.lapsed && ask.put_back.is_none() {
        return Told::Behind { stored: known };
    }
    if let Some(row) = row
        && row.seq > accepted
    {
        // What was granted and not accepted is taken back as a lost grant is.
        row.count = u32::try_from(row.seq - accepted).unwrap_or(u32::MAX);
        row.seq = 1;
        let lost = Call { seq: 3, ack: 0, ..*line };
        let verdict = ledger::compare(image, &lost);
        debug_assert_eq!(verdict, Verdict::Decide, "a row of a lost call");
    }
    if let Some(back) = &ask.put_back {
        // As if the row were not there: the core puts back what is told, and compares nothing.
        let row = image.ledger.iter().position(|row| row.identity == ask.identity);
        let row = row.map(|at| image.ledger.remove(at));
        let back = PutBack { stored: 0, ..back.clone() };
        let lost = Call { ack: 1, lapsed: false, reset_epoch: image.reset_epoch, ..*line };
        ledger::put_back(image, now, &ask.limit, &lost, &back, true);
        image.ledger.retain(|row| row.identity != ask.identity);
        image.ledger.extend(row.map(|row| Row { seq: accepted, count: 0, ..row }));
    }
    let plain = Ask { line: None, ..ask.clone() };
    let told = decide::check(image, now, &plain, Broken::Nothing);
    if let Told::Decided { granted, .. } = &told {
        let units: u32 = granted.iter().filter_map(|(_, receipt)| receipt.map(|receipt| receipt.units)).sum();
        image.ledger.retain(|row| row.identity != ask.identity);
        // Written by the core, which knows the tick; the total takes the place of the number.
        ledger::record(image, now, &ask.limit, ask.identity, accepted + u64::from(units), units.max(1));
        if let Some(row) = image.ledger.iter_mut().find(|row| row.identity == ask.identity) {
            *row = Row { count: units, ..*row };
        }
    }
    told
}
