//! Gives the shared library its ABI name, and keeps it mapped for the life of
//! the process.

fn main() {
    // The number is the ABI's, apart from the crate's version: programs link
    // against `libdlease.so.0` for as long as that ABI stands.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libdlease.so.0");
    // The library's threads outlive a dlclose by the host; unmapping their
    // code would crash it.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo::rerun-if-changed=build.rs");
}
