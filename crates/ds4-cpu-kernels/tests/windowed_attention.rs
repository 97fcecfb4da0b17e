//! Attention over a window and entries, rope of neighbouring pairs, and the streams of manifold-constrained
//! hyper-connections: what the documentation says, in float64, and the law of rows.

mod support;

use std::ops::Range;

use ds4_cpu_kernels::*;
use ds4_dtype::Floats;
use proptest::prelude::*;
use support::*;

/// Error of softmax-weighted sums of values up to 1, and of Sinkhorn rounds, absolute.
const CHAIN: f64 = 2e-5;

/// Sums of columns right after they were divided by their sum, with eps beside it.
const COLUMN_SUM: f64 = 1e-4;

/// Checks that rows alone, in two parts and all together have the same bits on 1 to 3 threads.
fn obeys_the_law(rows: usize, width: usize, cut: usize, kernel: impl Fn(&Cpu, Range<usize>, &mut [f32])) {
    let run = |cpu: &Cpu, rows: Range<usize>| {
        bits(&filled(rows.len() * width, |out| {
            if !out.is_empty() {
                kernel(cpu, rows, out)
            }
        }))
    };
    for alone in all_isas(1) {
        let expected: Vec<u32> = (0..rows).flat_map(|row| run(&alone, row..row + 1)).collect();
        for threads in [1, 2, 3] {
            let Some(cpu) = Cpu::with_isa(alone.isa(), threads) else { continue };
            assert_eq!(run(&cpu, 0..rows), expected, "{:?}, {threads} threads", cpu.isa());
            let cut = cut % (rows + 1);
            assert_eq!([run(&cpu, 0..cut), run(&cpu, cut..rows)].concat(), expected, "cut at {cut}");
        }
    }
}

fn near(got: &[f32], want: &[f64], allowed: f64) {
    for (i, (got, want)) in got.iter().zip(want).enumerate() {
        assert!((f64::from(*got) - want).abs() <= allowed, "element {i}: {got} instead of {want}");
    }
}

/// A case of windowed attention with its memory.
struct Case {
    before: usize,
    heads: usize,
    d: usize,
    span: usize,
    rate: usize,
    per_row: usize,
    page_rows: usize,
    /// Tokens that were forgotten: whole pages before the first window.
    start: usize,
    q: Vec<f32>,
    sinks: Vec<f32>,
    keys: Vec<f32>,
    entries: Vec<f32>,
    ids: Vec<u32>,
}

const SCALE: f32 = 0.4;

impl Case {
    fn new(random: &mut Random, sizes: [usize; 8]) -> Self {
        let [tokens, before, heads, d, span, rate, per_row, page_rows] = sizes;
        let total = before + tokens;
        let start = (before + 1).saturating_sub(span) / page_rows * page_rows;
        let ids = (0..tokens).flat_map(|t| some_of(random, (before + t + 1) / rate, per_row)).collect();
        Self {
            before,
            heads,
            d,
            span,
            rate,
            per_row,
            page_rows,
            start,
            ids,
            q: random.scaled(tokens * heads * d, 2.0),
            sinks: random.scaled(heads, 3.0),
            keys: random.floats(total * d),
            entries: random.floats(total / rate * d),
        }
    }

    fn run(&self, cpu: &Cpu, rows: Range<usize>, kind: Kind, format: usize, out: &mut [f32]) {
        let pages = |x: &[f32]| -> Vec<Stored> {
            x.chunks(self.page_rows * self.d).map(|page| Stored::new(format, page)).collect()
        };
        let (window, entries) = (pages(&self.keys[self.start * self.d..]), pages(&self.entries));
        let window: Vec<Floats<'_>> = window.iter().map(Stored::floats).collect();
        let entries: Vec<Floats<'_>> = entries.iter().map(Stored::floats).collect();
        let ids = &self.ids[rows.start * self.per_row..rows.end * self.per_row];
        let selected = (kind == Kind::Selected).then_some(ids);
        let entries = Entries { pages: &entries, rate: self.rate, selected, per_row: self.per_row };
        let args = WindowedAttentionArgs {
            q: &self.q[rows.start * self.heads * self.d..rows.end * self.heads * self.d],
            window: &window,
            window_start: self.start,
            span: self.span,
            entries: (kind != Kind::Window).then_some(entries),
            page_rows: self.page_rows,
            first_position: self.before + rows.start,
            sinks: &self.sinks,
            heads: self.heads,
            d: self.d,
            scale: SCALE,
        };
        windowed_attention(cpu, &args, out);
    }

