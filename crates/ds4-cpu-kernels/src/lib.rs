//! SIMD kernels for the CPU: slices in, slices out
