//! Depthwise causal convolution of one token's channels.

use std::arch::x86_64::*;

use super::exp::silu;
use super::lanes::{LANES, load_some, store_some};
use crate::CausalConv1dArgs;
use crate::ops::Channels;

/// Taps of the usual kernels, whose input rows are looked up once a token.
const FEW: usize = 8;

/// `out` = token `t` of the convolution, for some channels.
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn token(args: &CausalConv1dArgs<'_>, channels: &Channels, t: usize, out: &mut [f32]) {
    let width = out.len();
    out.fill(0.0);
    for first in (0..args.kernel).step_by(FEW) {
        let count = FEW.min(args.kernel - first);
        let last = first + count == args.kernel;
        let mut rows = [[].as_slice(); FEW];
        for (j, row) in rows[..count].iter_mut().enumerate() {
            *row = args.input(t, first + j, channels);
        }
        for (i, out) in out.chunks_mut(LANES).enumerate() {
            let at = i * LANES..i * LANES + out.len();
            let mut acc = load_some(out);
            for (j, row) in rows[..count].iter().enumerate() {
                let weights = &channels.taps[(first + j) * width..][at.clone()];
                acc = _mm256_fmadd_ps(load_some(weights), load_some(&row[at.clone()]), acc);
            }
            store_some(if last && args.silu { silu(acc) } else { acc }, out);
        }
    }
}
