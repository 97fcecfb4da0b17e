//! Where the engine keeps conversations: opens the folder that the user chose, and says what its states depend on.

use std::path::Path;
use std::sync::Arc;

use ds4_array::{DType, Device};
use ds4_engine::{DiskOptions, SessionOptions};
use ds4_session_store::{Fingerprint, Fingerprints, Store, StoreError, StoreOptions, WhenLocked};
use ds4_weights::{Checkpoint, ModelFiles};

use crate::flags::SessionSettings;
use crate::output;

/// Bytes of the disk that stay free for others, unless the budget is smaller than that: then as much as the budget.
const FREE_FLOOR: u64 = 10 << 30;
/// Bytes at the start, in the middle and at the end of a tensor that tell it from another one.
const SAMPLE_BYTES: usize = 64;

/// What the engine is to keep. A folder that cannot be used is a warning: answers do not depend on it.
pub(crate) fn options(
    settings: &SessionSettings,
    key_value_dtype: DType,
    files: &ModelFiles,
    device: &Device,
    quiet: bool,
) -> anyhow::Result<SessionOptions> {
    let memory_bytes = settings.memory_bytes;
    let Some((folder, bytes)) = &settings.disk else {
        return Ok(SessionOptions { memory_bytes, disk: None });
    };
    let free_floor = FREE_FLOOR.min(*bytes);
    let options = StoreOptions { bytes: *bytes, free_floor, ..StoreOptions::default() };
    let disk = match Store::open(folder, options) {
        Ok(store) => {
            if let Some(warning) =
                store.free_bytes().ok().and_then(|free| low_disk(free, free_floor)).filter(|_| !quiet)
            {
                output::stderr(&format!("warning: {warning}\n"));
            }
            let fingerprints = fingerprints(key_value_dtype, files, device)?;
            Some(DiskOptions { store: Arc::new(store), fingerprints })
        }
        Err(error) => {
            if !quiet {
                output::stderr(&format!("warning: {error}; sessions will not outlive this run\n"));
            }
            None
        }
    };
    Ok(SessionOptions { memory_bytes, disk })
}

/// What to say if so little of the disk is free that states are not saved, or only in place of older ones.
fn low_disk(free: u64, floor: u64) -> Option<String> {
    let gib = |bytes: u64| format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30));
    let warning = || {
        format!(
            "the disk of the sessions has {} free, and {} are left to others: this run's sessions may not outlive it; free \
             some space, or lower `--session-disk`",
            gib(free),
            gib(floor)
        )
    };
    (free < floor).then(warning)
}

fn fingerprints(key_value_dtype: DType, files: &ModelFiles, device: &Device) -> anyhow::Result<Fingerprints> {
    let kernels = device.kernels();
    let computed = format!("{} {:?} {:?}", key_value_dtype.name(), kernels.isa(), kernels.activations());
    let text = ["tokenizer.json", "chat_template.jinja", "tokenizer_config.json"];
    Ok(Fingerprints {
        model: Fingerprint::of(&model_bytes(files)?),
        template: Fingerprint::of(&contents(files, &text)?),
        settings: Fingerprint::of(computed.as_bytes()),
    })
}

/// The configuration, and of every tensor what it is and a few of its bytes: reading all of a large model would take longer
/// than what is saved by it.
fn model_bytes(files: &ModelFiles) -> anyhow::Result<Vec<u8>> {
    let mut bytes = contents(files, &["config.json"])?;
    for tensor in Checkpoint::load(files)?.tensors() {
        bytes.extend(format!("\0{} {} {:?}\0", tensor.name, tensor.dtype.name(), tensor.shape).bytes());
        let data = tensor.bytes.as_ref();
        let length = data.len().min(SAMPLE_BYTES);
        for start in [0, (data.len() - length) / 2, data.len() - length] {
            bytes.extend(&data[start..start + length]);
        }
    }
    Ok(bytes)
}

/// The files one after the other, each with its length before it.
fn contents(files: &ModelFiles, names: &[&str]) -> anyhow::Result<Vec<u8>> {
    let mut all = Vec::new();
    for name in names {
        let bytes = files.read(name)?.unwrap_or_default();
        all.extend((bytes.len() as u64).to_le_bytes());
        all.extend(bytes);
    }
    Ok(all)
}

/// Opens a folder from outside of a server. Nothing in it makes room for anything.
pub(crate) fn open_to_manage(folder: &Path, when_locked: WhenLocked) -> Result<Store, StoreError> {
    Store::open(
        folder,
        StoreOptions { bytes: u64::MAX, free_floor: 0, when_locked, ..StoreOptions::default() },
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::Demo;

    fn of(key_value_dtype: DType) -> Fingerprints {
        fingerprints(key_value_dtype, &Demo::Qwen.files(), &Device::cpu(1)).unwrap()
    }

    #[test]
    fn a_disk_below_its_floor_is_a_warning() {
        assert_eq!(low_disk(10 << 30, 10 << 30), None);
        let warning = low_disk(17 << 29, 10 << 30).unwrap();
        assert!(warning.contains("has 8.5 GiB free, and 10.0 GiB are left"), "{warning}");
    }

    #[test]
    fn the_cache_type_is_a_setting() {
        let (exact, half) = (of(DType::F32), of(DType::F16));
        assert_eq!(exact, of(DType::F32));
        assert_eq!((exact.model, exact.template), (half.model, half.template));
        assert_ne!(exact.settings, half.settings);
    }
}
