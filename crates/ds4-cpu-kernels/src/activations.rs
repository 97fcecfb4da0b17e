//! How exactly the activations of a product with quantised weights are taken.

/// The precision of activations in products with affine weights. Products with dense weights always take them as float32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Activations {
    /// As they are: exact up to the rounding of float32 sums, and limited by arithmetic on small machines.
    #[default]
    F32,
    /// Rounded to 8-bit integers with one scale for each row and group of the weights, which lets processors multiply
    /// integers: two to three times as fast where arithmetic is the limit.
    ///
    /// The rounding is off by at most half of 1/127 of the largest activation of the group. A product of random numbers
    /// comes out with a relative error of about 6e-3. A group that holds NaN or infinity makes the results NaN; one whose
    /// largest activation is below 1e-30 counts as zeros.
    Int8,
}
