//! Floats of 8 and 4 bits, as block-scaled checkpoints store them: every code's value, by table.
//!
//! Source: Open Compute Project, "OCP Microscaling Formats (MX)", and "OCP 8-bit Floating Point Specification". Only decoding:
//! no float is ever written in these formats here.

/// E4M3: a sign, four bits of exponent (bias 7), three of mantissa; no infinities, NaN with all other bits set.
pub const E4M3: [f32; 256] = e4m3();

/// E8M0: a power of two from 2^-127 to 2^127, used as a scale; 255 is NaN.
pub const E8M0: [f32; 256] = e8m0();

/// E2M1: a sign, two bits of exponent (bias 1), one of mantissa; neither infinities nor NaN.
pub const E2M1: [f32; 16] =
    [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0];

const fn e4m3() -> [f32; 256] {
    let mut table = [0.0; 256];
    let mut code = 0;
    while code < 256 {
        let (exponent, mantissa) = ((code >> 3) & 15, code & 7);
        let magnitude = if code & 127 == 127 {
            f32::NAN
        } else if exponent == 0 {
            // Subnormal: eighths of 2^-6.
            mantissa as f32 * f32::from_bits((127 - 9) << 23)
        } else {
            f32::from_bits(((exponent as u32 + 127 - 7) << 23) | ((mantissa as u32) << 20))
        };
        table[code] = if code >= 128 { -magnitude } else { magnitude };
        code += 1;
    }
    table
}

const fn e8m0() -> [f32; 256] {
    let mut table = [f32::NAN; 256];
    // 2^-127 is subnormal in binary32.
    table[0] = f32::from_bits(1 << 22);
    let mut code = 1;
    while code < 255 {
        table[code] = f32::from_bits((code as u32) << 23);
        code += 1;
    }
    table
}

/// The two values of a byte of packed E2M1: that of the lower half comes first.
#[inline]
pub fn e2m1_pair(byte: u8) -> [f32; 2] {
    [E2M1[usize::from(byte & 15)], E2M1[usize::from(byte >> 4)]]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sign, exponent and mantissa of a small float, by its definition.
    fn by_definition(code: usize, exponent_bits: u32, mantissa_bits: u32) -> f64 {
        let bias = (1 << (exponent_bits - 1)) - 1;
        let mantissa = (code & ((1 << mantissa_bits) - 1)) as f64 / f64::from(1u32 << mantissa_bits);
        let exponent = (code >> mantissa_bits) & ((1 << exponent_bits) - 1);
        let sign = if code >> (exponent_bits + mantissa_bits) == 1 { -1.0 } else { 1.0 };
        match exponent {
            0 => sign * mantissa * 2f64.powi(1 - bias),
            _ => sign * (1.0 + mantissa) * 2f64.powi(exponent as i32 - bias),
        }
    }

    #[test]
    fn every_code_has_the_value_of_its_bits() {
        for (code, &value) in E4M3.iter().enumerate() {
            match code & 127 {
                127 => assert!(value.is_nan()),
                _ => {
                    assert_eq!(f64::from(value).to_bits(), by_definition(code, 4, 3).to_bits(), "E4M3 {code}")
                }
            }
        }
        for (code, &value) in E2M1.iter().enumerate() {
            assert_eq!(f64::from(value).to_bits(), by_definition(code, 2, 1).to_bits(), "E2M1 {code}");
        }
        for (code, &value) in E8M0.iter().enumerate() {
            match code {
                255 => assert!(value.is_nan()),
                _ => assert_eq!(f64::from(value), 2f64.powi(code as i32 - 127), "E8M0 {code}"),
            }
        }
        assert_eq!((E4M3[0x7e], E4M3[0x08], E4M3[0x01]), (448.0, 0.015625, 0.001953125));
    }

    #[test]
    fn a_byte_holds_two_values_the_lower_half_first() {
        assert_eq!(e2m1_pair(0x7a), [-1.0, 6.0]);
    }
}
