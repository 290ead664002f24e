//! A reservation is settled once, by one amount.

use std::collections::BTreeMap;

use super::Broken;
use crate::scenario::Fault;

#[derive(Default)]
pub(crate) struct Reservations {
    /// The amounts that were answered first, and whether one answer was the first.
    settled: BTreeMap<u64, (Vec<i64>, bool)>,
    /// Data may have been lost.
    forgets: bool,
}

impl Reservations {
    pub(crate) fn failed(&mut self, fault: Fault) {
        self.forgets |= fault.loses_state();
    }

    pub(crate) fn settled(&mut self, reservation: u64, already: bool, amounts: &[i64]) -> Result<(), Broken> {
        if self.forgets {
            return Ok(());
        }
        let (first, has_first) = self.settled.entry(reservation).or_insert_with(|| (amounts.to_vec(), false));
        if first != amounts {
            let what = format!("q{reservation} was settled at {first:?} and at {amounts:?}");
            return Err(Broken::new("settled once", what));
        }
        if !already && std::mem::replace(has_first, true) {
            return Err(Broken::new(
                "settled once",
                format!("q{reservation} was settled twice at {amounts:?}"),
            ));
        }
        Ok(())
    }
}
