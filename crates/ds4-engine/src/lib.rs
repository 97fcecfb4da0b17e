//! The engine loop: turns requests into tokens
