//! How long a wait takes, and how it ends.
