//! Number formats: bits to f32 and back, the truth for every backend
