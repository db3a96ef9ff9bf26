//! The condition `pointsman.io/InEffect`, with proxies that stop, reconnect and reject resources.

use std::time::Duration;

use bytes::Bytes;
use h2::SendStream;
use pointsman_wire::proto;
use pointsman_wire::xds::core::Node;
use pointsman_wire::xds::discovery::{DeltaDiscoveryRequest, DeltaDiscoveryResponse};
use pointsman_wire::xds::google::rpc;
use prost::Message;
use serde_json::Value;

use crate::plane::Plane;
use crate::support::http2::{Http2, Messages, call, frame};
use crate::support::manifests::*;
use crate::support::{eventually, within};

/// A Gateway and a route that redirects to a port, which stands for its version.
pub fn version(port: u16) -> String {
    let filter =
        format!("{{filters: [{{type: RequestRedirect, requestRedirect: {{port: {port}}}}}]}}");
    [plain(), route("web", &[&filter])].concat()
}

// "True when every connected proxy that serves it runs this generation; False naming the proxies that lag and since when"
#[tokio::test]
async fn a_stopped_proxy_is_named_until_it_runs_the_change() {
    let plane = Plane::start(&version(1)).await;
    let _first = plane.proxy("edge-1", &[]).await;
    let second = plane.proxy("edge-2", &["--gateway", "default/edge"]).await;
    let before = plane.until_effect("web", "True", "InEffect").await;
    assert_eq!(before["message"], "");

    second.signal("STOP");
    plane.write(&version(2));
    let lagging = plane.until_effect("web", "False", "Lagging").await;
    let message = lagging["message"].as_str().expect("a message");
    assert!(
        message.starts_with("not acknowledged by edge-2 since 20"),
        "{message}"
    );
    assert!(plane.log().contains("InEffect=False Lagging"));
    assert_eq!(plane.metric("pointsman_xds_lagging_proxies").await, 1.0);
    assert_eq!(plane.metric("pointsman_xds_pending_routes").await, 1.0);

    second.signal("CONT");
    plane.until_effect("web", "True", "InEffect").await;
    assert_eq!(plane.metric("pointsman_xds_lagging_proxies").await, 0.0);
    assert_eq!(plane.metric("pointsman_xds_pending_routes").await, 0.0);
    assert!(plane.metric("pointsman_xds_effect_seconds_count").await >= 1.0);
}

#[tokio::test]
async fn a_lag_is_logged_as_resolved_once_the_change_is_in_effect() {
    let plane = Plane::start(&version(1)).await;
    let proxy = plane.proxy("edge-1", &[]).await;
    plane.until_effect("web", "True", "InEffect").await;
    proxy.signal("STOP");
    plane.write(&version(2));
    plane.until_effect("web", "False", "Lagging").await;
    drop(proxy);
    plane
        .until_effect("web", "Unknown", "NoProxyConnected")
        .await;
    let log = plane.log();
    let unknown = "InEffect=Unknown NoProxyConnected: no proxy that serves it is connected";
    let line = log.lines().find(|line| line.contains(unknown));
    assert!(line.is_some_and(|line| line.contains("INFO")), "{log}");
    assert!(!log.contains("resolved: "), "{log}");

    let _proxy = plane.proxy("edge-1", &[]).await;
    plane.until_effect("web", "True", "InEffect").await;
    eventually("it is logged", || async {
        plane.log().contains("INFO resolved: ")
    })
    .await;
}

#[tokio::test]
async fn a_proxy_whose_gateway_does_not_exist_is_logged() {
    let plane = Plane::start(&version(1)).await;
    let _serving = plane.proxy("edge-1", &["--gateway", "default/edge"]).await;
    let _other = plane.proxy("edge-2", &["--gateway", "nope/nope"]).await;
    let log = plane.log();
    let expected =
        "WARN proxy edge-2 subscribes to gateway/nope/nope, for which there is no configuration";
    assert!(log.contains(expected), "{log}");
    assert!(!log.contains("proxy edge-1 subscribes"), "{log}");
}

// "keeps its transition time": a change that is in effect at once is no transition.
#[tokio::test]
async fn an_ordinary_change_keeps_the_transition_time_and_reports_no_problem() {
    let plane = Plane::start(&version(1)).await;
    let _proxy = plane.proxy("edge-1", &[]).await;
    let before = plane.until_effect("web", "True", "InEffect").await;
    // Times have seconds.
    tokio::time::sleep(Duration::from_millis(1100)).await;
    for port in 2..6 {
        let effects = plane.metric("pointsman_xds_effect_seconds_count").await;
        plane.write(&version(port));
        eventually("the change is in effect", || async {
            plane.metric("pointsman_xds_effect_seconds_count").await > effects
        })
        .await;
    }
    let after = plane.until_effect("web", "True", "InEffect").await;
    assert_eq!(after, before);
    assert!(!plane.log().contains("InEffect"), "{}", plane.log());
}

