//! Whose lock it is: handles, owners, and re-entrance.
