//! What happens to the folder of states is a miss with a reason, never an error and never another answer.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use ds4_engine::{DiskOptions, SessionOptions};
use ds4_session_store::StoreError;

use super::harness::{AMPLE, Checkpoint, Numbers, Subject, fingerprints, open_store, request};
use super::{Outcome, item};
use crate::report::Report;

/// Tokens of the saved conversation.
const LENGTH: usize = 300;

/// Done to the folder of a store.
type Damage = fn(&Path) -> anyhow::Result<()>;

/// A conversation whose first turn is on disk, and how it goes on.
struct Saved {
    folder: tempfile::TempDir,
    timeline: Vec<u32>,
}

pub(super) fn run(report: &mut Report, checkpoint: &Checkpoint, other: &Checkpoint) -> anyhow::Result<()> {
    let damages: [(&str, &str, Damage); 6] = [
        ("a bit flipped in every part", "corrupt", flip_parts),
        ("a bit flipped in the middle of every state file", "corrupt", flip_states),
        // Nothing is known of a state whose head cannot be read, not even that it would have fitted.
        ("a bit flipped in the head of every state file", "new_session", flip_heads),
        ("every state file cut in half", "new_session", cut_states),
        ("every part cut in half", "new_session", cut_parts),
        ("text files in place of the states", "new_session", replace_states),
    ];
    for (name, reason, damage) in damages {
        item(report, name, damaged(checkpoint, reason, damage));
    }
    item(report, "states of another model in the folder", foreign(checkpoint, other));
    for (name, model, template) in
        [("model_changed", "other", "template"), ("template_changed", "model", "other")]
    {
        item(
            report,
            &format!("states under another fingerprint: {name}"),
            changed(checkpoint, name, model, template),
        );
    }
    item(report, "a folder that cannot be made", unusable(checkpoint));
    item(report, "a folder that stops being writable", write_protected(checkpoint));
    item(report, "two stores in one folder", shared(checkpoint));
    Ok(())
}

fn save(checkpoint: &Checkpoint) -> anyhow::Result<Saved> {
    let folder = tempfile::tempdir()?;
    let warm = checkpoint.on_disk(folder.path(), AMPLE)?;
    let timeline = conversation(&warm)?;
    Ok(Saved { folder, timeline })
}

/// A turn, and the message after it. The ids are small, so that other models have them as well.
fn conversation(subject: &Subject) -> anyhow::Result<Vec<u32>> {
    let mut numbers = Numbers::new(3);
    let mut timeline = numbers.tokens(LENGTH, 60);
    timeline.extend(subject.ask(request(&timeline, 10))?.tokens);
    timeline.extend(numbers.tokens(9, 60));
    Ok(timeline)
}

/// Asks an engine for the next answer: it must be that of a cold one, and start from nothing for this reason.
fn misses(subject: &Subject, cold: &Subject, timeline: &[u32], reason: &str) -> Outcome {
    let answer = subject.ask(request(timeline, 20))?;
    let is_equal = answer.begins(&cold.ask(request(timeline, 20))?) && answer.tokens.len() == 20;
    let miss = answer.miss.as_deref().unwrap_or("none");
    let figure = format!(
        "miss {miss}, {} tokens reused, answer {}",
        answer.cached,
        if is_equal { "equal" } else { "differs" }
    );
    Ok((is_equal && answer.cached == 0 && miss == reason, figure))
}

fn damaged(checkpoint: &Checkpoint, reason: &str, damage: Damage) -> Outcome {
    let saved = save(checkpoint)?;
    damage(saved.folder.path())?;
    let engine = checkpoint.on_disk(saved.folder.path(), AMPLE)?;
    let (held, figure) = misses(&engine, &checkpoint.cold()?, &saved.timeline, reason)?;
    let quarantined = files_below(&saved.folder.path().join("quarantine"))?.len();
    Ok((held && quarantined > 0, format!("{figure}, {quarantined} files quarantined")))
}

/// States of another model, under this one's fingerprint: whoever copies folders about.
fn foreign(checkpoint: &Checkpoint, other: &Checkpoint) -> Outcome {
    let saved = save(other)?;
    let engine = checkpoint.on_disk(saved.folder.path(), AMPLE)?;
    let (held, figure) = misses(&engine, &checkpoint.cold()?, &saved.timeline, "corrupt")?;
    let quarantined = files_below(&saved.folder.path().join("quarantine"))?.len();
    Ok((held && quarantined > 0, format!("{figure}, {quarantined} files quarantined")))
}

