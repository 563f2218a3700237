//! A wall clock that a test can set, for a server of its own or for a child
//! process, by libfaketime. Monotonic clocks stay as they are.

use std::path::PathBuf;

use super::unique;

/// See the module's text.
#[derive(Debug)]
pub struct Clock {
    file: PathBuf,
}

impl Clock {
    /// A clock that is ahead of the true one by so many seconds.
    pub fn ahead(seconds: f64) -> Clock {
        let clock = Clock { file: std::env::temp_dir().join(unique("dlease-clock")) };
        clock.set(seconds);
        clock
    }

    /// Sets it ahead of the true one by so many seconds.
    pub fn set(&self, seconds: f64) {
        // Renamed into place: it is read at every look at the clock.
        let new = self.file.with_extension("new");
        std::fs::write(&new, format!("{seconds:+.6}\n")).expect("a file");
        std::fs::rename(&new, &self.file).expect("a file");
    }

    /// The variables that give a process this clock.
    pub fn variables(&self) -> Vec<(&'static str, String)> {
        vec![
            ("LD_PRELOAD", library()),
            ("FAKETIME_TIMESTAMP_FILE", self.file.display().to_string()),
            ("FAKETIME_NO_CACHE", "1".into()),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".into()),
            // Else a thread of MySQL's spins in a timed wait for ever.
            ("FAKETIME_FORCE_MONOTONIC_FIX", "0".into()),
        ]
    }

    /// The same as one text, `NAME=VALUE …`.
    pub fn environment(&self) -> String {
        let pair = |(name, value)| format!("{name}={value}");
        self.variables().into_iter().map(pair).collect::<Vec<_>>().join(" ")
    }
}

impl Drop for Clock {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.file);
    }
}

fn library() -> String {
    let directories = std::fs::read_dir("/usr/lib").expect("/usr/lib").flatten();
    let mut paths = directories.map(|entry| entry.path().join("faketime/libfaketimeMT.so.1"));
    let path = paths.find(|path| path.exists()).expect("libfaketime: run tests/setup");
    path.display().to_string()
}
