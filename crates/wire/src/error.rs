//! Decoding errors, and checks that most messages share.

use std::fmt::Display;
use std::str::FromStr;
use std::time::Duration;

use thiserror::Error;

/// An error in a received resource. The sender is at fault, or newer than this version, so a retry does not help.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DecodeError {
    /// A required field or `oneof` is not set. A newer sender may have set a case that this version does not know.
    #[error("{0} is not set, or its value is not supported by this version")]
    Unset(&'static str),
    /// The bytes are not a message of the resource's type.
    #[error("not a valid message: {0}")]
    Malformed(#[from] prost::DecodeError),
    /// A field has a value out of its range.
    #[error("{field}: found `{found}`, expected {expected}")]
    Invalid {
        /// Name of the field.
        field: &'static str,
        /// The value received.
        found: String,
        /// Description of valid values.
        expected: &'static str,
    },
}

impl DecodeError {
    /// Creates an error for a value that is out of range.
    pub(crate) fn invalid(
        field: &'static str,
        found: impl Display,
        expected: &'static str,
    ) -> Self {
        DecodeError::Invalid {
            field,
            found: found.to_string(),
            expected,
        }
    }
}

/// Returns the value of a required field.
pub(crate) fn required<T>(value: Option<T>, field: &'static str) -> Result<T, DecodeError> {
    value.ok_or(DecodeError::Unset(field))
}

/// Converts the value of a required field.
pub(crate) fn convert<P, T: TryFrom<P, Error = DecodeError>>(
    value: Option<P>,
    field: &'static str,
) -> Result<T, DecodeError> {
    required(value, field)?.try_into()
}

/// Converts each item of a list.
pub(crate) fn convert_all<P, T, C>(values: Vec<P>) -> Result<C, DecodeError>
where
    T: TryFrom<P, Error = DecodeError>,
    C: FromIterator<T>,
{
    // Collecting in place would keep the larger allocation of the messages.
    let mut converted = Vec::with_capacity(values.len());
    for value in values {
        converted.push(T::try_from(value)?);
    }
    Ok(converted.into_iter().collect())
}

/// Converts an optional message.
pub(crate) fn convert_optional<P, T: TryFrom<P, Error = DecodeError>>(
    value: Option<P>,
) -> Result<Option<T>, DecodeError> {
    value.map(T::try_from).transpose()
}

/// Checks a 16-bit number: a port or a status code.
pub(crate) fn to_u16(value: u32, field: &'static str) -> Result<u16, DecodeError> {
    u16::try_from(value).map_err(|_| DecodeError::invalid(field, value, "0 to 65535"))
}

/// Checks an index.
pub(crate) fn to_index(value: u64, field: &'static str) -> Result<usize, DecodeError> {
    usize::try_from(value).map_err(|_| DecodeError::invalid(field, value, "an index"))
}

/// Parses an IP address or socket address.
pub(crate) fn parse<T: FromStr>(
    text: &str,
    field: &'static str,
    expected: &'static str,
) -> Result<T, DecodeError> {
    text.parse()
        .map_err(|_| DecodeError::invalid(field, text, expected))
}

/// Parses IP addresses.
pub(crate) fn parse_ips(
    texts: &[String],
    field: &'static str,
) -> Result<Vec<std::net::IpAddr>, DecodeError> {
    let parsed = texts.iter().map(|text| parse(text, field, "an IP address"));
    parsed.collect()
}

/// Encodes a duration. Durations of the bound form never exceed the range of the message.
pub(crate) fn encode_duration(duration: Duration) -> prost_types::Duration {
    prost_types::Duration {
        seconds: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        nanos: duration.subsec_nanos() as i32,
    }
}

/// Decodes a duration that is not negative.
pub(crate) fn decode_duration(
    duration: prost_types::Duration,
    field: &'static str,
) -> Result<Duration, DecodeError> {
    Duration::try_from(duration)
        .map_err(|_| DecodeError::invalid(field, duration, "a duration that is not negative"))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Message(u64, [u64; 3]);

    struct Converted(u64);

    impl TryFrom<Message> for Converted {
        type Error = DecodeError;

        fn try_from(message: Message) -> Result<Self, DecodeError> {
            Ok(Converted(message.0 + message.1[0]))
        }
    }

    // A proxy keeps thousands of short lists.
    #[test]
    fn a_converted_list_keeps_no_room_of_the_messages() {
        let mut messages = Vec::with_capacity(4);
        messages.push(Message(1, [2; 3]));
        let converted: Vec<Converted> = convert_all(messages).expect("valid messages");
        let numbers: Vec<u64> = converted.iter().map(|one| one.0).collect();
        assert_eq!((numbers, converted.capacity()), (vec![3], 1));
    }
}
