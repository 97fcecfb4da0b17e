//! Rows that are only appended, in pages of a fixed number of rows: keys, values, index keys.
//!
//! Early pages can be forgotten, which makes a sliding window of it. Full pages never change, so snapshots share them; an append copies at most the last page, and only if a snapshot
//! holds it.

use ds4_array::{Array, DType, Shape, Stream, ops};

use super::{CacheError, PartVisitor, StateSource, take_part};
use crate::LayerError;

/// Rows of one shape, [R, ..] a page.
#[derive(Clone, Debug)]
pub struct PagedRows {
    stream: Stream,
    page: Shape,
    dtype: DType,
    pages: Vec<Array>,
    /// Pages that were there before the first of `pages`.
    forgotten: usize,
    rows: usize,
}

impl PagedRows {
    /// Rows in a page. Small enough that a copied page costs little, large enough that few pages make a context.
    pub const PAGE_ROWS: usize = 256;

    /// No rows yet. `row` is the shape of one row, stored as `dtype`.
    pub fn new(stream: &Stream, row: &[usize], dtype: DType) -> Self {
        let sizes: Vec<usize> = std::iter::once(Self::PAGE_ROWS).chain(row.iter().copied()).collect();
        let page = Shape::try_new(&sizes).unwrap_or(Shape::from([Self::PAGE_ROWS]));
        Self { stream: stream.clone(), page, dtype, pages: Vec::new(), forgotten: 0, rows: 0 }
    }

    /// Number of rows, forgotten ones included.
    pub fn len(&self) -> usize {
        self.rows
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// The pages that are kept; the last one may be partly filled.
    pub fn pages(&self) -> &[Array] {
        &self.pages
    }

    /// Index of the first row that is kept.
    pub fn first_row(&self) -> usize {
        self.forgotten * Self::PAGE_ROWS
    }

    /// Lets go of the pages that hold only rows before `row`.
    pub fn forget_before(&mut self, row: usize) {
        let count = (row.min(self.rows) / Self::PAGE_ROWS).saturating_sub(self.forgotten);
        self.pages.drain(..count);
        self.forgotten += count;
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

    /// Keeps the first `rows` rows. They must not all be forgotten, unless none is to be read.
    pub fn trim(&mut self, rows: usize) {
        self.rows = self.rows.min(rows);
        self.pages.truncate(self.rows.div_ceil(Self::PAGE_ROWS).saturating_sub(self.forgotten));
    }

    pub(super) fn visit_parts(&self, name: &str, visit: &mut PartVisitor<'_>) {
        self.visit_parts_from(name, 0, visit);
    }

    /// The pages with the rows from `row` on.
    pub(super) fn visit_parts_from(&self, name: &str, row: usize, visit: &mut PartVisitor<'_>) {
        let pages = (self.forgotten..).zip(&self.pages).filter(|(page, _)| *page >= row / Self::PAGE_ROWS);
        pages.for_each(|(page, array)| visit(format_args!("{name}.{page}"), array));
    }

    pub(super) fn restore(
        &mut self,
        name: &str,
        rows: usize,
        source: &mut StateSource<'_>,
    ) -> Result<(), CacheError> {
        self.restore_from(name, 0, rows, source)
    }

    /// Takes the pages with the rows from `first` to `rows`; those before are forgotten.
    pub(super) fn restore_from(
        &mut self,
        name: &str,
        first: usize,
        rows: usize,
        source: &mut StateSource<'_>,
    ) -> Result<(), CacheError> {
        self.forgotten = first / Self::PAGE_ROWS;
        let page = |i| take_part(source, &format!("{name}.{i}"), self.page, self.dtype);
        self.pages = (self.forgotten..rows.div_ceil(Self::PAGE_ROWS)).map(page).collect::<Result<_, _>>()?;
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
    fn forgotten_pages_are_gone_and_the_others_keep_their_places() {
        let stream = Stream::new(&Device::reference());
        let mut cache = PagedRows::new(&stream, &[2], DType::F32);
        cache.append(&rows(&stream, 0, 700)).unwrap();
        cache.forget_before(255);
        assert_eq!(cache.first_row(), 0);
        cache.forget_before(600);
        assert_eq!((cache.first_row(), cache.len(), cache.pages().len()), (512, 700, 1));
        cache.append(&rows(&stream, 700, 100)).unwrap();
        let kept: Vec<f32> = cache.pages().iter().flat_map(|page| page.to_vec::<f32>().unwrap()).collect();
        assert_eq!(kept[..2 * (800 - 512)], rows(&stream, 512, 800 - 512).to_vec::<f32>().unwrap());
        let mut parts: Vec<(String, Array)> = Vec::new();
        cache.visit_parts_from("rows", 770, &mut |name, array| parts.push((name.to_string(), array.clone())));
        assert_eq!(parts.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["rows.3"]);
        let mut other = PagedRows::new(&stream, &[2], DType::F32);
        other.restore_from("rows", 770, 800, &mut |_| parts.pop().map(|(_, array)| array)).unwrap();
        assert_eq!((other.first_row(), other.len(), other.pages().len()), (768, 800, 1));
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
