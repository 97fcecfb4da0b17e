//! Reads the receipts: JSON lines, and named float32 rows of safetensors files.

use crate::golden::root;
use serde_json::Value;
use std::collections::HashMap;
use std::path::PathBuf;

fn path(name: &str) -> PathBuf {
    root().join("mtplx_receipts").join(name)
}

/// The records of a JSON lines file.
pub(crate) fn records(name: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(path(name)).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The float32 tensors of a safetensors file, flattened. Only what these files hold is read.
pub(crate) fn tensors(name: &str) -> HashMap<String, Vec<f32>> {
    let bytes = std::fs::read(path(name)).unwrap();
    let (length, rest) = bytes.split_at(8);
    let (header, data) = rest.split_at(u64::from_le_bytes(length.try_into().unwrap()) as usize);
    let header: HashMap<String, Value> = serde_json::from_slice(header).unwrap();
    header
        .into_iter()
        .filter(|(name, _)| name != "__metadata__")
        .map(|(name, entry)| {
            assert_eq!(entry["dtype"], "F32", "{name}");
            let offset = |i: usize| entry["data_offsets"][i].as_u64().unwrap() as usize;
            let floats = data[offset(0)..offset(1)].as_chunks::<4>().0;
            (name, floats.iter().map(|four| f32::from_le_bytes(*four)).collect())
        })
        .collect()
}

/// Short ways to read a record.
pub(crate) trait Fields {
    fn f64(&self, name: &str) -> f64;
    fn u64(&self, name: &str) -> u64;
    fn text(&self, name: &str) -> &str;
    fn list(&self, name: &str) -> &[Value];
    fn ids(&self, name: &str) -> Vec<u32>;
    fn f64s(&self, name: &str) -> Vec<f64>;
}

impl Fields for Value {
    fn f64(&self, name: &str) -> f64 {
        self[name].as_f64().unwrap_or_else(|| panic!("{name} is no number"))
    }
    fn u64(&self, name: &str) -> u64 {
        self[name].as_u64().unwrap_or_else(|| panic!("{name} is no whole number"))
    }
    fn text(&self, name: &str) -> &str {
        self[name].as_str().unwrap_or_else(|| panic!("{name} is no string"))
    }
    fn list(&self, name: &str) -> &[Value] {
        self[name].as_array().unwrap_or_else(|| panic!("{name} is no list"))
    }
    fn ids(&self, name: &str) -> Vec<u32> {
        self.list(name).iter().map(|id| id.as_u64().unwrap() as u32).collect()
    }
    fn f64s(&self, name: &str) -> Vec<f64> {
        self.list(name).iter().map(|number| number.as_f64().unwrap()).collect()
    }
}
