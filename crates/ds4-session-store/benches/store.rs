//! What a turn waits for: finding a prefix among many, loading a state. And what runs beside it: saving.
//!
//! The state is that of a 32k-token session of a small model: 128 pages of 256 rows in each of 6 caches, each 32 KiB, and
//! 4 MiB that change with every turn. The disk is the one of the system's temporary folder.

use std::sync::Arc;

use divan::Bencher;
use divan::counter::BytesCount;
use ds4_session_store::{
    Fingerprint, Fingerprints, PartRef, PrefixIndex, StateId, StateToSave, Store, StoreOptions,
};

const PAGES: usize = 128;
const CACHES: usize = 6;
const PAGE_BYTES: usize = 32 << 10;
const OWN_BYTES: usize = 4 << 20;
const TOKENS: usize = PAGES * 256;

fn main() {
    divan::main();
}

fn fingerprints() -> Fingerprints {
    let same = Fingerprint::of(b"bench");
    Fingerprints { model: same, template: same, settings: same }
}

struct Setup {
    store: Store,
    /// Name, group, bytes.
    parts: Vec<(String, Option<u64>, Vec<u8>)>,
    tokens: Vec<u32>,
    _dir: tempfile::TempDir,
}

impl Setup {
    fn new() -> Self {
        let dir = tempfile::TempDir::new().expect("a temporary folder");
        let options = StoreOptions { free_floor: 0, hourly_writes: u64::MAX, ..StoreOptions::default() };
        let store = Store::open(dir.path(), options).expect("an empty store");
        let mut parts = vec![("state".to_owned(), None, vec![1; OWN_BYTES])];
        for page in 0..PAGES {
            let page_of = |cache| {
                let bytes = [page as u8, cache as u8, 7, 9].repeat(PAGE_BYTES / 4);
                (format!("{cache}.keys.{page}"), Some(page as u64), bytes)
            };
            parts.extend((0..CACHES).map(page_of));
        }
        Self { store, parts, tokens: (0..TOKENS as u32).collect(), _dir: dir }
    }

    fn bytes(&self) -> u64 {
        self.parts.iter().map(|(_, _, bytes)| bytes.len() as u64).sum()
    }

    fn save(&self, tokens: &[u32]) -> StateId {
        let parts: Vec<PartRef<'_>> = self
            .parts
            .iter()
            .map(|(name, group, bytes)| PartRef {
                name,
                dtype: "f16",
                shape: &[256, 64],
                bytes,
                group: *group,
            })
            .collect();
        let fingerprints = fingerprints();
        let state = StateToSave { session: None, fingerprints: &fingerprints, tokens, parts: &parts };
        self.store.save(&state).expect("the disk has space").id
    }
}

#[divan::bench(sample_count = 10)]
fn save_all_pages(bencher: Bencher<'_, '_>) {
    let bytes = Setup::new().bytes();
    let bencher = bencher.counter(BytesCount::new(bytes)).with_inputs(Setup::new);
    bencher.bench_local_values(|setup| {
        setup.save(&setup.tokens);
        setup
    });
}

#[divan::bench(sample_count = 10)]
fn save_a_turn_later(bencher: Bencher<'_, '_>) {
    let setup = Setup::new();
    setup.save(&setup.tokens);
    let mut tokens = setup.tokens.clone();
    bencher.counter(BytesCount::new(setup.bytes())).bench_local(|| {
        tokens.push(1);
        setup.save(&tokens)
    });
}

#[divan::bench(sample_count = 20)]
fn load(bencher: Bencher<'_, '_>) {
    let setup = Setup::new();
    let id = setup.save(&setup.tokens);
    bencher.counter(BytesCount::new(setup.bytes())).bench_local(|| setup.store.load(id));
}

/// 10,000 entries of 2,000 tokens, of which every tenth begins like the query.
fn index() -> (PrefixIndex<usize>, Vec<u32>) {
    let query: Vec<u32> = (0..TOKENS as u32).collect();
    let mut index = PrefixIndex::new();
    for id in 0..10_000usize {
        let mut tokens = query[..1000 + id % 1000].to_vec();
        if id % 10 != 0 {
            tokens[id % 900] = 1_000_000 + id as u32;
        }
        index.insert(id, Arc::from(tokens));
    }
    (index, query)
}

#[divan::bench]
fn longest_of_10_000(bencher: Bencher<'_, '_>) {
    let (index, query) = index();
    bencher.bench_local(|| index.candidates(&query).next());
}

#[divan::bench]
fn divergence_among_10_000(bencher: Bencher<'_, '_>) {
    let (index, query) = index();
    bencher.bench_local(|| index.divergence(&query));
}
