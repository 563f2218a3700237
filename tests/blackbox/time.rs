//! Clocks, time zones, and the length of a lease.
