//! What each statement costs the server, and which rows it locks.
