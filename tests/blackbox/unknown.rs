//! Calls whose reply was lost: none is left in doubt.
