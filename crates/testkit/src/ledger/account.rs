//! The amounts that one bucket granted, and those that it could have granted.

use spile_core::{Amount, Limit, Micros, Rate};

/// Everything that the store admitted from one bucket.
#[derive(Clone, Debug)]
pub struct Account {
    limit: Limit,
    /// The store's time, and the tokens that it let go then.
    admitted: Vec<(Micros, Amount)>,
}

impl Account {
    /// The account of a bucket that starts full.
    pub const fn new(limit: Limit) -> Self {
        Self { limit, admitted: Vec::new() }
    }

    /// Records an amount. Zero records that a request was denied at that time.
    pub fn admitted(&mut self, amount: Amount, at: Micros) {
        self.admitted.push((at, amount));
    }

    /// The tokens given in all.
    pub fn tokens_admitted(&self) -> f64 {
        self.admitted.iter().map(|&(_, amount)| amount).sum::<Amount>().as_f64()
    }

    /// The most tokens by which any period gave more than the capacity and the refill of that period.
    ///
    /// Simulates a bucket that may go below zero. Its lowest level is the excess of the worst period.
    pub fn overdrawn(&self) -> f64 {
        let mut entries = self.admitted.clone();
        entries.sort_by_key(|&(at, _)| at);
        let capacity = self.limit.capacity().as_f64();
        let (mut level, mut deepest, mut last) = (capacity, 0.0, None);
        for (at, amount) in entries {
            let elapsed_us = last.map_or(0, |last| at.since_us(last));
            level = (level + self.refilled(elapsed_us)).min(capacity) - amount.as_f64();
            deepest = f64::min(deepest, level);
            last = Some(at);
        }
        // A double loses less than a millionth of a token over any test, and the store counts in whole millionths.
        if deepest > -1e-6 { 0.0 } else { -deepest }
    }

    /// How many tokens more than the capacity and the refill were given between the first and the last question.
    pub fn overdrawn_in_all(&self) -> f64 {
        (self.tokens_admitted() - self.entitlement()).max(0.0)
    }

    /// The amount that could have been granted between the first and the last question.
    fn entitlement(&self) -> f64 {
        let times = || self.admitted.iter().map(|&(at, _)| at);
        let (first, last) = (times().min().unwrap_or_default(), times().max().unwrap_or_default());
        self.limit.capacity().as_f64() + self.refilled(last.since_us(first))
    }

    /// The share of what could have been given between the first and the last question that was given.
    pub fn entitlement_used(&self) -> f64 {
        if self.admitted.is_empty() { 1.0 } else { self.tokens_admitted() / self.entitlement() }
    }

    /// The tokens that come back in this time.
    pub fn refilled(&self, elapsed_us: u64) -> f64 {
        elapsed_us as f64 * self.limit.rate().map_or(0.0, Rate::per_second) / 1e6
    }
}
