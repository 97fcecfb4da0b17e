//! Random streams, samplers and speculative acceptance: pure functions on host logits
