//! Kernels on the path of a decoded token allocate nothing once they have run: a counting allocator says so.

mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use ds4_cpu_kernels::*;
use support::*;

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: the system's allocator does the work.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller keeps the contract of this function, which is that of the system's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Runs `kernel` once, and checks that running it again allocates nothing on this thread.
fn check(name: &str, mut kernel: impl FnMut()) {
    kernel();
    let before = ALLOCATIONS.get();
    kernel();
    assert_eq!(ALLOCATIONS.get() - before, 0, "allocations of {name}");
}

// One thread: of several, each allocates at the first task it happens to take.
#[test]
fn decoding_kernels_allocate_nothing() {
    let mut random = Random(1);
    let cpus =
        Isa::all().into_iter().filter(|isa| *isa != Isa::Scalar).filter_map(|isa| Cpu::with_isa(isa, 1));
    for cpu in cpus.collect::<Vec<_>>() {
        let (n, k) = (96, 256);
        let x = random.floats(8 * k);
        let mut out = vec![0.0; 8 * n];
        for m in [1, 4, 8] {
            for format in 0..FORMATS {
                let w = Weights::new(&mut random, format, n, k);
                check(&format!("linear, format {format}, {m} rows"), || {
                    linear(&cpu, &x[..m * k], w.matrix(), m, n, k, &mut out[..m * n]);
                });
            }
        }
        let int8 =
            Cpu::with_isa(cpu.isa(), 1).expect("one that is there").with_activations(Activations::Int8);
        let w = Weights::new(&mut random, 4, 4 * n, k);
        check("linear, int8", || linear(&int8, &x[..k], w.matrix(), 1, 4 * n, k, &mut out[..4 * n]));
        check("grouped linear, int8", || {
            grouped_linear(
                &int8,
                &x,
                w.matrix(),
                Some(&[0, 1, 2]),
                &[0, 1, 1, 2, 3],
                n,
                k,
                &mut out[..3 * n],
            );
        });

        let weight = Stored::new(2, &random.floats(k));
        let mut normed = vec![0.0; k];
        check("rms_norm", || {
            rms_norm(&cpu, &x[..k], Some(weight.floats()), 1.0, k, k, 1e-6, &mut normed);
        });

        let (heads, d, before) = (4, 64, 99);
        let keys = [Stored::new(2, &random.floats(128 * 2 * d)), Stored::new(2, &random.floats(128 * 2 * d))];
        let (k_pages, v_pages) = ([keys[0].floats()], [keys[1].floats()]);
        let args = AttentionArgs {
            q: &x[..heads * d],
            keys: &k_pages,
            values: &v_pages,
            page_rows: 128,
            first_position: before,
            kv_heads: 2,
            heads,
            d,
            dv: d,
            scale: 0.1,
            selection: None,
        };
        let ids = [1, 4, 5, u32::MAX];
        let selection = Some(BlockSelection { block: 16, per_row: 4, ids: &ids });
        let mut attended = vec![0.0; heads * d];
        check("attention", || attention(&cpu, &args, &mut attended));
        check("attention over blocks", || {
            attention(&cpu, &AttentionArgs { selection, ..args }, &mut attended)
        });

        let taps = random.floats(4 * k);
        let conv = CausalConv1dArgs {
            x: &x[3 * k..4 * k],
            weight: &taps,
            channels: k,
            kernel: 4,
            dilation: 1,
            silu: true,
        };
        let mut next = vec![0.0; 3 * k];
        check("convolution", || {
            causal_conv1d(&cpu, &conv, &mut [ConvSequence::new(0..1, &x[..3 * k], &mut next)], &mut normed);
        });

        let delta = GatedDeltaArgs {
            q: &x[..2 * 32],
            k: &x[64..][..2 * 32],
            v: &x[128..][..4 * 32],
            g: &[-0.1; 4],
            beta: &[0.5; 4],
            key_heads: 2,
            value_heads: 4,
            dk: 32,
            dv: 32,
        };
        let mut state = vec![0.0; 4 * 32 * 32];
        check("delta net", || {
            let sequence = DeltaSequence::new(0..1, None, &mut state);
            gated_delta(&cpu, &delta, &mut [sequence], &mut attended[..4 * 32]);
        });
    }
}
