//! The tables: made, judged, missing, made by others.
