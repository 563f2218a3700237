//! Servers that refuse, deadlock, restart, or are full.
