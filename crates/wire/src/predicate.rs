//! Matches of rules. A rule with an unknown predicate is rejected, because without the predicate it would match too many requests.

use pointsman_binding::bound::{
    BoundMatch, GrpcPredicate, PathPredicate, Pattern, StringPredicate, ValuePredicate,
};

use crate::error::{DecodeError, convert, convert_all, convert_optional, required, to_index};
use crate::proto;

impl From<&BoundMatch> for proto::Match {
    fn from(bound: &BoundMatch) -> Self {
        let BoundMatch {
            index,
            path,
            grpc,
            method,
            headers,
            query,
        } = bound;
        proto::Match {
            index: *index as u64,
            path: Some(path.into()),
            grpc: grpc.as_ref().map(|grpc| proto::GrpcPredicate {
                service: grpc.service.as_ref().map(Into::into),
                method: grpc.method.as_ref().map(Into::into),
            }),
            method: method.as_deref().map(str::to_owned),
            headers: headers.iter().map(Into::into).collect(),
            query: query.iter().map(Into::into).collect(),
        }
    }
}

impl TryFrom<proto::Match> for BoundMatch {
    type Error = DecodeError;

    fn try_from(message: proto::Match) -> Result<Self, DecodeError> {
        Ok(BoundMatch {
            index: to_index(message.index, "Match.index")?,
            path: convert(message.path, "Match.path")?,
            grpc: convert_optional(message.grpc)?,
            method: message.method.map(Into::into),
            headers: convert_all(message.headers)?,
            query: convert_all(message.query)?,
        })
    }
}

impl TryFrom<proto::GrpcPredicate> for GrpcPredicate {
    type Error = DecodeError;

    fn try_from(message: proto::GrpcPredicate) -> Result<Self, DecodeError> {
        Ok(GrpcPredicate {
            service: convert_optional(message.service)?,
            method: convert_optional(message.method)?,
        })
    }
}

impl From<&PathPredicate> for proto::PathPredicate {
    fn from(path: &PathPredicate) -> Self {
        use proto::path_predicate::Predicate;
        let predicate = match path {
            PathPredicate::Exact(path) => Predicate::Exact(path.to_string()),
            PathPredicate::Prefix(prefix) => Predicate::Prefix(prefix.to_string()),
            PathPredicate::Regex(pattern) => Predicate::Regex(pattern.as_str().to_owned()),
            PathPredicate::Any => Predicate::Any(()),
        };
        proto::PathPredicate {
            predicate: Some(predicate),
        }
    }
}

impl TryFrom<proto::PathPredicate> for PathPredicate {
    type Error = DecodeError;

    fn try_from(message: proto::PathPredicate) -> Result<Self, DecodeError> {
        use proto::path_predicate::Predicate;
        Ok(
            match required(message.predicate, "PathPredicate.predicate")? {
                Predicate::Exact(path) => PathPredicate::Exact(path.into()),
                Predicate::Prefix(prefix) => PathPredicate::Prefix(prefix.into()),
                Predicate::Regex(text) => PathPredicate::Regex(pattern(&text)?),
                Predicate::Any(()) => PathPredicate::Any,
            },
        )
    }
}

impl From<&ValuePredicate> for proto::ValuePredicate {
    fn from(predicate: &ValuePredicate) -> Self {
        proto::ValuePredicate {
            name: predicate.name.to_string(),
            value: Some((&predicate.value).into()),
        }
    }
}

impl TryFrom<proto::ValuePredicate> for ValuePredicate {
    type Error = DecodeError;

    fn try_from(message: proto::ValuePredicate) -> Result<Self, DecodeError> {
        Ok(ValuePredicate {
            name: message.name.into(),
            value: convert(message.value, "ValuePredicate.value")?,
        })
    }
}

impl From<&StringPredicate> for proto::StringPredicate {
    fn from(predicate: &StringPredicate) -> Self {
        use proto::string_predicate::Predicate;
        let predicate = match predicate {
            StringPredicate::Exact(text) => Predicate::Exact(text.to_string()),
            StringPredicate::Regex(pattern) => Predicate::Regex(pattern.as_str().to_owned()),
            StringPredicate::Prefix(prefix) => Predicate::Prefix(prefix.to_string()),
            StringPredicate::Present => Predicate::Present(()),
            StringPredicate::Absent => Predicate::Absent(()),
        };
        proto::StringPredicate {
            predicate: Some(predicate),
        }
    }
}

impl TryFrom<proto::StringPredicate> for StringPredicate {
    type Error = DecodeError;

    fn try_from(message: proto::StringPredicate) -> Result<Self, DecodeError> {
        use proto::string_predicate::Predicate;
        Ok(
            match required(message.predicate, "StringPredicate.predicate")? {
                Predicate::Exact(text) => StringPredicate::Exact(text.into()),
                Predicate::Regex(text) => StringPredicate::Regex(pattern(&text)?),
                Predicate::Prefix(prefix) => StringPredicate::Prefix(prefix.into()),
                Predicate::Present(()) => StringPredicate::Present,
                Predicate::Absent(()) => StringPredicate::Absent,
            },
        )
    }
}

fn pattern(text: &str) -> Result<Pattern, DecodeError> {
    Pattern::new(text)
        .map_err(|_| DecodeError::invalid("regex", text, "a regular expression in RE2 syntax"))
}
