//! The model families, one file each, and their registry