    /// The definition, for one query and head.
    fn expected(&self, query: usize, head: usize, kind: Kind) -> Vec<f64> {
        let end = self.before + query + 1;
        let row = |x: &[f32], i: usize| x[i * self.d..(i + 1) * self.d].to_vec();
        let mut seen: Vec<Vec<f32>> =
            (end.saturating_sub(self.span)..end).map(|position| row(&self.keys, position)).collect();
        match kind {
            Kind::Window => {}
            Kind::All => seen.extend((0..end / self.rate).map(|entry| row(&self.entries, entry))),
            Kind::Selected => {
                let ids = &self.ids[query * self.per_row..(query + 1) * self.per_row];
                seen.extend(
                    ids.iter().filter(|&&id| id != u32::MAX).map(|&id| row(&self.entries, id as usize)),
                );
            }
        }
        let q = &self.q[(query * self.heads + head) * self.d..][..self.d];
        let dot =
            |key: &[f32]| -> f64 { q.iter().zip(key).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum() };
        let weights: Vec<f64> = seen.iter().map(|key| (f64::from(SCALE) * dot(key)).exp()).collect();
        let total = weights.iter().sum::<f64>() + f64::from(self.sinks[head]).exp();
        let column =
            |c: usize| seen.iter().zip(&weights).map(|(key, w)| w * f64::from(key[c])).sum::<f64>() / total;
        (0..self.d).map(column).collect()
    }
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Kind {
    Window,
    All,
    Selected,
}

/// Up to `most` of `count` ids, ascending and padded.
fn some_of(random: &mut Random, count: usize, most: usize) -> Vec<u32> {
    let mut ids: Vec<u32> = (0..count as u32).collect();
    while ids.len() > most {
        ids.remove(random.below(ids.len()));
    }
    ids.resize(most, u32::MAX);
    ids
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn windows_and_entries(
        seed: u64, tokens in 1usize..40, before in 0usize..150, heads in 1usize..7, d in 1usize..50, span in 1usize..70,
        rate in 1usize..9, per_row in 1usize..30, page_rows in 1usize..50, format in 0usize..3, cut in 0usize..40,
    ) {
        let mut random = Random(seed);
        let case = Case::new(&mut random, [tokens, before, heads, d, span, rate, per_row, page_rows]);
        for kind in [Kind::Window, Kind::All, Kind::Selected] {
            obeys_the_law(tokens, heads * d, cut, |cpu, rows, out| case.run(cpu, rows, kind, format, out));
            for cpu in all_isas(2) {
                let out = filled(tokens * heads * d, |out| case.run(&cpu, 0..tokens, kind, 0, out));
                for (i, got) in out.chunks_exact(d).enumerate() {
                    near(got, &case.expected(i / heads, i % heads, kind), CHAIN);
                }
            }
        }
    }

    #[test]
    fn naming_every_entry_changes_no_bit(seed: u64, tokens in 1usize..20, before in 0usize..150, heads in 1usize..5, d in 1usize..30, rate in 1usize..5) {
        let mut random = Random(seed);
        let case = Case::new(&mut random, [tokens, before, heads, d, 16, rate, 200, 32]);
        for cpu in all_isas(1) {
            let run = |kind| bits(&filled(tokens * heads * d, |out| case.run(&cpu, 0..tokens, kind, 0, out)));
            prop_assert_eq!(run(Kind::All), run(Kind::Selected));
        }
    }

    #[test]
    fn pairs_are_rotated(seed: u64, tokens in 1usize..6, heads in 1usize..5, d in 2usize..60, cut in 0usize..6) {
        let mut random = Random(seed);
        let (width, r) = (heads * d, (d / 3).max(1) * 2);
        let x = random.floats(tokens * width);
        let angles: Vec<f32> = random.scaled(tokens * r / 2, 3.0);
        let (cos, sin): (Vec<f32>, Vec<f32>) = angles.iter().map(|a| (a.cos(), a.sin())).unzip();
        let rotate = |cpu: &Cpu, x: &[f32], rows: Range<usize>, turn: f32, out: &mut [f32]| {
            let rows = rows.start * r / 2..rows.end * r / 2;
            let sin: Vec<f32> = sin[rows.clone()].iter().map(|sin| sin * turn).collect();
            rope_pairs(cpu, x, &cos[rows], &sin, heads, d, r, out);
        };
        obeys_the_law(tokens, width, cut, |cpu, rows, out| {
            rotate(cpu, &x[rows.start * width..rows.end * width], rows, 1.0, out);
        });
        for cpu in all_isas(1) {
            let turned = filled(x.len(), |out| rotate(&cpu, &x, 0..tokens, 1.0, out));
            let mut want: Vec<f64> = x.iter().map(|x| f64::from(*x)).collect();
            for (i, head) in want.chunks_exact_mut(d).enumerate() {
                for pair in 0..r / 2 {
                    let (sin, cos) = f64::from(angles[i / heads * r / 2 + pair]).sin_cos();
                    let at = d - r + 2 * pair;
                    let (a, b) = (head[at], head[at + 1]);
                    (head[at], head[at + 1]) = (a * cos - b * sin, b * cos + a * sin);
                }
            }
            near(&turned, &want, 1e-6);
            let back = filled(x.len(), |out| rotate(&cpu, &turned, 0..tokens, -1.0, out));
            near(&back, &x.iter().map(|x| f64::from(*x)).collect::<Vec<_>>(), 1e-6);
        }
    }

    #[test]
    fn streams_are_read_mixed_and_written(seed: u64, rows in 1usize..6, s in 1usize..6, d in 1usize..70, iterations in 1usize..25, cut in 0usize..6) {
        let mut random = Random(seed);
        let width = (2 + s) * s;
        let (mixes, base, scale) = (random.scaled(rows * width, 4.0), random.floats(width), random.floats(3));
        let (x, y) = (random.floats(rows * s * d), random.floats(rows * d));
        let args = ManifoldArgs { scale: &scale, base: &base, streams: s, iterations, eps: 1e-6 };
        let part = |x: &[f32], rows: &Range<usize>, width: usize| x[rows.start * width..rows.end * width].to_vec();
        let coefficients = filled(rows * width, |out| manifold_coefficients(&Cpu::scalar(), &mixes, &args, out));
        obeys_the_law(rows, width, cut, |cpu, r, out| manifold_coefficients(cpu, &part(&mixes, &r, width), &args, out));
        obeys_the_law(rows, d, cut, |cpu, r, out| {
            stream_collapse(cpu, &part(&x, &r, s * d), &part(&coefficients, &r, width), width, s, d, out);
        });
        obeys_the_law(rows, s * d, cut, |cpu, r, out| {
            stream_expand(cpu, &part(&x, &r, s * d), &part(&y, &r, d), &part(&coefficients, &r, width), s, d, out);
        });
        for row in 0..rows {
            let c: Vec<f64> = coefficients[row * width..(row + 1) * width].iter().map(|c| f64::from(*c)).collect();
            let (post, comb) = (&c[s..2 * s], &c[2 * s..]);
            // The last division is by columns, so those are exact; rows get there with the rounds.
            for column in 0..s {
                let sum: f64 = (0..s).map(|j| comb[j * s + column]).sum();
                prop_assert!((sum - 1.0).abs() < COLUMN_SUM, "column {column} sums to {sum}");
            }
            let stream = |j: usize, i: usize| f64::from(x[(row * s + j) * d + i]);
            let read: Vec<f64> = (0..d).map(|i| (0..s).map(|j| c[j] * stream(j, i)).sum()).collect();
            let written: Vec<f64> = (0..s * d)
                .map(|at| {
                    let (k, i) = (at / d, at % d);
                    post[k] * f64::from(y[row * d + i]) + (0..s).map(|j| comb[j * s + k] * stream(j, i)).sum::<f64>()
                })
                .collect();
            for cpu in all_isas(2) {
                let out = filled(rows * d, |out| stream_collapse(&cpu, &x, &coefficients, width, s, d, out));
                near(&out[row * d..(row + 1) * d], &read, CHAIN);
                let out = filled(rows * s * d, |out| stream_expand(&cpu, &x, &y, &coefficients, s, d, out));
                near(&out[row * s * d..(row + 1) * s * d], &written, CHAIN);
            }
        }
    }
}
