//! A server whose disk is full.

use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;
use std::process::Command;

use dlease::{AcquireOptions, Status};

use crate::support::{Own, each_kind_at_once, ms, take, timed, unique};

/// A server with its data on a small disk of its own. Needs root.
struct OnSmallDisk {
    own: Own,
    data: PathBuf,
}

impl OnSmallDisk {
    fn start(kind: &str, test: &str, options: &[&str], megabytes: usize) -> OnSmallDisk {
        let own = Own::start(kind, test, options);
        own.kill();
        let (data, moved) = (own.directory().join("data"), own.directory().join("moved"));
        fs::rename(&data, &moved).expect("rename");
        fs::create_dir(&data).expect("mkdir");
        let size = format!("size={megabytes}m,mode=700");
        run(Command::new("mount").args(["-t", "tmpfs", "-o", &size, "dlease-test"]).arg(&data));
        let small = OnSmallDisk { own, data };
        run(Command::new("cp").arg("-a").arg(moved.join(".")).arg(&small.data));
        fs::remove_dir_all(moved).expect("rm");
        small.own.restart();
        small
    }

    /// Leaves not a byte.
    fn fill(&self) {
        let mut file = File::create(self.data.join("filler")).expect("the filler");
        for size in [1 << 20, 4_096] {
            while file.write_all(&vec![0; size]).is_ok() {}
        }
    }

    fn make_room(&self) {
        fs::remove_file(self.data.join("filler")).expect("the filler");
    }
}

impl Drop for OnSmallDisk {
    fn drop(&mut self) {
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| self.own.kill()));
        let _ = Command::new("umount").arg("-l").arg(&self.data).status();
    }
}

fn run(command: &mut Command) {
    let status = command.status().expect("it can be run");
    assert!(status.success(), "{command:?} (a small disk takes root's rights)");
}

#[test]
fn a_full_disk_is_a_server_error_and_no_contention_and_passes_without_a_restart() {
    each_kind_at_once(|kind| {
        let options: &[&str] = if kind == "mysql" { &["--skip-log-bin"] } else { &[] };
        let disk = OnSmallDisk::start(kind, "full-disk", options, 400);
        let client = disk.own.server.client();
        let held = take(&client, "held");
        disk.fill();
        // New keys until the table would have to grow.
        let options = AcquireOptions::new().wait(ms(5_000)).note("n".repeat(255));
        let (error, took) = loop {
            let key = format!("{}{}", unique("full"), "x".repeat(200));
            let (result, took) = timed(|| client.acquire(&key, &options));
            match result {
                Ok(lock) => lock.release().unwrap(),
                Err(error) => break (error, took),
            }
        };
        assert_eq!(error.status(), Status::Server, "{error:?}");
        assert!(matches!(error.server_errno(), 1114 | 1021 | 3), "{error:?}");
        assert!(error.is_retriable());
        assert!(took < ms(2_000), "{took:?}");
        // A renewal writes where its row is already.
        held.renew().unwrap();
        disk.make_room();
        take(&client, unique("full")).release().unwrap();
        held.renew().unwrap();
        held.release().unwrap();
    });
}
