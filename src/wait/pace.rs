//! How often a row is looked at that nobody rings a bell for: the longer it has
//! been waited for already, the less a little more matters.

use std::time::Duration;

use crate::random;

/// The least time between two looks of a client, whatever the number of keys.
pub(super) const SHORTEST: Duration = Duration::from_millis(20);
const LONGEST: Duration = Duration::from_millis(200);

/// The pause before the next look at a row that has been waited for so long: a
/// tenth of that, and up to a tenth more or less, so that clients do not come
/// at the same time.
pub(super) fn pause(waited: Duration) -> Duration {
    let pause = (waited / 10).clamp(SHORTEST, LONGEST);
    let spread = pause.as_micros() as u64 / 5 + 1;
    pause * 9 / 10 + Duration::from_micros(random::below(spread))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_costs_a_tenth_of_the_wait_within_bounds() {
        for (waited, least, most) in [(0, 18, 22), (1_000, 90, 110), (60_000, 180, 220)] {
            for _ in 0..50 {
                let pause = pause(Duration::from_millis(waited));
                assert!(pause >= Duration::from_millis(least), "{pause:?}");
                assert!(pause <= Duration::from_millis(most), "{pause:?}");
            }
        }
    }
}
