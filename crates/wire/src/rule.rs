//! Rules: weighted backends and faults. A filter or target that this version does not know is replaced by a fault with status 500.

use std::time::Duration;

use pointsman_binding::bound::{
    BackendId, BackendName, BoundRule, Fault, FaultReason, RetryPolicy, RuleId, RuleSource,
    WeightedBackend,
};

use crate::error::{
    DecodeError, convert, convert_all, convert_optional, decode_duration, encode_duration,
    required, to_index, to_u16,
};
use crate::filter::decode_filters;
use crate::name::{decode_tags, encode_tags};
use crate::proto;

impl From<&BoundRule> for proto::Rule {
    fn from(rule: &BoundRule) -> Self {
        let BoundRule {
            index: _,
            part: _,
            name,
            matches,
            filters,
            backends,
            fault,
            request_timeout,
            backend_timeout,
            retry,
            from,
        } = rule;
        proto::Rule {
            name: name.as_deref().map(str::to_owned),
            matches: matches.iter().map(Into::into).collect(),
            filters: filters.iter().map(Into::into).collect(),
            backends: backends.iter().map(Into::into).collect(),
            fault: fault.as_ref().map(Into::into),
            request_timeout: request_timeout.map(encode_duration),
            backend_timeout: backend_timeout.map(encode_duration),
            retry: retry.as_ref().map(Into::into),
            sources: from.iter().map(Into::into).collect(),
        }
    }
}

impl proto::Rule {
    /// Decodes the rule with this id.
    pub(crate) fn with_id(self, id: &RuleId) -> Result<BoundRule, DecodeError> {
        let filters = decode_filters(self.filters)?;
        let fault = convert_optional(self.fault)?;
        let (filters, fault) = match filters {
            Some(filters) => (filters, fault),
            None => (Vec::new(), fault.or_else(|| Some(unsupported("filter")))),
        };
        Ok(BoundRule {
            index: id.index,
            part: id.part,
            name: self.name.map(Into::into),
            matches: convert_all(self.matches)?,
            filters,
            backends: convert_all(self.backends)?,
            fault,
            request_timeout: timeout(self.request_timeout, "Rule.request_timeout")?,
            backend_timeout: timeout(self.backend_timeout, "Rule.backend_timeout")?,
            retry: convert_optional(self.retry)?,
            from: convert_all(self.sources)?,
        })
    }
}

/// Creates a fault that replaces a part of a rule that this version does not know.
pub(crate) fn unsupported(part: &str) -> Fault {
    let message = format!("the control plane sent a {part} that this version does not know");
    Fault::new(500, FaultReason::UnsupportedValue, message)
}

fn timeout(
    duration: Option<prost_types::Duration>,
    field: &'static str,
) -> Result<Option<Duration>, DecodeError> {
    let decoded = duration.map(|duration| decode_duration(duration, field));
    decoded.transpose()
}

impl From<&WeightedBackend> for proto::WeightedBackend {
    fn from(backend: &WeightedBackend) -> Self {
        proto::WeightedBackend {
            reference: Some((&backend.reference).into()),
            weight: backend.weight,
            target: Some(encode_target(&backend.target)),
            filters: backend.filters.iter().map(Into::into).collect(),
        }
    }
}

impl TryFrom<proto::WeightedBackend> for WeightedBackend {
    type Error = DecodeError;

    fn try_from(backend: proto::WeightedBackend) -> Result<Self, DecodeError> {
        let (filters, target) = match decode_filters(backend.filters)? {
            Some(filters) => (filters, decode_target(backend.target)?),
            None => (Vec::new(), Err(unsupported("filter"))),
        };
        Ok(WeightedBackend {
            reference: convert(backend.reference, "WeightedBackend.reference")?,
            weight: backend.weight,
            target,
            filters,
        })
    }
}

pub(crate) fn encode_target(target: &Result<BackendId, Fault>) -> proto::Target {
    use proto::target::Target as Message;
    let target = match target {
        Ok(backend) => Message::Backend(backend.into()),
        Err(fault) => Message::Fault(fault.into()),
    };
    proto::Target {
        target: Some(target),
    }
}

pub(crate) fn decode_target(
    target: Option<proto::Target>,
) -> Result<Result<BackendId, Fault>, DecodeError> {
    use proto::target::Target as Message;
    Ok(match target.and_then(|target| target.target) {
        Some(Message::Backend(backend)) => Ok(backend.try_into()?),
        Some(Message::Fault(fault)) => Err(fault.try_into()?),
        None => Err(unsupported("target")),
    })
}

impl From<&BackendName> for proto::BackendName {
    fn from(name: &BackendName) -> Self {
        proto::BackendName {
            kind: name.kind.to_string(),
            name: Some((&name.name).into()),
            port: name.port.map(Into::into),
            tags: encode_tags(&name.tags),
        }
    }
}

impl TryFrom<proto::BackendName> for BackendName {
    type Error = DecodeError;

    fn try_from(name: proto::BackendName) -> Result<Self, DecodeError> {
        let port = name.port.map(|port| to_u16(port, "BackendName.port"));
        Ok(BackendName {
            kind: name.kind.into(),
            name: required(name.name, "BackendName.name")?.into(),
            port: port.transpose()?,
            tags: decode_tags(&name.tags),
        })
    }
}

impl From<&Fault> for proto::Fault {
    fn from(fault: &Fault) -> Self {
        proto::Fault {
            status: fault.status.into(),
            reason: fault.reason.as_str().to_owned(),
            message: fault.message.clone(),
        }
    }
}

impl TryFrom<proto::Fault> for Fault {
    type Error = DecodeError;

    fn try_from(fault: proto::Fault) -> Result<Self, DecodeError> {
        let status = match fault.status {
            400..=599 => to_u16(fault.status, "Fault.status")?,
            other => return Err(DecodeError::invalid("Fault.status", other, "400 to 599")),
        };
        let reason = FaultReason::parse(&fault.reason);
        Ok(Fault::new(status, reason, fault.message))
    }
}

impl From<&RetryPolicy> for proto::RetryPolicy {
    fn from(retry: &RetryPolicy) -> Self {
        proto::RetryPolicy {
            codes: retry.codes.iter().map(|&code| code.into()).collect(),
            attempts: retry.attempts,
            backoff: retry.backoff.map(encode_duration),
        }
    }
}

impl TryFrom<proto::RetryPolicy> for RetryPolicy {
    type Error = DecodeError;

    fn try_from(retry: proto::RetryPolicy) -> Result<Self, DecodeError> {
        let codes = retry.codes.into_iter();
        let codes = codes.map(|code| to_u16(code, "RetryPolicy.codes"));
        Ok(RetryPolicy {
            codes: codes.collect::<Result<_, _>>()?,
            attempts: retry.attempts,
            backoff: timeout(retry.backoff, "RetryPolicy.backoff")?,
        })
    }
}

impl From<&RuleSource> for proto::RuleSource {
    fn from(source: &RuleSource) -> Self {
        proto::RuleSource {
            policy: Some((&source.policy).into()),
            to: source.to.map(|to| to as u64),
            rule: source.rule as u64,
        }
    }
}

impl TryFrom<proto::RuleSource> for RuleSource {
    type Error = DecodeError;

    fn try_from(source: proto::RuleSource) -> Result<Self, DecodeError> {
        let to = source.to.map(|to| to_index(to, "RuleSource.to"));
        Ok(RuleSource {
            policy: convert(source.policy, "RuleSource.policy")?,
            to: to.transpose()?,
            rule: to_index(source.rule, "RuleSource.rule")?,
        })
    }
}