// "Unknown when no proxy that serves it is connected"
#[tokio::test]
async fn without_a_proxy_that_serves_it_the_effect_is_unknown() {
    let plane = Plane::start(&version(1)).await;
    let other = plane.proxy("other", &["--gateway", "default/other"]).await;
    let condition = plane.condition("web", "pointsman.io/InEffect").await;
    assert_eq!(condition["status"], "Unknown", "{condition}");
    let proxy = plane.proxy("edge-1", &[]).await;
    plane.until_effect("web", "True", "InEffect").await;
    drop(proxy);
    plane
        .until_effect("web", "Unknown", "NoProxyConnected")
        .await;
    drop(other);
    let (_, page) = plane.controller.page("/status").await;
    let page: Value = serde_json::from_str(&page).expect("JSON");
    assert_eq!(page["errors"], Value::Array(Vec::new()));
}

// "True carries no counts, so that scaling proxies writes no status."
#[tokio::test]
async fn more_and_fewer_proxies_change_no_status() {
    let plane = Plane::start(&version(1)).await;
    let _first = plane.proxy("edge-1", &[]).await;
    let before = plane.until_effect("web", "True", "InEffect").await;
    let (_, status) = plane.controller.page("/status").await;
    let others = [
        plane.proxy("edge-2", &[]).await,
        plane.proxy("edge-3", &[]).await,
    ];
    drop(others);
    let gone = || async { plane.metric("pointsman_xds_proxies").await == 1.0 };
    eventually("the proxies are gone", gone).await;
    assert_eq!(
        plane.condition("web", "pointsman.io/InEffect").await,
        before
    );
    // Addresses of Gateways depend on the proxies, the status of the route does not.
    let route = |page: &str| {
        let page: Value = serde_json::from_str(page).expect("JSON");
        page["items"][2].clone()
    };
    let (_, after) = plane.controller.page("/status").await;
    assert_eq!(route(&after), route(&status));
}

// With `run`, a change is in effect once it is committed. All other properties are tested in `e2e` and `run`.
#[tokio::test]
async fn a_route_that_is_not_accepted_has_no_effect() {
    let unknown = route_on(
        "[{name: edge, sectionName: none}]",
        "HTTPRoute",
        "web",
        "",
        &["{}"],
    );
    let plane = Plane::start(&[plain(), unknown].concat()).await;
    let _proxy = plane.proxy("edge-1", &[]).await;
    assert_eq!(plane.condition("web", "Accepted").await["status"], "False");
    assert!(
        plane
            .condition("web", "pointsman.io/InEffect")
            .await
            .is_null()
    );
}

const SNAPSHOT: &str = "type.googleapis.com/pointsman.v1.Snapshot";
const REJECTIONS: &str = "type.googleapis.com/pointsman.v1.Rejections";

/// A client of the protocol that rejects rules until the test stops it. Real proxies of the controller's version can use all resources that it sends.
struct Rejecting {
    requests: SendStream<Bytes>,
    responses: Messages,
    rule: String,
    _connection: Http2,
}

impl Rejecting {
    async fn connect(plane: &Plane, name: &str) -> Rejecting {
        let connection = Http2::connect(plane.xds()).await;
        let service = "envoy.service.discovery.v3.AggregatedDiscoveryService";
        let method = call(&format!("{service}/DeltaAggregatedResources"));
        let (response, mut requests) = connection.open(&method).await;
        let first = DeltaDiscoveryRequest {
            node: Some(Node {
                id: name.to_owned(),
                ..Node::default()
            }),
            type_url: SNAPSHOT.to_owned(),
            ..DeltaDiscoveryRequest::default()
        };
        requests
            .send_data(frame(&first.encode_to_vec()), false)
            .expect("sent");
        let response = within("a response", response).await.expect("a response");
        Rejecting {
            requests,
            responses: Messages::of(response.into_body()),
            rule: String::new(),
            _connection: connection,
        }
    }

