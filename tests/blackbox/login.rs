//! Addresses, accounts, passwords and TLS.
