//! Connections that are lost, idle, too many, or silent.
