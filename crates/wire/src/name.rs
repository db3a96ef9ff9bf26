//! Names, ages, tags and transports.

use pointsman_binding::bound::{Tags, Transport};
use pointsman_resources::{Age, Kind, Name, ObjectKey};

use crate::error::{DecodeError, convert, required};
use crate::proto;

impl From<&Name> for proto::Name {
    fn from(name: &Name) -> Self {
        proto::Name {
            namespace: name.namespace.to_string(),
            name: name.name.to_string(),
        }
    }
}

impl From<proto::Name> for Name {
    fn from(name: proto::Name) -> Self {
        Name::new(name.namespace, name.name)
    }
}

impl From<&ObjectKey> for proto::ObjectKey {
    fn from(key: &ObjectKey) -> Self {
        proto::ObjectKey {
            group: key.kind.group().to_owned(),
            kind: key.kind.name().to_owned(),
            name: Some((&key.name).into()),
        }
    }
}

impl TryFrom<proto::ObjectKey> for ObjectKey {
    type Error = DecodeError;

    fn try_from(key: proto::ObjectKey) -> Result<Self, DecodeError> {
        Ok(ObjectKey {
            kind: find_kind(&key.group, &key.kind)?,
            name: required(key.name, "ObjectKey.name")?.into(),
        })
    }
}

impl From<Kind> for proto::RouteKind {
    fn from(kind: Kind) -> Self {
        proto::RouteKind {
            group: kind.group().to_owned(),
            kind: kind.name().to_owned(),
        }
    }
}

impl TryFrom<proto::RouteKind> for Kind {
    type Error = DecodeError;

    fn try_from(kind: proto::RouteKind) -> Result<Self, DecodeError> {
        find_kind(&kind.group, &kind.kind)
    }
}

fn find_kind(group: &str, kind: &str) -> Result<Kind, DecodeError> {
    let unknown = || {
        let found = format!("{group}/{kind}");
        DecodeError::invalid("kind", found, "a kind that this version supports")
    };
    Kind::find(group, kind).ok_or_else(unknown)
}

impl From<Age> for proto::Age {
    fn from(age: Age) -> Self {
        use proto::age::Age as Message;
        let age = match age {
            Age::At(seconds) => Message::CreatedAt(seconds),
            Age::InputOrder(position) => Message::Position(position),
        };
        proto::Age { age: Some(age) }
    }
}

impl TryFrom<proto::Age> for Age {
    type Error = DecodeError;

    fn try_from(age: proto::Age) -> Result<Self, DecodeError> {
        use proto::age::Age as Message;
        Ok(match required(age.age, "Age.age")? {
            Message::CreatedAt(seconds) => Age::At(seconds),
            Message::Position(position) => Age::InputOrder(position),
        })
    }
}

/// Decodes an age, which is required in every message that has one.
pub(crate) fn decode_age(age: Option<proto::Age>) -> Result<Age, DecodeError> {
    convert(age, "age")
}

/// Encodes tags.
pub(crate) fn encode_tags(tags: &Tags) -> Vec<proto::Tag> {
    let tags = tags.iter().map(|(name, value)| proto::Tag {
        name: name.to_owned(),
        value: value.to_owned(),
    });
    tags.collect()
}

/// Decodes tags.
pub(crate) fn decode_tags(tags: &[proto::Tag]) -> Tags {
    tags.iter()
        .map(|tag| (tag.name.as_str(), tag.value.as_str()))
        .collect()
}

impl From<Transport> for proto::Transport {
    fn from(transport: Transport) -> Self {
        match transport {
            Transport::Tcp => proto::Transport::Tcp,
            Transport::Udp => proto::Transport::Udp,
        }
    }
}

impl TryFrom<proto::Transport> for Transport {
    type Error = DecodeError;

    fn try_from(transport: proto::Transport) -> Result<Self, DecodeError> {
        match transport {
            proto::Transport::Tcp => Ok(Transport::Tcp),
            proto::Transport::Udp => Ok(Transport::Udp),
            proto::Transport::Unspecified => Err(DecodeError::Unset("transport")),
        }
    }
}
