//! Pauses between tries, growing and jittered, so that many waiters neither
//! flood the server nor come at the same time.

use std::time::Duration;

use crate::random;

const SHORTEST: Duration = Duration::from_millis(1);
const LONGEST: Duration = Duration::from_millis(100);

/// The next pause of one waiter.
#[derive(Debug)]
pub(crate) struct Backoff {
    pause: Duration,
}

impl Backoff {
    pub(crate) fn new() -> Backoff {
        Backoff { pause: SHORTEST }
    }

    /// A pause between half of the present length and the whole.
    pub(crate) fn next(&mut self) -> Duration {
        let half = self.pause / 2;
        let spread = half.as_micros() as u64 + 1;
        self.pause = (self.pause * 3 / 2).min(LONGEST);
        half + Duration::from_micros(random::below(spread))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_the_longest_and_differ() {
        let mut backoff = Backoff::new();
        let pauses: Vec<Duration> = (0..40).map(|_| backoff.next()).collect();
        assert!(pauses.iter().all(|pause| *pause >= SHORTEST / 2 && *pause <= LONGEST));
        let late = &pauses[20..];
        assert!(late.iter().all(|pause| *pause >= LONGEST / 2));
        assert!(late.iter().any(|pause| *pause != late[0]));
    }
}