fn changed(checkpoint: &Checkpoint, reason: &str, model: &str, template: &str) -> Outcome {
    let saved = save(checkpoint)?;
    let store = open_store(saved.folder.path())?;
    let disk = DiskOptions { store, fingerprints: fingerprints(model, template) };
    let engine = checkpoint.start(SessionOptions { memory_bytes: AMPLE, disk: Some(disk) })?;
    misses(&engine, &checkpoint.cold()?, &saved.timeline, reason)
}

/// A file is where the folder should be: also whoever may write everywhere cannot make it.
fn unusable(checkpoint: &Checkpoint) -> Outcome {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("file");
    fs::write(&file, "in the way")?;
    let error = open_store(&file.join("states")).err().context("the folder was opened")?;
    ensure!(matches!(error, StoreError::Folder { .. }), "another error: {error}");
    let engine = checkpoint.in_memory(AMPLE)?;
    let (held, figure) = goes_on(&engine, checkpoint)?;
    Ok((held, format!("typed error Folder; without it: {figure}")))
}

/// Writing fails from one moment to the next: a file takes the place of the folder in which new files are begun.
fn write_protected(checkpoint: &Checkpoint) -> Outcome {
    let folder = tempfile::tempdir()?;
    let store = open_store(folder.path())?;
    let disk = DiskOptions { store: store.clone(), fingerprints: fingerprints("model", "template") };
    let engine = checkpoint.start(SessionOptions { memory_bytes: AMPLE, disk: Some(disk) })?;
    let temporary = folder.path().join("tmp");
    fs::remove_dir(&temporary)?;
    fs::write(&temporary, "in the way")?;
    let (held, figure) = goes_on(&engine, checkpoint)?;
    // Waits for the saves.
    drop(engine);
    let saves = store.stats().saves;
    Ok((held && saves == 0, format!("{saves} saves, {figure}")))
}

fn shared(checkpoint: &Checkpoint) -> Outcome {
    let folder = tempfile::tempdir()?;
    let engine = checkpoint.on_disk(folder.path(), AMPLE)?;
    let error = open_store(folder.path()).err().context("the folder was opened twice")?;
    ensure!(matches!(error, StoreError::InUse { .. }), "another error: {error}");
    let (held, figure) = goes_on(&engine, checkpoint)?;
    Ok((held, format!("typed error InUse; the first engine: {figure}")))
}

/// Two turns: the second one goes on from the first, and its answer is that of a cold engine.
fn goes_on(engine: &Subject, checkpoint: &Checkpoint) -> Outcome {
    let timeline = conversation(engine)?;
    let answer = engine.ask(request(&timeline, 20))?;
    let is_equal = answer.begins(&checkpoint.cold()?.ask(request(&timeline, 20))?);
    let figure = format!(
        "{} of {} tokens reused, answer {}",
        answer.cached,
        timeline.len(),
        if is_equal { "equal" } else { "differs" }
    );
    Ok((is_equal && answer.cached >= LENGTH, figure))
}

fn flip_parts(folder: &Path) -> anyhow::Result<()> {
    change(&folder.join("blobs"), |bytes| flip(bytes))
}

fn flip_states(folder: &Path) -> anyhow::Result<()> {
    change(&folder.join("states"), |bytes| flip(bytes))
}

fn flip_heads(folder: &Path) -> anyhow::Result<()> {
    change(&folder.join("states"), |bytes| bytes.iter_mut().take(1).for_each(|byte| *byte ^= 1))
}

fn cut_parts(folder: &Path) -> anyhow::Result<()> {
    change(&folder.join("blobs"), |bytes| bytes.truncate(bytes.len() / 2))
}

fn cut_states(folder: &Path) -> anyhow::Result<()> {
    change(&folder.join("states"), |bytes| bytes.truncate(bytes.len() / 2))
}

fn replace_states(folder: &Path) -> anyhow::Result<()> {
    change(&folder.join("states"), |bytes| *bytes = b"no state at all\n".to_vec())
}

fn flip(bytes: &mut [u8]) {
    let middle = bytes.len() / 2;
    if let Some(byte) = bytes.get_mut(middle) {
        *byte ^= 1;
    }
}

fn change(folder: &Path, change: impl Fn(&mut Vec<u8>)) -> anyhow::Result<()> {
    let files = files_below(folder)?;
    ensure!(!files.is_empty(), "no files in {}", folder.display());
    for file in files {
        let mut bytes = fs::read(&file)?;
        change(&mut bytes);
        fs::write(&file, bytes)?;
    }
    Ok(())
}

fn files_below(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() { found.extend(files_below(&path)?) } else { found.push(path) }
    }
    Ok(found)
}
