//! What a call through Go and Python costs that does no SQL.

use std::path::Path;
use std::process::Command;

use crate::{Figure, Target};

/// Runs the Go and the Python measurement; each prints `name nanoseconds`
/// lines. They need the environment that `make bench` sets.
pub(crate) fn measure(figures: &mut Vec<Figure>) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut go = Command::new("go");
    go.current_dir(root.join("bindings/go")).args(["run", "./internal/overhead"]);
    add(figures, "Go", 2.0, ["Go: token()", "Go: remaining()"], &mut go);
    let mut python = Command::new(root.join("target/venv/bin/python"));
    python.arg(root.join("benches/overhead.py"));
    add(figures, "Python", 25.0, ["Python: token", "Python: remaining()"], &mut python);
}

fn add(
    figures: &mut Vec<Figure>,
    language: &str,
    at_most: f64,
    names: [&'static str; 2],
    command: &mut Command,
) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{language}: {errors}");
    for (line, what) in text.lines().zip(names) {
        let nanos: f64 = line.split_whitespace().nth(1).and_then(|n| n.parse().ok()).expect(line);
        let value = nanos / 1000.0;
        figures.push(Figure {
            server: "-".into(),
            what: what.to_owned(),
            value,
            unit: "us",
            target: Some(Target::AtMost(at_most)),
        });
    }
    assert_eq!(text.lines().count(), names.len(), "{language}: {text}");
}
