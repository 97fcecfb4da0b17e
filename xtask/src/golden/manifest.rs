//! `MANIFEST.json` of one golden folder.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Context;
use sha2::{Digest, Sha256};

const NAME: &str = "MANIFEST.json";

#[derive(serde::Deserialize)]
pub(super) struct Manifest {
    /// What made the files: a script in this repository, or the name of one elsewhere.
    pub(super) script: String,
    /// Files outside the folder that the vectors were computed from, relative to the workspace, with checksums.
    #[serde(default)]
    inputs: BTreeMap<String, String>,
    /// The files of the folder with their SHA-256.
    pub(super) files: BTreeMap<String, String>,
}

impl Manifest {
    pub(super) fn load(folder: &Path) -> anyhow::Result<Self> {
        let path = folder.join(NAME);
        let text = std::fs::read_to_string(&path).with_context(|| {
            format!("cannot read {}; write it with golden/scripts/manifest.py", path.display())
        })?;
        serde_json::from_str(&text).with_context(|| format!("{} is no manifest", path.display()))
    }

    /// What is missing, changed or unlisted, one sentence each.
    pub(super) fn check(&self, folder: &Path, root: &Path) -> anyhow::Result<Vec<String>> {
        let listed = self.files.iter().map(|(name, sum)| (folder.join(name), sum));
        let inputs = self.inputs.iter().map(|(name, sum)| (root.join(name), sum));
        let mut problems = Vec::new();
        for (path, sum) in listed.chain(inputs) {
            match std::fs::read(&path) {
                Err(error) => problems.push(format!("{} cannot be read: {error}", path.display())),
                Ok(bytes) if checksum(&bytes) != *sum => {
                    problems.push(format!("{} is not the file that was recorded", path.display()));
                }
                Ok(_) => {}
            }
        }
        for path in files_below(folder)? {
            let name = path.strip_prefix(folder)?.to_string_lossy().replace('\\', "/");
            if name != NAME && !self.files.contains_key(&name) {
                problems.push(format!("{} is in no manifest", path.display()));
            }
        }
        Ok(problems)
    }

    /// The script as a path, when it belongs to the makers in `golden/scripts`, which all take the output folder.
    pub(super) fn regenerating_script(&self, root: &Path) -> Option<PathBuf> {
        let path = root.join(&self.script);
        (self.script.starts_with("golden/scripts/") && path.is_file()).then_some(path)
    }
}

fn checksum(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn files_below(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))? {
        let path = entry?.path();
        if path.is_dir() { files.extend(files_below(&path)?) } else { files.push(path) }
    }
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder of its own per test, below the build folder.
    fn folder(name: &str) -> PathBuf {
        let folder = crate::tree::target().join("xtask-tests").join(name);
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }

    fn manifest(files: &[(&str, &[u8])]) -> Manifest {
        let files = files.iter().map(|(n, bytes)| ((*n).to_owned(), checksum(bytes))).collect();
        Manifest { script: String::new(), inputs: BTreeMap::new(), files }
    }

    #[test]
    fn changed_missing_and_unlisted_files_are_found() {
        let folder = folder("manifest");
        std::fs::write(folder.join("same"), b"1").unwrap();
        std::fs::write(folder.join("changed"), b"2").unwrap();
        std::fs::write(folder.join("unlisted"), b"3").unwrap();
        let problems = manifest(&[("same", b"1"), ("changed", b"other"), ("missing", b"4")])
            .check(&folder, Path::new(""))
            .unwrap();
        assert_eq!(problems.len(), 3, "{problems:?}");
        assert!(problems[0].contains("changed is not the file"), "{problems:?}");
        assert!(problems[1].contains("missing cannot be read"), "{problems:?}");
        assert!(problems[2].contains("unlisted is in no manifest"), "{problems:?}");
    }

    #[test]
    fn the_checksum_is_sha_256() {
        assert_eq!(checksum(b"abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }
}
