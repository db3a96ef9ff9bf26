//! Values of limits: parsing, formatting and storage.

use std::time::Duration;

use pointsman_binding::bound::duration;

/// The unit of a limit. Values are in bytes, without a unit, or in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LimitUnit {
    Bytes,
    Number,
    Time,
}

/// Suffixes of sizes, largest first.
const SIZES: [(&str, u64); 3] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];

/// Units of durations, largest first (GEP-2257).
const TIMES: [(&str, u64); 4] = [("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

impl LimitUnit {
    /// Parses a value.
    pub(crate) fn parse(self, text: &str) -> Option<u64> {
        match self {
            LimitUnit::Number => parse_digits(text),
            LimitUnit::Bytes => {
                let sized = SIZES.iter().find_map(|(unit, size)| {
                    let amount = parse_digits(text.strip_suffix(unit)?)?;
                    amount.checked_mul(*size)
                });
                sized.or_else(|| parse_digits(text))
            }
            // GEP-2257: at most four numbers of up to five digits with units.
            LimitUnit::Time if text.len() <= 28 => u64::try_from(duration(text)?.as_millis()).ok(),
            LimitUnit::Time => None,
        }
    }

    /// Formats a value.
    pub(crate) fn format(self, amount: u64) -> String {
        match self {
            LimitUnit::Number => amount.to_string(),
            LimitUnit::Bytes => {
                let fits = |(_, size): &&(&str, u64)| amount > 0 && amount.is_multiple_of(*size);
                match SIZES.iter().find(fits) {
                    Some((unit, size)) => format!("{}{unit}", amount / size),
                    None => amount.to_string(),
                }
            }
            LimitUnit::Time => {
                let mut rest = amount;
                let mut text = String::new();
                for (unit, size) in TIMES {
                    if rest >= size {
                        text.push_str(&format!("{}{unit}", rest / size));
                        rest %= size;
                    }
                }
                match text.is_empty() {
                    true => "0s".to_owned(),
                    false => text,
                }
            }
        }
    }

    /// Describes the expected syntax, for error messages.
    pub(crate) fn expected(self) -> &'static str {
        match self {
            LimitUnit::Bytes => "a number of bytes (such as 65536 or 64KiB)",
            LimitUnit::Number => "a number",
            LimitUnit::Time => "a time (such as 10s or 500ms)",
        }
    }
}

/// Parses digits only, so `+1` is rejected.
fn parse_digits(text: &str) -> Option<u64> {
    text.bytes()
        .all(|byte| byte.is_ascii_digit())
        .then(|| text.parse().ok())?
}

/// A type in which a limit is stored.
pub(crate) trait LimitValue {
    /// Returns the value; `None` if unlimited.
    fn get(&self) -> Option<u64>;

    /// Sets the value. Returns false if the type can't represent it.
    fn set(&mut self, amount: Option<u64>) -> bool;
}

/// Implements [`LimitValue`] for types that can't be unlimited.
macro_rules! numbers {
    ($($type:ty)*) => {$(
        impl LimitValue for $type {
            fn get(&self) -> Option<u64> {
                u64::try_from(*self).ok()
            }

            fn set(&mut self, amount: Option<u64>) -> bool {
                let converted = amount.and_then(|amount| amount.try_into().ok());
                *self = converted.unwrap_or(*self);
                converted.is_some()
            }
        }
    )*};
}

numbers!(usize u32 u64);

impl LimitValue for Duration {
    fn get(&self) -> Option<u64> {
        u64::try_from(self.as_millis()).ok()
    }

    fn set(&mut self, amount: Option<u64>) -> bool {
        *self = amount.map_or(*self, Duration::from_millis);
        amount.is_some()
    }
}

/// Optional limits.
impl<T: LimitValue + Default> LimitValue for Option<T> {
    fn get(&self) -> Option<u64> {
        self.as_ref()?.get()
    }

    fn set(&mut self, amount: Option<u64>) -> bool {
        let Some(amount) = amount else {
            *self = None;
            return true;
        };
        let mut inner = T::default();
        let fits = inner.set(Some(amount));
        if fits {
            *self = Some(inner);
        }
        fits
    }
}
