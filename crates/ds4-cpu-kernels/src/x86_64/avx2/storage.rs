//! Reading weight rows of each stored form as vectors of float32.

use std::arch::x86_64::*;

use bytemuck::must_cast;
use half::{bf16, f16};

use super::lanes::{LANES, load, widen_bf16, widen_f16};
use crate::prefetch::{self, LINE};

/// A row of stored weights, read in spans of a few vectors that share what it takes to decode them.
pub(crate) trait Storage: Copy {
    /// Vectors of a span.
    const SPAN: usize;
    /// Rows of activations up to which it pays to decode in registers for each four of them, and not into a panel.
    const FEW: usize = 1;
    /// What is loaded once a span.
    type Span: Copy;

    /// Spans of the row, which takes `vectors` vectors.
    fn spans(self, vectors: usize) -> usize {
        vectors / Self::SPAN
    }

    /// Span `i` of the row.
    ///
    /// # Safety
    /// The machine has AVX2, FMA and F16C.
    unsafe fn span(self, i: usize) -> Self::Span;

    /// Tells the cache that span `i` of the row `rows` further down will be read soon.
    ///
    /// # Safety
    /// The machine has AVX2, FMA and F16C.
    unsafe fn prefetch(self, i: usize, rows: usize);

    /// Vector `j` of a span.
    ///
    /// # Safety
    /// The machine has AVX2, FMA and F16C.
    unsafe fn vector(span: Self::Span, j: usize) -> __m256;

    /// Vector `at` of the row, which comes after its spans; padded with zeros if it is the last one. Most rows end with a span.
    ///
    /// # Safety
    /// The machine has AVX2, FMA and F16C.
    unsafe fn beyond(self, at: usize) -> __m256 {
        unreachable!("vector {at} is beyond the row")
    }
}

/// A float format.
pub(crate) trait Element: Copy {
    /// # Safety
    /// The machine has AVX2, FMA and F16C.
    unsafe fn widen(x: &[Self; LANES]) -> __m256;
    fn to_f32(self) -> f32;
}

impl Element for f32 {
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn widen(x: &[Self; LANES]) -> __m256 {
        load(x)
    }
    fn to_f32(self) -> f32 {
        self
    }
}

impl Element for f16 {
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn widen(x: &[Self; LANES]) -> __m256 {
        widen_f16(x)
    }
    fn to_f32(self) -> f32 {
        f16::to_f32(self)
    }
}

impl Element for bf16 {
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn widen(x: &[Self; LANES]) -> __m256 {
        widen_bf16(x)
    }
    fn to_f32(self) -> f32 {
        bf16::to_f32(self)
    }
}

/// A row of floats.
#[derive(Clone, Copy)]
pub(crate) struct Dense<'a, T> {
    vectors: &'a [[T; LANES]],
    tail: &'a [T],
}

impl<'a, T: Element> Dense<'a, T> {
    #[inline]
    pub(crate) fn new(row: &'a [T]) -> Self {
        let (vectors, tail) = row.as_chunks();
        Self { vectors, tail }
    }
}

impl<'a, T: Element> Storage for Dense<'a, T> {
    /// As many as fill a line of the cache.
    const SPAN: usize = LINE / size_of::<[T; LANES]>();
    const FEW: usize = 32;
    type Span = &'a [[T; LANES]];

    #[inline]
    fn spans(self, _: usize) -> usize {
        self.vectors.len() / Self::SPAN
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn span(self, i: usize) -> Self::Span {
        &self.vectors[i * Self::SPAN..][..Self::SPAN]
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn prefetch(self, i: usize, rows: usize) {
        prefetch::line(self.vectors.as_ptr().wrapping_add(i * Self::SPAN + rows * self.vectors.len()));
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn vector(span: Self::Span, j: usize) -> __m256 {
        // SAFETY: the features are enabled here.
        unsafe { T::widen(&span[j]) }
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn beyond(self, at: usize) -> __m256 {
        match self.vectors.get(at) {
            // SAFETY: the features are enabled here.
            Some(vector) => unsafe { T::widen(vector) },
            None => {
                let mut padded = [0.0; LANES];
                padded.iter_mut().zip(self.tail).for_each(|(out, x)| *out = x.to_f32());
                load(&padded)
            }
        }
    }
}

/// A row of 4-bit values in groups of `8 * SPAN`, or of a multiple that `shift` takes account of.
#[derive(Clone, Copy)]
pub(crate) struct Affine4<'a, const SPAN: usize> {
    /// A word holds the eight values of a vector.
    pub(crate) words: &'a [[u32; SPAN]],
    pub(crate) scales: &'a [f32],
    pub(crate) biases: &'a [f32],
    /// Binary logarithm of the spans in a group.
    pub(crate) shift: u32,
}

impl<'a, const SPAN: usize> Storage for Affine4<'a, SPAN> {
    const SPAN: usize = SPAN;
    type Span = (&'a [u32; SPAN], __m256, __m256);

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn span(self, i: usize) -> Self::Span {
        let group = i >> self.shift;
        (&self.words[i], _mm256_set1_ps(self.scales[group]), _mm256_set1_ps(self.biases[group]))
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn prefetch(self, i: usize, rows: usize) {
        prefetch::line(self.words.as_ptr().wrapping_add(i + rows * self.words.len()));
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn vector((words, scale, bias): Self::Span, j: usize) -> __m256 {
        let shifts = _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28);
        let q = _mm256_srlv_epi32(_mm256_set1_epi32(words[j] as i32), shifts);
        let q = _mm256_and_si256(q, _mm256_set1_epi32(15));
        _mm256_fmadd_ps(_mm256_cvtepi32_ps(q), scale, bias)
    }
}

/// A row of 8-bit values in groups of `8 * SPAN`, or of a multiple that `shift` takes account of.
#[derive(Clone, Copy)]
pub(crate) struct Affine8<'a, const SPAN: usize> {
    pub(crate) bytes: &'a [[[u8; LANES]; SPAN]],
    pub(crate) scales: &'a [f32],
    pub(crate) biases: &'a [f32],
    /// Binary logarithm of the spans in a group.
    pub(crate) shift: u32,
}

impl<'a, const SPAN: usize> Storage for Affine8<'a, SPAN> {
    const SPAN: usize = SPAN;
    type Span = (&'a [[u8; LANES]; SPAN], __m256, __m256);

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn span(self, i: usize) -> Self::Span {
        let group = i >> self.shift;
        (&self.bytes[i], _mm256_set1_ps(self.scales[group]), _mm256_set1_ps(self.biases[group]))
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn prefetch(self, i: usize, rows: usize) {
        prefetch::line(self.bytes.as_ptr().wrapping_add(i + rows * self.bytes.len()));
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn vector((bytes, scale, bias): Self::Span, j: usize) -> __m256 {
        let q = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128(must_cast(bytes[j])));
        _mm256_fmadd_ps(_mm256_cvtepi32_ps(q), scale, bias)
    }
}
