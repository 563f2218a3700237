//! Leases that end under their holders.
