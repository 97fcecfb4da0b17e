//! For tests only: tolerances, tiny models, a scripted engine, a server process

pub mod comparison;
pub mod fake_engine;
pub mod golden;
pub mod tolerance;
