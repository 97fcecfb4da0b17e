//! A disk that fills up while a state is written. Needs a small file system of its own, which Linux lets a process mount
//! in a namespace; where that is not allowed, the test says so and checks nothing.

use std::io::Write as _;
use std::process::Command;

use crate::states::{self, State};
use ds4_session_store::{Store, StoreError};

const FOLDER: &str = "DS4_SMALL_DISK";

/// Not a test: runs in the namespace, with a file system of 256 KiB mounted at the folder.
#[test]
#[ignore = "is started by the test below"]
fn on_a_small_disk() {
    let Ok(folder) = std::env::var(FOLDER) else { return };
    let store = Store::open(&folder, states::options()).unwrap();
    let kept = State::new(1, 100).save(&store).unwrap().id;
    leave_free(&folder, 32 * 1024);
    let before = store.stats();

    // What is more than the free space is refused before anything is written or evicted.
    let error = State::new(2, 1500).save(&store).unwrap_err();
    assert!(matches!(error, StoreError::TooLittleSpace { .. }), "{error}");

    // Ten blobs of 1,800 bytes fit by their lengths. Each takes a block of 4 KiB, so the disk fills up on the way.
    let error = State::new(3, 160).save(&store).unwrap_err();
    assert!(matches!(error, StoreError::DiskFull { .. }), "{error}");
    assert!(error.to_string().contains("free some space"), "{error}");
    let after = store.stats();
    assert_eq!((after.states, after.bytes, after.evicted), (before.states, before.bytes, 0));
    assert_eq!(std::fs::read_dir(format!("{folder}/tmp")).unwrap().count(), 0);

    // Requests go on: what is there can be loaded, and with space again states can be saved.
    assert!(State::new(1, 100).is(&store.load(kept).unwrap()));
    std::fs::remove_file(format!("{folder}/other")).unwrap();
    let id = State::new(50, 60).save(&store).unwrap().id;
    drop(store);
    let store = Store::open(&folder, states::options()).unwrap();
    assert_eq!(store.stats().quarantined, []);
    assert_eq!(store.stats().orphans_removed, 0, "the failed save has cleared up after itself");
    assert!(State::new(50, 60).is(&store.load(id).unwrap()));
    println!("checked on a small disk");
}

/// Fills the disk with a file, but for this many bytes.
fn leave_free(folder: &str, free: u64) {
    let mut file = std::fs::File::create(format!("{folder}/other")).unwrap();
    while file.write_all(&[1; 4096]).is_ok() {}
    let length = file.metadata().unwrap().len();
    file.set_len(length - free).unwrap();
}

#[test]
fn a_full_disk_leaves_nothing_half_written() {
    let dir = tempfile::TempDir::new().unwrap();
    let script = r#"mount -t tmpfs -o size=256k none "$DS4_SMALL_DISK" && echo mounted && exec "$0" "$@""#;
    let output = Command::new("unshare")
        .args(["--map-root-user", "--mount", "sh", "-c", script])
        .arg(std::env::current_exe().unwrap())
        .args(["disk_full::on_a_small_disk", "--exact", "--ignored", "--nocapture"])
        .env(FOLDER, dir.path())
        .output();
    let Ok(output) = output else { return println!("skipped: no unshare on this machine") };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if !text.starts_with("mounted") {
        return println!("skipped: mounting is not allowed here");
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("checked on a small disk"), "{text}\n{errors}");
    println!("{text}");
}
