//! For tests only: tolerances, tiny models, a scripted engine, a server process

pub mod chi_square;
pub mod comparison;
pub mod fake_engine;
pub mod golden;
pub mod receipts;
pub mod table_model;
pub mod tolerance;
