//! Our affine encoding against MLX's, bit for bit. The recorded values and their script are in `golden/affine`.
#![allow(clippy::unwrap_used, reason = "a helper of a test fails by panicking, as the test does")]

use std::path::Path;

use ds4_dtype::{AffineLayout, DType, Floats, bf16, f16};
use ds4_weights::{Checkpoint, Tensor};

/// `value` rounded to `dtype`.
fn rounded(value: f32, dtype: DType) -> f32 {
    match dtype {
        DType::BF16 => bf16::from_f32(value).to_f32(),
        DType::F16 => f16::from_f32(value).to_f32(),
        _ => value,
    }
}

fn bits(values: impl IntoIterator<Item = f32>) -> Vec<u32> {
    values.into_iter().map(f32::to_bits).collect()
}

fn stored(tensor: &Tensor) -> Floats<'_> {
    tensor.floats().unwrap()
}

#[test]
fn encoding_and_decoding_equal_mlx() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden/affine/affine.safetensors");
    let golden = Checkpoint::load_file(&path).unwrap();
    let mut cases = 0;
    for dtype in ["f32", "bf16", "f16"] {
        for layout in
            AffineLayout::BITS.iter().flat_map(|&bits| AffineLayout::GROUPS.map(|group| (bits, group)))
        {
            let case = format!("{dtype}_{}_{}", layout.0, layout.1);
            let layout = AffineLayout::new(layout.0, layout.1).unwrap();
            let part = |name: &str| golden.require(&format!("{case}.{name}")).unwrap();
            let (weights, scales, biases) =
                (stored(part("w")), stored(part("scales")), stored(part("biases")));
            let dtype = weights.dtype();

            let encoded = layout.encode_row(&weights.to_f32()).unwrap();
            assert_eq!(encoded.packed, part("weight").u32s().unwrap(), "{case}: packed");
            let store = |values: &[f32]| bits(values.iter().map(|&v| rounded(v, dtype)));
            assert_eq!(store(&encoded.scales), bits(scales.to_f32()), "{case}: scales");
            assert_eq!(store(&encoded.biases), bits(biases.to_f32()), "{case}: biases");

            let mut decoded = vec![0.0; weights.len()];
            layout.decode_row(&encoded.packed, scales, biases, &mut decoded).unwrap();
            if dtype == DType::F32 {
                assert_eq!(bits(decoded), bits(stored(part("restored")).to_f32()), "{case}: restored");
            } else {
                // MLX rounds the product and the sum to the stored type.
                let as_mlx = (0..weights.len()).map(|i| {
                    let (g, q) = (i / layout.group(), layout.quantised(&encoded.packed, i) as f32);
                    rounded(rounded(scales.get(g) * q, dtype) + biases.get(g), dtype)
                });
                assert_eq!(bits(as_mlx), bits(stored(part("restored")).to_f32()), "{case}: restored");
            }
            cases += 1;
        }
    }
    assert_eq!(cases, 18);
}
