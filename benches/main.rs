//! `make bench`: what a lock costs, beside what the server can do at all. Each
//! figure is a ratio of two things measured in turns in one run, since machines
//! are shared and noisy; it is printed beside its target, and kept as JSON.

#![allow(clippy::disallowed_types, reason = "measures with std's clock")]
#![allow(unsafe_code, reason = "asks the system for its own use")]

mod child;
mod holding;
mod overhead;
mod pair;
mod waiting;

use comfy_table::{Table, presets};
use serde_json::json;

/// One line of the table.
pub(crate) struct Figure {
    pub(crate) server: String,
    pub(crate) what: String,
    pub(crate) value: f64,
    pub(crate) unit: &'static str,
    /// What it should be, where there is a target.
    pub(crate) target: Option<Target>,
}

/// What a figure should be.
#[derive(Clone, Copy)]
pub(crate) enum Target {
    AtMost(f64),
    AtLeast(f64),
}

fn main() {
    if child::is_one() {
        return child::run();
    }
    // `cargo test` and `cargo bench` may both come by.
    let urls = std::env::var("DLEASE_TEST_URLS").unwrap_or_default();
    assert!(!urls.trim().is_empty(), "DLEASE_TEST_URLS names no server: run `make bench`");
    let mut figures = Vec::new();
    for url in urls.split_whitespace() {
        pair::measure(url, &mut figures);
        waiting::measure(url, &mut figures);
        holding::measure(url, &mut figures);
    }
    overhead::measure(&mut figures);
    print(&figures);
    write_json(&figures);
}

fn print(figures: &[Figure]) {
    let mut table = Table::new();
    table.load_preset(presets::ASCII_MARKDOWN);
    table.set_header(["server", "figure", "measured", "target", ""]);
    for figure in figures {
        let number = if figure.value < 100.0 {
            format!("{:.2} {}", figure.value, figure.unit)
        } else {
            format!("{:.0} {}", figure.value, figure.unit)
        };
        let target = match figure.target {
            None => String::new(),
            Some(Target::AtMost(most)) => format!("<= {most}"),
            Some(Target::AtLeast(least)) => format!(">= {least}"),
        };
        table.add_row([&figure.server, &figure.what, &number, &target, verdict(figure)]);
    }
    println!("{table}");
}

fn verdict(figure: &Figure) -> &'static str {
    let passes = match figure.target {
        None => return "",
        Some(Target::AtMost(most)) => figure.value <= most,
        Some(Target::AtLeast(least)) => figure.value >= least,
    };
    if passes { "PASS" } else { "MISS" }
}

fn write_json(figures: &[Figure]) {
    let rows: Vec<_> = figures
        .iter()
        .map(|figure| {
            let (at_most, at_least) = match figure.target {
                None => (None, None),
                Some(Target::AtMost(most)) => (Some(most), None),
                Some(Target::AtLeast(least)) => (None, Some(least)),
            };
            json!({
                "server": figure.server, "figure": figure.what, "value": figure.value,
                "unit": figure.unit, "at_most": at_most, "at_least": at_least,
                "verdict": verdict(figure),
            })
        })
        .collect();
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/target/bench.json");
    let text = serde_json::to_string_pretty(&rows).expect("figures are numbers and texts");
    std::fs::write(path, text).expect("target can be written");
    println!("written to target/bench.json");
}
