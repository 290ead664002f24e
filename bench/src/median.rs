//! The middle of several rounds: one noisy neighbour does not move it.

/// The median of these figures; not a number where there are none.
pub fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(f64::NAN)
}
