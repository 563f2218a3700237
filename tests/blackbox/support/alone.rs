//! A test in a process of its own, for what can only be counted there: the
//! library's threads, and open descriptors.

use std::fs::read_dir;
use std::process::Command;

const ALONE: &str = "DLEASE_TEST_ALONE";

/// Runs the body of the test `name` in a process that runs no other test.
pub fn alone(name: &str, body: impl FnOnce()) {
    if std::env::var(ALONE).is_ok_and(|alone| alone == name) {
        return body();
    }
    let mut command = Command::new("/proc/self/exe");
    command.args(["--exact", name, "--nocapture", "--test-threads=1"]).env(ALONE, name);
    let output = command.output().expect("this binary can be run");
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    println!("{text}");
    assert!(output.status.success() && text.contains("1 passed"), "{name} failed alone");
}

/// The names of the library's threads in this process.
pub fn library_threads() -> Vec<String> {
    let tasks = read_dir("/proc/self/task").expect("/proc");
    let name = |task: std::io::Result<std::fs::DirEntry>| {
        std::fs::read_to_string(task.ok()?.path().join("comm")).ok()
    };
    tasks.filter_map(name).filter(|name| name.starts_with("dlease")).collect()
}

/// How many descriptors this process has open.
pub fn descriptors() -> usize {
    read_dir("/proc/self/fd").expect("/proc").count()
}
