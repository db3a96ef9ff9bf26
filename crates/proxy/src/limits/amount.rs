//! How much a limit may be, as it is written and as it is kept.

use std::time::Duration;

use pointsman_binding::bound::duration;

/// What a limit is measured in. Amounts are in bytes, in ones, or in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    Bytes,
    Number,
    Time,
}

/// Powers of 1024, the largest first.
const SIZES: [(&str, u64); 3] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];

/// Parts of time, the largest first (GEP-2257).
const TIMES: [(&str, u64); 4] = [("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

impl Unit {
    /// The amount that is written so.
    pub(crate) fn read(self, text: &str) -> Option<u64> {
        match self {
            Unit::Number => number(text),
            Unit::Bytes => {
                let sized = SIZES.iter().find_map(|(unit, size)| {
                    let amount = number(text.strip_suffix(unit)?)?;
                    amount.checked_mul(*size)
                });
                sized.or_else(|| number(text))
            }
            // GEP-2257: no more than four numbers of five digits with their units.
            Unit::Time if text.len() <= 28 => u64::try_from(duration(text)?.as_millis()).ok(),
            Unit::Time => None,
        }
    }

    /// As it is written.
    pub(crate) fn text(self, amount: u64) -> String {
        match self {
            Unit::Number => amount.to_string(),
            Unit::Bytes => {
                let fits = |(_, size): &&(&str, u64)| amount > 0 && amount.is_multiple_of(*size);
                match SIZES.iter().find(fits) {
                    Some((unit, size)) => format!("{}{unit}", amount / size),
                    None => amount.to_string(),
                }
            }
            Unit::Time => {
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
    pub(crate) fn what(self) -> &'static str {
        match self {
            Unit::Bytes => "a number of bytes (such as 65536 or 64KiB)",
            Unit::Number => "a number",
            Unit::Time => "a time (such as 10s or 500ms)",
        }
    }
}

/// Digits and nothing else: `+1` is no number here.
fn number(text: &str) -> Option<u64> {
    text.bytes()
        .all(|byte| byte.is_ascii_digit())
        .then(|| text.parse().ok())?
}

/// How a limit's amount is kept.
pub(crate) trait Amount {
    /// The amount; none if it is without end.
    fn get(&self) -> Option<u64>;

    /// Takes an amount; false if it can't be one.
    fn set(&mut self, amount: Option<u64>) -> bool;
}

/// Numbers that always are.
macro_rules! numbers {
    ($($type:ty)*) => {$(
        impl Amount for $type {
            fn get(&self) -> Option<u64> {
                u64::try_from(*self).ok()
            }

            fn set(&mut self, amount: Option<u64>) -> bool {
                let fitting = amount.and_then(|amount| amount.try_into().ok());
                *self = fitting.unwrap_or(*self);
                fitting.is_some()
            }
        }
    )*};
}

numbers!(usize u32 u64);

impl Amount for Duration {
    fn get(&self) -> Option<u64> {
        u64::try_from(self.as_millis()).ok()
    }

    fn set(&mut self, amount: Option<u64>) -> bool {
        *self = amount.map_or(*self, Duration::from_millis);
        amount.is_some()
    }
}

/// What may be without end.
impl<T: Amount + Default> Amount for Option<T> {
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