    /// Receives up to the next commit, and acknowledges it. Rejects the rule if there is a reason.
    async fn receive(&mut self, reason: Option<&str>) {
        loop {
            let bytes = within("a response", self.responses.next_bytes())
                .await
                .expect("a message");
            let response = DeltaDiscoveryResponse::decode(bytes).expect("a response");
            let mut names = response.resources.iter().map(|resource| &resource.name);
            if let Some(name) = names.find(|name| name.starts_with("rule/")) {
                self.rule = name.clone();
            }
            if response.type_url != SNAPSHOT {
                continue;
            }
            let rejection = reason.map(|reason| proto::Rejection {
                name: self.rule.clone(),
                version: String::new(),
                message: reason.to_owned(),
            });
            let status = |rejection| rpc::Status {
                code: 3,
                message: "1 resource can't be used".to_owned(),
                details: vec![prost_types::Any {
                    type_url: REJECTIONS.to_owned(),
                    value: proto::Rejections {
                        rejections: vec![rejection],
                    }
                    .encode_to_vec(),
                }],
            };
            let request = DeltaDiscoveryRequest {
                type_url: SNAPSHOT.to_owned(),
                response_nonce: response.nonce,
                error_detail: rejection.map(status),
                ..DeltaDiscoveryRequest::default()
            };
            let data = frame(&request.encode_to_vec());
            self.requests.send_data(data, false).expect("sent");
            return;
        }
    }
}

// "or that rejected one of its resources and why"; "one bad resource never holds back the others, and the control plane reports which and why in status, log
// and metrics"
#[tokio::test]
async fn a_rejected_rule_is_reported_with_its_reason_until_the_proxy_accepts_it() {
    let other = route(
        "other",
        &["{filters: [{type: RequestRedirect, requestRedirect: {port: 9}}]}"],
    );
    let plane = Plane::start(&[version(1), other.clone()].concat()).await;
    let _good = plane.proxy("edge-1", &[]).await;
    let mut bad = Rejecting::connect(&plane, "edge-2").await;
    bad.receive(None).await;
    plane.until_effect("web", "True", "InEffect").await;

    plane.write(&[version(2), other.clone()].concat());
    bad.receive(Some("a filter of a newer version")).await;
    let rejected = plane.until_effect("web", "False", "Rejected").await;
    let expected = format!("edge-2 rejects {}: a filter of a newer version", bad.rule);
    assert_eq!(rejected["message"], expected.as_str());
    let own = plane.condition("other", "pointsman.io/InEffect").await;
    assert_eq!(own["status"], "True", "{own}");
    assert!(
        plane
            .log()
            .contains(&format!("proxy edge-2 can't use {}", bad.rule))
    );
    assert_eq!(plane.metric("pointsman_xds_rejected_resources").await, 1.0);

    plane.write(&[version(3), other].concat());
    bad.receive(None).await;
    plane.until_effect("web", "True", "InEffect").await;
    assert_eq!(plane.metric("pointsman_xds_rejected_resources").await, 0.0);
}

/// Metrics with types and help texts, as `/metrics` has them.
fn metrics_of(page: &str, prefix: &str) -> Vec<[String; 3]> {
    let lines: Vec<&str> = page.lines().collect();
    let heads = lines.windows(2).filter_map(|pair| {
        let (name, help) = pair[0].strip_prefix("# HELP ")?.split_once(' ')?;
        let (_, kind) = pair[1].strip_prefix("# TYPE ")?.split_once(' ')?;
        Some([name, kind, help].map(str::to_owned))
    });
    heads
        .filter(|[name, ..]| name.starts_with(prefix))
        .collect()
}

#[tokio::test]
async fn docs_control_plane_md_lists_every_metric() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/control-plane.md");
    let text = std::fs::read_to_string(path).expect("a text");
    let rows = text
        .lines()
        .filter_map(|line| line.strip_prefix("| `pointsman_"));
    let rows = rows.map(|row| {
        let cells: Vec<&str> = row.trim_end_matches(" |").split(" | ").collect();
        [
            format!("pointsman_{}", cells[0].trim_end_matches('`')),
            cells[1].to_owned(),
            cells[2].to_owned(),
        ]
    });
    // Only a controller of a cluster serves the metrics of the cluster.
    let rows = rows.filter(|[name, ..]| !name.starts_with("pointsman_kubernetes_"));
    let mut documented: Vec<[String; 3]> = rows.collect();
    let plane = Plane::start(&version(1)).await;
    let proxy = plane.proxy("edge-1", &[]).await;
    let mut served = metrics_of(&plane.controller.page("/metrics").await.1, "pointsman_xds_");
    served.extend(metrics_of(
        &proxy.page("/metrics").await.1,
        "pointsman_control_plane_",
    ));
    documented.sort();
    served.sort();
    assert_eq!(documented, served);
}
