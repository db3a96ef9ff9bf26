//! Conversion of reports between controllers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use pointsman_binding::bound::FrontendId;
use pointsman_binding::{Effect, OutdatedProxies, RouteEffect};
use pointsman_resources::ObjectKey;

use crate::error::{DecodeError, parse, required};
use crate::id::ResourceId;
use crate::own_servers;
use crate::proto::{self, EffectState};
use crate::reports::{decode_report, encode_report};
use crate::server::aggregate::MergedReports;
use crate::server::service::ProxyStatus;
use crate::server::store::RemoteEffect;

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Encodes a connected proxy.
pub fn encode_proxy(proxy: &ProxyStatus) -> proto::ConnectedProxy {
    let rejected = proxy.rejected.iter();
    proto::ConnectedProxy {
        name: proxy.name.clone(),
        key: proxy.key.clone(),
        identities: proxy.identities.clone(),
        address: proxy.address.to_string(),
        software: proxy.software.clone(),
        subscription: proxy.subscription.clone(),
        connected: millis(proxy.connected),
        version: proxy.version,
        target: proxy.target,
        lag: proxy.lag.map(millis),
        resources: proxy.resources as u64,
        bytes: proxy.bytes,
        rejected: rejected
            .map(|(name, reason)| (name.clone(), reason.clone()))
            .collect(),
        rejected_count: proxy.rejected_count as u64,
    }
}

/// Decodes a proxy that is connected to a controller.
pub fn decode_proxy(
    proxy: proto::ConnectedProxy,
    controller: &str,
) -> Result<ProxyStatus, DecodeError> {
    Ok(ProxyStatus {
        address: parse(&proxy.address, "ConnectedProxy.address", "a socket address")?,
        controller: controller.to_owned(),
        key: key(proxy.key, &proxy.name),
        name: proxy.name,
        identities: proxy.identities,
        software: proxy.software,
        subscription: proxy.subscription,
        connected: Duration::from_millis(proxy.connected),
        version: proxy.version,
        target: proxy.target,
        lag: proxy.lag.map(Duration::from_millis),
        resources: usize::try_from(proxy.resources).unwrap_or(usize::MAX),
        bytes: proxy.bytes,
        rejected_count: usize::try_from(proxy.rejected_count).unwrap_or(usize::MAX),
        rejected: proxy.rejected.into_iter().collect(),
        problems: Vec::new(),
        reports_applied: false,
    })
}

/// Encodes the reports of a proxy.
pub fn encode_reports(proxy: &str, reports: &MergedReports) -> proto::StoredReports {
    // Loopback addresses are those of the proxy's machine and are sent unchanged.
    let own_servers =
        own_servers::encode(&reports.own_servers, std::net::Ipv4Addr::LOCALHOST.into());
    proto::StoredReports {
        report: Some(proto::ProxyReport {
            proxy: reports.name.clone(),
            own_servers,
            ..encode_report(&reports.changes)
        }),
        lost: reports.is_disconnected,
        key: proxy.to_owned(),
    }
}

/// Decodes what a proxy has reported, and the proxy's key. Parts that this version does not understand are left out.
pub fn decode_reports(reports: proto::StoredReports) -> Option<(String, MergedReports)> {
    let report = reports.report?;
    let merged = MergedReports {
        name: report.proxy.clone(),
        own_servers: own_servers::decode(&report.own_servers),
        changes: decode_report(report),
        is_disconnected: reports.lost,
    };
    Some((key(reports.key, &merged.name), merged))
}

/// Returns the key of a proxy. Older controllers send none.
fn key(key: String, name: &str) -> String {
    match key.is_empty() {
        true => name.to_owned(),
        false => key,
    }
}

/// Encodes the effect of a route.
pub fn encode_route(key: &ObjectKey, route: &RemoteEffect) -> proto::RouteReport {
    let effects = match route.effect.as_deref() {
        None => Vec::new(),
        Some(RouteEffect::Uniform(effect)) => vec![encode_effect(Vec::new(), effect)],
        Some(RouteEffect::PerFrontend(all)) => {
            let all = all.iter();
            let name = |id: &FrontendId| ResourceId::Frontend(id.clone()).name();
            all.map(|(id, effect)| encode_effect(vec![name(id)], effect))
                .collect()
        }
    };
    proto::RouteReport {
        route: Some(key.into()),
        version: route.version,
        effects,
    }
}

