//! Between the storage formats and float32.

use std::arch::x86_64::*;

use bytemuck::must_cast;
use ds4_dtype::{Floats, bf16, f16};

use super::lanes::{LANES, load, store, widen_bf16, widen_f16};

/// `out` = `x`, exactly.
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn widen(x: Floats<'_>, out: &mut [f32]) {
    let (chunks, tail) = out.as_chunks_mut::<LANES>();
    match x {
        Floats::F32(x) => return out.copy_from_slice(x),
        Floats::F16(x) => {
            for (out, x) in chunks.iter_mut().zip(x.as_chunks().0) {
                store(widen_f16(x), out);
            }
        }
        Floats::Bf16(x) => {
            for (out, x) in chunks.iter_mut().zip(x.as_chunks().0) {
                store(widen_bf16(x), out);
            }
        }
    }
    let done = LANES * chunks.len();
    tail.iter_mut().enumerate().for_each(|(i, out)| *out = x.get(done + i));
}

/// Nearest, ties to even.
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn to_f16(x: &[f32], out: &mut [f16]) {
    let ((x, x_tail), (out, out_tail)) = (x.as_chunks::<LANES>(), out.as_chunks_mut::<LANES>());
    for (out, x) in out.iter_mut().zip(x) {
        *out = must_cast(_mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(load(x)));
    }
    crate::scalar::convert::to_f16(x_tail, out_tail);
}

/// Nearest, ties to even. NaN keeps its sign and the upper half of its payload, made quiet.
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn to_bf16(x: &[f32], out: &mut [bf16]) {
    let ((x, x_tail), (out, out_tail)) = (x.as_chunks::<LANES>(), out.as_chunks_mut::<LANES>());
    for (out, x) in out.iter_mut().zip(x) {
        let x = load(x);
        let bits = _mm256_castps_si256(x);
        // Adding just under half of the dropped range, or half if the kept part is odd, carries when it should.
        let odd = _mm256_and_si256(_mm256_srli_epi32::<16>(bits), _mm256_set1_epi32(1));
        let rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
        let nan = _mm256_castps_si256(_mm256_cmp_ps::<_CMP_UNORD_Q>(x, x));
        let quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x40_0000));
        let upper = _mm256_srli_epi32::<16>(_mm256_blendv_epi8(rounded, quiet, nan));
        *out =
            must_cast(_mm_packus_epi32(_mm256_castsi256_si128(upper), _mm256_extracti128_si256::<1>(upper)));
    }
    crate::scalar::convert::to_bf16(x_tail, out_tail);
}
