//! Hashed n-gram embeddings: each token looks up rows by hashes of the tokens before it.
//!
//! The table may be tens of gigabytes. Row numbers are computed here, on the host, and only the rows that are needed
//! are read from the mapped file.

use ds4_array::{Array, Stream};
use ds4_dtype::{DType, Floats};
use ds4_weights::Tensor;

use crate::cache::TokenTail;
use crate::{LayerError, Scope};

/// Sizes of an n-gram embedding.
#[derive(Clone, Debug)]
pub struct NGramSizes {
    /// Largest n.
    pub ngram: usize,
    /// Hashes for each n.
    pub heads_per_ngram: usize,
    /// Width of all rows of a token side by side.
    pub embed_dim: usize,
    /// Table sizes are the primes from here on.
    pub vocab_size_base: u64,
    /// The table's rows are padded to a multiple of this.
    pub divisible_by: u64,
    /// Start of the hash multipliers.
    pub seed: u64,
    /// Size of the token vocabulary.
    pub vocabulary: u64,
    /// An n-gram does not reach over this token.
    pub boundary: u32,
    /// How many embeddings stand in layers before this one.
    pub index: usize,
}

impl NGramSizes {
    /// Hashes for each token.
    pub fn heads(&self) -> usize {
        (self.ngram - 1) * self.heads_per_ngram
    }

    /// Width of a table row.
    pub fn row_width(&self) -> usize {
        self.embed_dim / self.heads()
    }

    /// Tokens before the current one that a hash may look at.
    pub fn context(&self) -> usize {
        self.ngram - 1
    }
}

/// The embedding of one layer.
pub struct NGramEmbedding {
    stream: Stream,
    sizes: NGramSizes,
    multipliers: Vec<i64>,
    /// Table size and first row of each head.
    heads: Vec<(i64, i64)>,
    table: Table,
}

/// Where the rows are.
#[expect(clippy::large_enum_variant, reason = "there is one for each embedding layer")]
enum Table {
    /// Float tensors whose rows follow one another.
    Shards(Vec<Tensor>),
    /// One quantised table in the MLX layout.
    Affine { weight: Tensor, scales: Tensor, biases: Tensor },
}

impl NGramEmbedding {
    /// Loads the tensors below `scope`; hash parameters that a checkpoint lacks are derived from the configuration.
    pub fn load(scope: &Scope<'_>, sizes: NGramSizes) -> Self {
        let derived = heads(&sizes);
        let integers =
            |name: &str, otherwise: Vec<i64>| scope.integers(name, otherwise.len()).unwrap_or(otherwise);
        let primes = integers("ngram_heads_vocab_sizes", derived.iter().map(|head| head.0).collect());
        let offsets = integers("ngram_heads_offsets", derived.iter().map(|head| head.1).collect());
        let multipliers = integers("layer_multipliers", multipliers(&sizes));
        let heads: Vec<(i64, i64)> = primes.into_iter().zip(offsets).collect();
        let rows = heads.iter().map(|(size, offset)| (size + offset) as u64).max().unwrap_or(0);
        let table = load_table(scope, rows.next_multiple_of(sizes.divisible_by), sizes.row_width());
        Self { stream: scope.stream().clone(), sizes, multipliers, heads, table }
    }

    /// Its sizes.
    pub fn sizes(&self) -> &NGramSizes {
        &self.sizes
    }

    /// Table rows of each token, `[tokens][heads]`. `history` holds the tokens before the first one.
    ///
    /// The hash of an n-gram is the xor of its tokens, each times its multiplier in wrapping 64-bit arithmetic, modulo
    /// the head's prime. Tokens at or before a boundary token count as that token.
    pub fn row_ids(&self, history: &[u32], tokens: &[u32]) -> Vec<u64> {
        let context = self.sizes.context();
        let all: Vec<u32> = history.iter().chain(tokens).copied().collect();
        let mut ids = Vec::with_capacity(tokens.len() * self.heads.len());
        for at in context..all.len() {
            let mut mixed = i64::from(all[at]).wrapping_mul(self.multipliers[0]);
            let mut bounded = false;
            for back in 1..=context {
                bounded |= all[at - back] == self.sizes.boundary;
                let token = if bounded { self.sizes.boundary } else { all[at - back] };
                mixed ^= i64::from(token).wrapping_mul(self.multipliers[back]);
                let first = (back - 1) * self.sizes.heads_per_ngram;
                for (size, offset) in &self.heads[first..first + self.sizes.heads_per_ngram] {
                    ids.push((mixed.rem_euclid(*size) + offset) as u64);
                }
            }
        }
        ids
    }

    /// The embeddings of `tokens`, [L, embed_dim] float32; the tail moves on.
    pub fn forward(&self, tail: &mut TokenTail, tokens: &[u32]) -> Result<Array, LayerError> {
        let ids = self.row_ids(tail.ids(), tokens);
        tail.push(tokens);
        let width = self.sizes.row_width();
        let mut values = vec![0.0; ids.len() * width];
        for (id, row) in ids.iter().zip(values.chunks_exact_mut(width)) {
            self.table.read(*id as usize, row);
        }
        Ok(Array::from_slice(&self.stream, &values, &[tokens.len(), self.sizes.embed_dim])?)
    }
}

