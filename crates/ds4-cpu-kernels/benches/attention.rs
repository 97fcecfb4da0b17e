//! Attention at the shapes of model layers, with a bfloat16 cache. Bytes are those of the keys and values a decoding
//! query reads; items are floating-point operations.

#[path = "../tests/support/mod.rs"]
mod support;

use divan::Bencher;
use divan::counter::{BytesCount, ItemsCount};
use ds4_cpu_kernels::{AttentionArgs, BlockSelection, Cpu, IndexSelectArgs, attention, index_select};
use ds4_dtype::Floats;
use support::{Random, Stored};

/// `mid`: 16 query heads and 2 key heads of 128; pages of 256 tokens.
const HEADS: usize = 16;
const KV_HEADS: usize = 2;
const D: usize = 128;
const PAGE: usize = 256;

fn main() {
    divan::main();
}

fn pages(random: &mut Random, context: usize, width: usize) -> Vec<Stored> {
    (0..context / PAGE).map(|_| Stored::new(2, &random.floats(PAGE * width))).collect()
}

fn run(bencher: Bencher<'_, '_>, context: usize, tokens: usize, selected: Option<usize>) {
    let mut random = Random(1);
    let (keys, values) =
        (pages(&mut random, context, KV_HEADS * D), pages(&mut random, context, KV_HEADS * D));
    let keys: Vec<Floats<'_>> = keys.iter().map(Stored::floats).collect();
    let values: Vec<Floats<'_>> = values.iter().map(Stored::floats).collect();
    let q = random.floats(tokens * HEADS * D);
    let block = 64;
    let ids: Vec<u32> = (0..tokens).flat_map(|_| (0..selected.unwrap_or(0) as u32).map(|i| 2 * i)).collect();
    let selection = selected.map(|per_row| BlockSelection { block, per_row, ids: &ids });
    let args = AttentionArgs {
        q: &q,
        keys: &keys,
        values: &values,
        page_rows: PAGE,
        first_position: context - tokens,
        kv_heads: KV_HEADS,
        heads: HEADS,
        d: D,
        dv: D,
        scale: 0.1,
        selection,
    };
    let mut out = vec![0.0; q.len()];
    let cpu = Cpu::new(2);
    let seen = selected.map_or(context, |blocks| blocks * block);
    let bencher = if tokens == 1 {
        bencher.counter(BytesCount::new(2 * seen * KV_HEADS * D * 2))
    } else {
        bencher.counter(ItemsCount::new(4 * HEADS * D * (tokens * (context - tokens) + tokens * tokens / 2)))
    };
    bencher.bench_local(|| attention(&cpu, &args, &mut out));
}

#[divan::bench(args = [512, 4096, 32768], sample_count = 20)]
fn mid_decode(bencher: Bencher<'_, '_>, context: usize) {
    run(bencher, context, 1, None);
}

#[divan::bench(args = [8192, 65536], sample_count = 20)]
fn mid_decode_32_blocks(bencher: Bencher<'_, '_>, context: usize) {
    run(bencher, context, 1, Some(32));
}

#[divan::bench(args = [512, 4096], sample_count = 10)]
fn mid_prefill_512(bencher: Bencher<'_, '_>, context: usize) {
    run(bencher, context, 512, None);
}

/// `qwen4_exp:mid` after a long prompt: 8 heads, 512 blocks of 4 tokens anywhere; caches of several layers, which do not stay in
/// the cache.
#[divan::bench(args = [16384], sample_count = 100)]
fn mid_decode_512_small_blocks(bencher: Bencher<'_, '_>, context: usize) {
    const HEADS: usize = 8;
    let mut random = Random(1);
    let layers: Vec<_> =
        (0..8).map(|_| [(); 2].map(|()| pages(&mut random, context, KV_HEADS * D))).collect();
    let layers: Vec<[Vec<Floats<'_>>; 2]> = layers
        .iter()
        .map(|layer| layer.each_ref().map(|part| part.iter().map(Stored::floats).collect()))
        .collect();
    let q = random.floats(HEADS * D);
    let mut some_blocks = || {
        let mut ids: Vec<u32> = (0..context as u32 / 4).collect();
        for i in 0..ids.len() {
            let other = random.below(ids.len());
            ids.swap(i, other);
        }
        ids.truncate(512);
        ids.sort_unstable();
        ids
    };
    let ids: Vec<Vec<u32>> = (0..9).map(|_| some_blocks()).collect();
    let mut out = vec![0.0; q.len()];
    let cpu = Cpu::new(2);
    let mut next = 0;
    bencher.counter(BytesCount::new(2 * 2048 * KV_HEADS * D * 2)).bench_local(|| {
        next += 1;
        let ([keys, values], ids) = (&layers[next % layers.len()], &ids[next % ids.len()]);
        let args = AttentionArgs {
            q: &q,
            keys,
            values,
            page_rows: PAGE,
            first_position: context - 1,
            kv_heads: KV_HEADS,
            heads: HEADS,
            d: D,
            dv: D,
            scale: 0.1,
            selection: Some(BlockSelection { block: 4, per_row: 512, ids }),
        };
        attention(&cpu, &args, &mut out);
    });
}

/// 4 indexer heads of 128 over blocks of 64 tokens.
#[divan::bench(args = [8192, 131_072], sample_count = 20)]
fn mid_indexer_decode(bencher: Bencher<'_, '_>, context: usize) {
    let mut random = Random(1);
    let blocks = context / 64;
    let keys = Stored::new(2, &random.floats(blocks * D));
    let q = random.floats(4 * D);
    let args = IndexSelectArgs {
        q: &q,
        weights: None,
        keys: &[keys.floats()],
        page_rows: blocks,
        first_position: context - 1,
        block: 64,
        top: 32,
        heads: 4,
        d: D,
        scale: 0.1,
    };
    let mut out = vec![0; 32];
    let cpu = Cpu::new(2);
    bencher.counter(BytesCount::new(blocks * D * 2)).bench_local(|| index_select(&cpu, &args, &mut out));
}
