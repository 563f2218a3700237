//! Prints include/dlease.h, made from src/ffi by cbindgen: `make header`.

fn main() {
    let root = env!("CARGO_MANIFEST_DIR");
    let config = cbindgen::Config::from_root_or_default(root);
    let bindings = cbindgen::generate_with_config(root, config).expect("src/ffi can be read");
    bindings.write(std::io::stdout());
}
