//! Rows that are only appended, in pages of a fixed number of rows: keys, values, index keys.
//!
//! Full pages never change, so snapshots share them; an append copies at most the last page, and only if a snapshot
//! holds it.

use ds4_array::{Array, DType, Shape, Stream, ops};

use super::{CacheError, NamedArrays, StateSource, take_part};
use crate::LayerError;

/// Rows of one shape, [R, ..] a page.
#[derive(Clone, Debug)]
pub struct PagedRows {
    stream: Stream,
    page: Shape,
    dtype: DType,
    pages: Vec<Array>,
    rows: usize,
}

impl PagedRows {
    /// Rows in a page. Small enough that a copied page costs little, large enough that few pages make a context.
    pub const PAGE_ROWS: usize = 256;

    /// No rows yet. `row` is the shape of one row, stored as `dtype`.
    pub fn new(stream: &Stream, row: &[usize], dtype: DType) -> Self {
        let sizes: Vec<usize> = std::iter::once(Self::PAGE_ROWS).chain(row.iter().copied()).collect();
        let page = Shape::try_new(&sizes).unwrap_or(Shape::from([Self::PAGE_ROWS]));
        Self { stream: stream.clone(), page, dtype, pages: Vec::new(), rows: 0 }
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.rows
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// The pages; the last one may be partly filled.
    pub fn pages(&self) -> &[Array] {
        &self.pages
    }

    /// Appends `rows` [L, ..], converted to the stored type.
    pub fn append(&mut self, rows: &Array) -> Result<(), LayerError> {
        let total = rows.shape()[0];
        let mut done = 0;
        while done < total {
            let filled = self.rows % Self::PAGE_ROWS;
            if filled == 0 {
                self.pages.push(ops::fill(&self.stream, self.page, self.dtype, 0.0));
            }
            let count = (Self::PAGE_ROWS - filled).min(total - done);
            if let Some(last) = self.pages.last_mut() {
                *last = ops::slice_update(last, &ops::slice_rows(rows, done, count)?, filled)?;
            }
            self.rows += count;
            done += count;
        }
        Ok(())
    }

    /// Keeps the first `rows` rows.
    pub fn trim(&mut self, rows: usize) {
        self.rows = self.rows.min(rows);
        self.pages.truncate(self.rows.div_ceil(Self::PAGE_ROWS));
    }

    pub(super) fn state_parts(&self, name: &str) -> NamedArrays {
        let part = |(i, page): (usize, &Array)| (format!("{name}.{i}"), page.clone());
        self.pages.iter().enumerate().map(part).collect()
    }

    pub(super) fn restore(
        &mut self,
        name: &str,
        rows: usize,
        source: &mut StateSource<'_>,
    ) -> Result<(), CacheError> {
        let page = |i| take_part(source, &format!("{name}.{i}"), self.page, self.dtype);
        self.pages = (0..rows.div_ceil(Self::PAGE_ROWS)).map(page).collect::<Result<_, _>>()?;
        self.rows = rows;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use ds4_array::Device;

    use super::*;

    fn rows(stream: &Stream, from: usize, count: usize) -> Array {
        let values: Vec<f32> = (from..from + count).flat_map(|i| [i as f32, -(i as f32)]).collect();
        Array::from_slice(stream, &values, &[count, 2]).unwrap()
    }

    fn contents(cache: &PagedRows) -> Vec<f32> {
        let mut all: Vec<f32> = cache.pages().iter().flat_map(|page| page.to_vec::<f32>().unwrap()).collect();
        all.truncate(cache.len() * 2);
        all
    }

    #[test]
    fn appends_of_any_size_give_the_same_rows() {
        let stream = Stream::new(&Device::reference());
        let whole = rows(&stream, 0, 700).to_vec::<f32>().unwrap();
        for sizes in [vec![700], vec![1; 700], vec![255, 1, 256, 188], vec![300, 300, 100]] {
            let mut cache = PagedRows::new(&stream, &[2], DType::F32);
            let mut from = 0;
            for size in sizes {
                cache.append(&rows(&stream, from, size)).unwrap();
                from += size;
            }
            assert_eq!(contents(&cache), whole);
        }
    }

    #[test]
    fn a_snapshot_does_not_see_what_is_appended_later() {
        let stream = Stream::new(&Device::reference());
        let mut cache = PagedRows::new(&stream, &[2], DType::F32);
        cache.append(&rows(&stream, 0, 300)).unwrap();
        let before = contents(&cache);
        let snapshot = cache.clone();
        cache.append(&rows(&stream, 900, 10)).unwrap();
        let mut other = snapshot.clone();
        other.append(&rows(&stream, 500, 10)).unwrap();
        assert_eq!(contents(&snapshot), before);
        assert_ne!(contents(&other), contents(&cache));
        // The full first page is shared by all three.
        let keys: Vec<_> = [&cache, &snapshot, &other].iter().map(|c| c.pages()[0].storage_key()).collect();
        assert!(keys[0].is_some() && keys.iter().all(|key| *key == keys[0]));
    }

    #[test]
    fn appending_to_an_unshared_page_writes_in_place() {
        let stream = Stream::new(&Device::reference());
        let mut cache = PagedRows::new(&stream, &[2], DType::F32);
        cache.append(&rows(&stream, 0, 3)).unwrap();
        ds4_array::eval(&[&cache.pages()[0]]).unwrap();
        let before = cache.pages()[0].storage_key();
        cache.append(&rows(&stream, 3, 1)).unwrap();
        ds4_array::eval(&[&cache.pages()[0]]).unwrap();
        assert_eq!(cache.pages()[0].storage_key(), before);
    }

    #[test]
    fn a_trimmed_cache_continues_like_a_shorter_one() {
        let stream = Stream::new(&Device::reference());
        let mut cache = PagedRows::new(&stream, &[2], DType::F32);
        cache.append(&rows(&stream, 0, 600)).unwrap();
        cache.trim(256);
        cache.append(&rows(&stream, 256, 20)).unwrap();
        assert_eq!(contents(&cache), rows(&stream, 0, 276).to_vec::<f32>().unwrap());
    }
}
