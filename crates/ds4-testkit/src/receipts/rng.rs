//! `rng.jsonl`: NumPy's seeding, raw output, doubles and choices for 13 seeds, equal.

use super::files::{Fields, records};
use ds4_sampling::{Pcg64, Pcg64State, RandomStream, SeedSequence, SparseDistribution};

/// Seeding and every kind of draw are NumPy's. Returns the number of seeds.
pub fn replay() -> usize {
    let records = records("rng.jsonl");
    assert_eq!(records.len(), 13);
    for record in &records {
        let seed: u128 = record.text("seed").parse().unwrap();
        let words = |name: &str| -> Vec<u64> {
            record.list(name).iter().map(|word| word.as_str().unwrap().parse().unwrap()).collect()
        };
        assert_eq!(SeedSequence::new(seed).generate_u64::<4>().to_vec(), words("seed_sequence"));

        let start = Pcg64::from_seed(seed);
        let state = record.text("state").parse().unwrap();
        let increment = record.text("inc").parse().unwrap();
        assert_eq!(start.state(), Pcg64State { state, increment });

        let mut stream = start.clone();
        assert_eq!((0..8).map(|_| stream.next_u64()).collect::<Vec<_>>(), words("raw"));
        let mut stream = start.clone();
        assert_eq!((0..8).map(|_| stream.next_f64()).collect::<Vec<_>>(), record.f64s("random"));

        let uniform = SparseDistribution::new((0..7).collect(), vec![1.0 / 7.0; 7], 7).unwrap();
        let mut stream = RandomStream::Pcg64(start);
        let choices: Vec<u32> = (0..16).map(|_| uniform.draw(&mut stream)).collect();
        assert_eq!(choices, record.ids("choice_uniform7"));
        assert_eq!(stream.uniform(), record.f64("next"));
    }
    records.len()
}