fn encode_effect(frontends: Vec<String>, effect: &Effect) -> proto::EffectReport {
    let mut report = proto::EffectReport {
        frontends,
        ..proto::EffectReport::default()
    };
    let state = match effect {
        Effect::NoProxy => EffectState::NoProxy,
        Effect::Reconnecting => EffectState::Reconnecting,
        Effect::InEffect => EffectState::InEffect,
        Effect::Pending => EffectState::Pending,
        Effect::Partial(outdated) => {
            let rejections = outdated.rejections.iter();
            report.lagging = outdated.lagging.iter().map(ToString::to_string).collect();
            report.has_more_lagging = outdated.has_more_lagging;
            report.since = outdated.since;
            report.rejections = rejections
                .map(|(proxy, resource, reason)| proto::ResourceRejection {
                    proxy: proxy.to_string(),
                    resource: resource.to_string(),
                    message: reason.to_string(),
                })
                .collect();
            report.has_more_rejections = outdated.has_more_rejections;
            EffectState::Partial
        }
    };
    report.set_state(state);
    report
}

/// Decodes the effect of a route.
pub fn decode_route(report: proto::RouteReport) -> Result<(ObjectKey, RemoteEffect), DecodeError> {
    let key = required(report.route, "RouteReport.route")?.try_into()?;
    let mut uniform = None;
    let mut per_frontend = BTreeMap::new();
    for mut effect in report.effects {
        let frontends = std::mem::take(&mut effect.frontends);
        let effect = decode_effect(effect)?;
        if frontends.is_empty() {
            uniform = Some(effect.clone());
        }
        for name in frontends {
            let ResourceId::Frontend(id) = name.parse()? else {
                return Err(DecodeError::invalid(
                    "EffectReport.frontends",
                    name,
                    "a frontend",
                ));
            };
            per_frontend.insert(id, effect.clone());
        }
    }
    let effect = match uniform {
        Some(uniform) => Some(RouteEffect::Uniform(uniform)),
        None if per_frontend.is_empty() => None,
        None => Some(RouteEffect::PerFrontend(per_frontend)),
    };
    Ok((
        key,
        RemoteEffect {
            version: report.version,
            effect: effect.map(Arc::new),
        },
    ))
}

fn decode_effect(report: proto::EffectReport) -> Result<Effect, DecodeError> {
    Ok(match report.state() {
        EffectState::NoProxy => Effect::NoProxy,
        EffectState::Reconnecting => Effect::Reconnecting,
        EffectState::InEffect => Effect::InEffect,
        EffectState::Pending => Effect::Pending,
        EffectState::Partial => {
            let rejections = report.rejections.into_iter();
            Effect::Partial(Arc::new(OutdatedProxies {
                lagging: report.lagging.into_iter().map(Into::into).collect(),
                has_more_lagging: report.has_more_lagging,
                since: report.since,
                rejections: rejections
                    .map(|r| (r.proxy.into(), r.resource.into(), r.message.into()))
                    .collect(),
                has_more_rejections: report.has_more_rejections,
            }))
        }
        EffectState::Unspecified => return Err(DecodeError::Unset("EffectReport.state")),
    })
}

#[cfg(test)]
mod tests {
    use pointsman_resources::{Kind, Name};

    use super::*;

    #[test]
    fn a_decoded_effect_is_the_one_that_was_encoded() {
        let listener = |name: &str| FrontendId::Listener {
            gateway: Name::new("infra", "edge"),
            owner: ObjectKey::new(Kind::Gateway, "infra", "edge"),
            listener: name.into(),
        };
        let partial = Effect::Partial(Arc::new(OutdatedProxies {
            lagging: ["edge-1".into()].into(),
            has_more_lagging: true,
            since: Some(7),
            rejections: [("edge-2".into(), "rule/a".into(), "no filter".into())].into(),
            has_more_rejections: true,
        }));
        let effects = [
            None,
            Some(RouteEffect::Uniform(Effect::NoProxy)),
            Some(RouteEffect::Uniform(Effect::Reconnecting)),
            Some(RouteEffect::PerFrontend(
                [
                    (listener("a"), Effect::InEffect),
                    (listener("b"), Effect::Pending),
                    (listener("c"), partial),
                ]
                .into(),
            )),
        ];
        let key = ObjectKey::new(Kind::HTTPRoute, "shop", "web");
        for effect in effects {
            let effect = RemoteEffect {
                version: 5,
                effect: effect.map(Arc::new),
            };
            let decoded = decode_route(encode_route(&key, &effect));
            assert_eq!(decoded, Ok((key.clone(), effect)));
        }
    }
}