impl Table {
    fn read(&self, mut id: usize, out: &mut [f32]) {
        match self {
            Self::Shards(shards) => {
                for shard in shards {
                    if id < shard.shape[0] {
                        widen(shard, id, out);
                        return;
                    }
                    id -= shard.shape[0];
                }
            }
            Self::Affine { weight, scales, biases } => {
                let packed = weight.row(id);
                let group = out.len() / scales.shape[1];
                let bits = packed.len() * 8 / out.len();
                let (scales, biases) = (row_floats(scales, id), row_floats(biases, id));
                for (i, value) in out.iter_mut().enumerate() {
                    let byte = packed[i * bits / 8];
                    let q = if bits == 8 { byte } else { byte >> (4 * (i % 2)) & 15 };
                    *value = scales[i / group] * f32::from(q) + biases[i / group];
                }
            }
        }
    }
}

fn widen(table: &Tensor, row: usize, out: &mut [f32]) {
    let width = out.len();
    if let Some(floats) = table.floats() {
        match floats.slice(row * width..(row + 1) * width) {
            Floats::F32(values) => out.copy_from_slice(values),
            other => out.iter_mut().enumerate().for_each(|(i, value)| *value = other.get(i)),
        }
    }
}

fn row_floats(table: &Tensor, row: usize) -> Vec<f32> {
    let mut out = vec![0.0; table.shape[1]];
    widen(table, row, &mut out);
    out
}

fn load_table(scope: &Scope<'_>, rows: u64, width: usize) -> Table {
    let rows = rows as usize;
    if let Some(packed) =
        scope.find("ngram_embedding.scales").and_then(|_| scope.find("ngram_embedding.weight"))
    {
        let bits = packed.shape.last().map_or(4, |columns| columns * 32 / width);
        let weight = scope.table("ngram_embedding.weight", &[rows, width * bits / 32], DType::U32);
        let groups = scope.find("ngram_embedding.scales").and_then(|s| s.shape.last().copied()).unwrap_or(1);
        let [scales, biases] = ["scales", "biases"]
            .map(|name| scope.float_table(&format!("ngram_embedding.{name}"), &[rows, groups]));
        if let (Some(weight), Some(scales), Some(biases)) = (weight, scales, biases) {
            return Table::Affine { weight, scales, biases };
        }
        return Table::Shards(Vec::new());
    }
    let mut names = Vec::new();
    while scope.find(&format!("ngram_embedding.shard_{}.weight", names.len())).is_some() {
        names.push(format!("ngram_embedding.shard_{}.weight", names.len()));
    }
    let found: usize = names.iter().filter_map(|name| scope.find(name)).map(|t| t.shape[0]).sum();
    if names.is_empty() || found < rows {
        // One table, or whatever is missing: named as a single tensor, so that the complaint says how many rows.
        return Table::Shards(
            scope.float_table("ngram_embedding.weight", &[rows, width]).into_iter().collect(),
        );
    }
    let shard = |name: &String| {
        let rows = scope.find(name).map_or(0, |tensor| tensor.shape[0]);
        scope.float_table(name, &[rows, width])
    };
    Table::Shards(names.iter().filter_map(shard).collect())
}

/// Table size (consecutive primes, counted over all embeddings of the model) and first row of each head.
fn heads(sizes: &NGramSizes) -> Vec<(i64, i64)> {
    let mut primes = (sizes.vocab_size_base..).filter(|&n| is_prime(n));
    let mut offset = 0;
    let mine = primes.by_ref().skip(sizes.index * sizes.heads()).take(sizes.heads());
    mine.map(|prime| {
        let head = (prime as i64, offset);
        offset += prime as i64;
        head
    })
    .collect()
}

fn is_prime(n: u64) -> bool {
    n >= 2 && (2..).take_while(|d| d * d <= n).all(|d| !n.is_multiple_of(d))
}

/// Odd multipliers from a splitmix64 stream, small enough that a token times one stays in 63 bits.
fn multipliers(sizes: &NGramSizes) -> Vec<i64> {
    const GAMMA: u64 = 0x9E37_79B9_7F4A_7C15;
    const LAYER_STEP: u64 = 10007;
    let half = ((i64::MAX as u64 / sizes.vocabulary.max(1)) / 2).max(1);
    let base = sizes.seed.wrapping_add(LAYER_STEP * sizes.index as u64);
    (1..=sizes.ngram as u64)
        .map(|i| {
            let mixed = splitmix64(base.wrapping_add(GAMMA.wrapping_mul(i)), GAMMA);
            (2 * (mixed % half) + 1) as i64
        })
        .collect()
}

fn splitmix64(value: u64, gamma: u64) -> u64 {
    let mut z = value.wrapping_add(gamma);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}
