//! Types of scalars, resolved as by the YAML library of kubectl, which mostly follows YAML 1.1.

use serde_json::Number;

use super::Value;

/// Resolves a plain scalar without a tag.
pub(super) fn plain(text: &str) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Value::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            return Value::Bool(true);
        }
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            return Value::Bool(false);
        }
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => {
            return Value::Float(f64::INFINITY);
        }
        "-.inf" | "-.Inf" | "-.INF" => return Value::Float(f64::NEG_INFINITY),
        ".nan" | ".NaN" | ".NAN" => return Value::Float(f64::NAN),
        _ => {}
    }
    // Fast path for words, which are most scalars.
    if !text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '-' | '+' | '.')) {
        return Value::String(text.to_owned());
    }
    let digits = text.replace('_', "");
    integer(&digits)
        .map(Value::Int)
        .or_else(|| float(&digits).map(whole_or_float))
        .unwrap_or_else(|| Value::String(text.to_owned()))
}

/// Resolves a scalar with a tag of the YAML core schema, such as `!!str`. Returns `None` if the text does not have the type of the tag.
pub(super) fn tagged(tag: &str, text: &str) -> Option<Value> {
    let value = plain(text);
    match (tag, &value) {
        ("str" | "binary" | "timestamp", _) => Some(Value::String(text.to_owned())),
        ("null", Value::Null) | ("bool", Value::Bool(_)) | ("int", Value::Int(_)) => Some(value),
        ("float", Value::Int(_) | Value::Float(_)) => Some(value),
        _ => None,
    }
}

/// Converts a JSON number to a value.
pub(super) fn number(number: &Number) -> Value {
    match (number.as_i64(), number.as_f64()) {
        (Some(integer), _) => Value::Int(integer),
        (None, Some(float)) => whole_or_float(float),
        (None, None) => Value::String(number.to_string()),
    }
}

/// Converts a number without a fractional part to an integer, as the API server does.
fn whole_or_float(float: f64) -> Value {
    // The bounds of i64 are powers of two, which floats represent exactly.
    const LIMIT: f64 = (1_u64 << 63) as f64;
    if float.fract() == 0.0 && (-LIMIT..LIMIT).contains(&float) {
        Value::Int(float as i64)
    } else {
        Value::Float(float)
    }
}

/// Parses a decimal, hexadecimal (`0x1f`), octal (`0o17`, `017`) or binary (`0b1`) integer with an optional sign.
fn integer(text: &str) -> Option<i64> {
    let (negative, digits) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let (digits, radix) = match digits.as_bytes() {
        [b'0', b'x' | b'X', ..] => (&digits[2..], 16),
        [b'0', b'o' | b'O', ..] => (&digits[2..], 8),
        [b'0', b'b' | b'B', ..] => (&digits[2..], 2),
        [b'0', _, ..] => (&digits[1..], 8),
        _ => (digits, 10),
    };
    // Reject a second sign, which `from_str_radix` would accept.
    if !digits.starts_with(|c: char| c.is_ascii_hexdigit()) {
        return None;
    }
    let magnitude = i128::from(u64::from_str_radix(digits, radix).ok()?);
    i64::try_from(if negative { -magnitude } else { magnitude }).ok()
}

fn float(text: &str) -> Option<f64> {
    let is_numeric = text
        .bytes()
        .all(|b| b.is_ascii_digit() || matches!(b, b'-' | b'+' | b'.' | b'e' | b'E'))
        && text.bytes().any(|b| b.is_ascii_digit());
    is_numeric
        .then(|| text.parse().ok())?
        .filter(|float: &f64| float.is_finite())
}
