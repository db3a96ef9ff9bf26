//! How much a limit may be, as it is written and as it is kept.

use std::time::Duration;

use pointsman_binding::bound::duration;

/// What a limit is measured in. Amounts are in bytes, in ones, or in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LimitUnit {
    Bytes,
    Number,
    Time,
}

/// Powers of 1024, the largest first.
const SIZES: [(&str, u64); 3] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];

/// Parts of time, the largest first (GEP-2257).
const TIMES: [(&str, u64); 4] = [("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

impl LimitUnit {
    /// The amount that is written so.
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
            // GEP-2257: no more than four numbers of five digits with their units.
            LimitUnit::Time if text.len() <= 28 => u64::try_from(duration(text)?.as_millis()).ok(),
            LimitUnit::Time => None,
        }
    }

    /// As it is written.
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

    /// What is to be written, for people.
    pub(crate) fn expected(self) -> &'static str {
        match self {
            LimitUnit::Bytes => "a number of bytes (such as 65536 or 64KiB)",
            LimitUnit::Number => "a number",
            LimitUnit::Time => "a time (such as 10s or 500ms)",
        }
    }
}

/// Digits and nothing else: `+1` is no number here.
fn parse_digits(text: &str) -> Option<u64> {
    text.bytes()
        .all(|byte| byte.is_ascii_digit())
        .then(|| text.parse().ok())?
}

/// How a limit's amount is kept.
pub(crate) trait LimitValue {
    /// The amount; none if it is without end.
    fn get(&self) -> Option<u64>;

    /// Takes an amount; false if it can't be one.
    fn set(&mut self, amount: Option<u64>) -> bool;
}

/// Numbers that always are.
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

/// What may be without end.
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
