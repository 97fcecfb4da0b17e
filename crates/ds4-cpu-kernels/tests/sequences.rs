//! The law of sequences: what a kernel makes of a sequence, and the state that it leaves, does not depend on the other sequences
//! of the call.

mod support;

use std::ops::Range;

use ds4_cpu_kernels::*;
use proptest::prelude::*;
use support::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn sequences_of_a_batch(
        seed: u64, tokens in prop::collection::vec((0usize..6, any::<bool>()), 1..5), heads in 1usize..4, dk in 1usize..40,
        dv in 1usize..70, kernel in 1usize..5, threads in 1usize..4,
    ) {
        let mut random = Random(seed);
        let batch = Batch::new(&mut random, &tokens, heads, dk, dv, kernel);
        all_isas(threads).iter().for_each(|cpu| batch.check(cpu));
    }
}

/// States too large for the cache are written past it, which must not show: not to the thread that reads them next either.
#[test]
fn large_states_of_a_batch() {
    let tokens = [(4, true), (1, true), (0, true), (7, true), (3, false), (64, true)];
    let batch = Batch::new(&mut Random(5), &tokens, 8, 128, 136, 4);
    for threads in [1, 2, 3] {
        all_isas(threads).iter().for_each(|cpu| batch.check(cpu));
    }
}

#[test]
#[should_panic(expected = "the tokens of a sequence")]
#[allow(clippy::reversed_empty_ranges)] // what must be refused
fn tokens_that_run_backwards_are_refused() {
    let x = [0.0; 2];
    let args =
        GatedDeltaArgs { q: &x, k: &x, v: &x, g: &x, beta: &x, key_heads: 1, value_heads: 1, dk: 1, dv: 1 };
    let mut states = [[0.0; 1]; 4];
    let ranges = [0..2, 2..0, 0..2, 2..2];
    let mut sequences: Vec<_> = ranges
        .into_iter()
        .zip(&mut states)
        .map(|(range, state)| DeltaSequence::new(range, None, state))
        .collect();
    gated_delta(&Cpu::scalar(), &args, &mut sequences, &mut [0.0; 2]);
}

/// `range` of rows of `width`.
fn part(x: &[f32], range: &Range<usize>, width: usize) -> Vec<f32> {
    x[range.start * width..range.end * width].to_vec()
}

/// Sequences with states of their own, for the kernels that take several at once.
struct Batch {
    heads: usize,
    dk: usize,
    dv: usize,
    kernel: usize,
    /// Of each sequence, its tokens and whether its states come from another place.
    tokens: Vec<(Range<usize>, bool)>,
    /// Queries and keys, and decays of a head or of a channel; values, corrections and inputs of a convolution.
    keys: [Vec<f32>; 3],
    values: Vec<f32>,
    beta: Vec<f32>,
    weight: Vec<f32>,
    states: Vec<Vec<f32>>,
    histories: Vec<Vec<f32>>,
}

impl Batch {
    fn new(
        random: &mut Random,
        tokens: &[(usize, bool)],
        heads: usize,
        dk: usize,
        dv: usize,
        kernel: usize,
    ) -> Self {
        let mut end = 0;
        let ranges = tokens.iter().map(|&(count, elsewhere)| {
            end += count;
            (end - count..end, elsewhere)
        });
        let tokens: Vec<_> = ranges.collect();
        let keys = [1.0, 1.0, 0.3].map(|scale| random.scaled(end * heads * dk, 0.3 * scale));
        Self {
            heads,
            dk,
            dv,
            kernel,
            keys: [keys[0].clone(), keys[1].clone(), keys[2].iter().map(|g| -g.abs()).collect()],
            values: random.floats(end * heads * dv),
            beta: random.floats(end * heads),
            weight: random.floats(kernel * heads * dv),
            states: tokens.iter().map(|_| random.floats(heads * dk * dv)).collect(),
            histories: tokens.iter().map(|_| random.floats((kernel - 1) * heads * dv)).collect(),
            tokens,
        }
    }

    /// Compares the sequences together with each of them alone.
    fn check(&self, cpu: &Cpu) {
        let count = self.tokens.len();
        let (together, next) = self.run(cpu, 0..count);
        let alone: Vec<_> = (0..count).map(|i| self.run(cpu, i..i + 1)).collect();
        for (i, outputs) in together.iter().enumerate() {
            let parts: Vec<f32> = alone.iter().flat_map(|(outputs, _)| outputs[i].clone()).collect();
            assert!(bits(outputs) == bits(&parts), "output {i}, {:?}", cpu.isa());
        }
        assert!(next == alone.into_iter().flat_map(|(_, next)| next).collect::<Vec<_>>(), "{:?}", cpu.isa());
    }

    /// What both delta rules and the convolution make of some of the sequences, and the bits of what these go on from.
    fn run(&self, cpu: &Cpu, some: Range<usize>) -> ([Vec<f32>; 3], Vec<[Vec<u32>; 3]>) {
        let Self { heads, dk, dv, kernel, .. } = *self;
        let sequences = &self.tokens[some.clone()];
        let tokens = sequences[0].0.start..sequences[sequences.len() - 1].0.end;
        let [q, k, g] = self.keys.each_ref().map(|x| part(x, &tokens, heads * dk));
        let (v, beta) = (part(&self.values, &tokens, heads * dv), part(&self.beta, &tokens, heads));
        let a_head = part(&self.keys[2], &tokens, heads);
        let gated = GatedDeltaArgs {
            q: &q,
            k: &k,
            v: &v,
            g: &a_head,
            beta: &beta,
            key_heads: heads,
            value_heads: heads,
            dk,
            dv,
        };
        let kimi = KimiDeltaArgs { q: &q, k: &k, v: &v, g: &g, beta: &beta, heads, dk, dv };
        let conv = CausalConv1dArgs {
            x: &v,
            weight: &self.weight,
            channels: heads * dv,
            kernel,
            dilation: 1,
            silu: true,
        };
        let of = |range: &Range<usize>| range.start - tokens.start..range.end - tokens.start;

        let before = &self.states[some.clone()];
        let recur = |rule: &dyn Fn(&mut [DeltaSequence<'_>], &mut [f32])| {
            let mut states = before.to_vec();
            let each =
                sequences.iter().zip(before).zip(&mut states).map(|(((range, elsewhere), before), state)| {
                    if *elsewhere {
                        state.fill(f32::NAN);
                    }
                    DeltaSequence::new(of(range), elsewhere.then_some(before), state)
                });
            let mut each: Vec<_> = each.collect();
            let out = filled(v.len(), |out| rule(&mut each, out));
            drop(each);
            (out, states)
        };
        let (gated_out, gated_next) = recur(&|each, out| gated_delta(cpu, &gated, each, out));
        let (kimi_out, kimi_next) = recur(&|each, out| kimi_delta(cpu, &kimi, each, out));
        let histories = &self.histories[some];
        let mut next = histories.to_vec();
        let each = sequences.iter().zip(histories).zip(&mut next);
        let mut each: Vec<_> =
            each.map(|(((range, _), history), next)| ConvSequence::new(of(range), history, next)).collect();
        let conv_out = filled(v.len(), |out| causal_conv1d(cpu, &conv, &mut each, out));
        drop(each);
        let next = gated_next.iter().zip(&kimi_next).zip(&next);
        let next = next.map(|((gated, kimi), conv)| [bits(gated), bits(kimi), bits(conv)]).collect();
        ([gated_out, kimi_out, conv_out], next)
    }
}
