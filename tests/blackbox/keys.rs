//! What a key may be, and that it is the same lock everywhere.
