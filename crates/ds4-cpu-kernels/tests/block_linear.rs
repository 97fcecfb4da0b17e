//! Weights of small floats with block scales: every code's value, and products with the bits of a dense matrix of the values.

mod support;

use ds4_cpu_kernels::*;
use ds4_dtype::Floats;
use ds4_dtype::block_formats::small_floats::{E2M1, E4M3, E8M0};
use proptest::prelude::*;
use support::*;

/// A random matrix with its memory: `matrices` of `period` rows below one another.
struct Blocks {
    codes: BlockCodes,
    bytes: Vec<u8>,
    floats: Vec<f32>,
    scale_codes: Vec<u8>,
    kind: usize,
    block: [usize; 2],
    period: usize,
}

impl Blocks {
    /// `kind` 0 to 2: scales in float32, E8M0, E4M3.
    fn new(
        random: &mut Random,
        codes: BlockCodes,
        kind: usize,
        block: [usize; 2],
        rows: [usize; 2],
        k: usize,
    ) -> Self {
        let [matrices, period] = rows;
        let bits = if codes == BlockCodes::E4m3 { 8 } else { 4 };
        let count = matrices * period.div_ceil(block[0]) * k.div_ceil(block[1]);
        // Neither code of E4M3 that means NaN.
        let byte = |random: &mut Random| match random.below(256) as u8 {
            0x7f | 0xff if bits == 8 => 0x3c,
            byte => byte,
        };
        Self {
            codes,
            kind,
            block,
            period,
            bytes: (0..matrices * period * k * bits / 8).map(|_| byte(random)).collect(),
            floats: random.scaled(count, 0.02),
            scale_codes: (0..count).map(|_| 96 + random.below(32) as u8 % 31).collect(),
        }
    }

    fn matrix(&self) -> Matrix<'_> {
        let scales = match self.kind {
            0 => BlockScales::F32(&self.floats),
            1 => BlockScales::E8m0(&self.scale_codes),
            _ => BlockScales::E4m3(&self.scale_codes),
        };
        let [block_rows, block_columns] = self.block;
        let (codes, bytes, period) = (self.codes, &self.bytes, self.period);
        Matrix::Block(BlockMatrix { codes, bytes, scales, block_rows, block_columns, period, first: 0 })
    }

    fn value(&self, row: usize, column: usize, k: usize) -> f32 {
        let code = match self.codes {
            BlockCodes::E4m3 => E4M3[usize::from(self.bytes[row * k + column])],
            BlockCodes::E2m1 => {
                let byte = self.bytes[(row * k + column) / 2];
                E2M1[usize::from(if column.is_multiple_of(2) { byte & 15 } else { byte >> 4 })]
            }
        };
        let block_row =
            row / self.period * self.period.div_ceil(self.block[0]) + row % self.period / self.block[0];
        let at = block_row * k.div_ceil(self.block[1]) + column / self.block[1];
        let scale = match self.kind {
            0 => self.floats[at],
            1 => E8M0[usize::from(self.scale_codes[at])],
            _ => E4M3[usize::from(self.scale_codes[at])],
        };
        code * scale
    }
}

#[test]
fn every_code_is_decoded_on_every_instruction_set() {
    let codes: Vec<u8> = (0..=255).collect();
    for cpu in all_isas(1) {
        let decoded = |kind, k: usize| {
            let one = BlockScales::F32(&[1.0]);
            let matrix = BlockMatrix {
                codes: kind,
                bytes: &codes,
                scales: one,
                block_rows: 1,
                block_columns: k,
                period: 1,
                first: 0,
            };
            filled(k, |out| gather_rows(&cpu, Matrix::Block(matrix), &[0], k, out))
        };
        for (code, (got, want)) in decoded(BlockCodes::E4m3, 256).iter().zip(&E4M3).enumerate() {
            assert!(
                got.to_bits() == want.to_bits() || (got.is_nan() && want.is_nan()),
                "E4M3 {code}: {got}, {want}"
            );
        }
        let pairs: Vec<f32> =
            codes.iter().flat_map(|c| [E2M1[usize::from(c & 15)], E2M1[usize::from(c >> 4)]]).collect();
        assert_eq!(bits(&decoded(BlockCodes::E2m1, 512)), bits(&pairs));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn products_have_the_bits_of_a_dense_matrix(
        seed: u64, packed: bool, kind in 0usize..3, matrices in 1usize..4, period in 1usize..40, k in 1usize..500, m in 1usize..9, block in 0usize..4,
    ) {
        let mut random = Random(seed);
        let (codes, k) = if packed { (BlockCodes::E2m1, k.next_multiple_of(16)) } else { (BlockCodes::E4m3, k) };
        let block = [[1, 16], [1, 32], [16, 16], [128, 128]][block];
        let blocks = Blocks::new(&mut random, codes, kind, block, [matrices, period], k);
        let n = matrices * period;
        prop_assert!(blocks.matrix().is_valid(n, k));
        let values: Vec<f32> = (0..n * k).map(|i| blocks.value(i / k, i % k, k)).collect();
        let x = random.floats(m * k);
        for cpu in all_isas(2) {
            let ids: Vec<u32> = (0..n as u32).collect();
            prop_assert_eq!(bits(&filled(n * k, |out| gather_rows(&cpu, blocks.matrix(), &ids, k, out))), bits(&values));
            let dense = Matrix::Dense(Floats::F32(&values));
            let expected = filled(m * n, |out| linear(&cpu, &x, dense, m, n, k, out));
            let got = filled(m * n, |out| linear(&cpu, &x, blocks.matrix(), m, n, k, out));
            prop_assert_eq!(bits(&got), bits(&expected));
            // One row alone takes another path with the same bits, and so does a part of the matrix.
            let alone = filled(n, |out| linear(&cpu, &x[..k], blocks.matrix(), 1, n, k, out));
            prop_assert_eq!(bits(&alone), bits(&expected[..n]));
            let last = blocks.matrix().rows(n - period, period, k);
            let part = filled(period, |out| linear(&cpu, &x[..k], last, 1, period, k, out));
            prop_assert_eq!(bits(&part), bits(&expected[n - period..n]));
        }
    }
}
