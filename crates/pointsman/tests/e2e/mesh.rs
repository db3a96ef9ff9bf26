//! Routes on Services: listeners on cluster IPs, and clients identified by their address.

use std::net::{IpAddr, SocketAddr};

use tokio::net::TcpSocket;

use crate::support::backend::Backend;
use crate::support::gateway::{Address, Gateway};
use crate::support::http1::Http1;
use crate::support::manifests::*;
use crate::support::message::*;

pub const PORT: u16 = 8080;

/// Returns a Service with a cluster IP and an endpoint.
pub fn mesh_service(name: &str, ip: IpAddr, backend: &Backend) -> String {
    format!(
        "---\napiVersion: v1\nkind: Service\nmetadata: {{name: {name}, namespace: default}}\nspec: {{clusterIP: {ip}, ports: [{{name: main, port: {PORT}, appProtocol: http}}]}}\n"
    ) + &slices(name, &[backend.address])
}

pub fn pod(name: &str, namespace: &str, ip: IpAddr) -> String {
    format!(
        "---\napiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: {namespace}}}\nstatus: {{podIP: {ip}}}\n"
    )
}

/// Returns a route in a namespace, with the Service `shop` as parent.
pub fn mesh_route(name: &str, namespace: &str, to: &str) -> String {
    format!(
        "---\napiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {{name: {name}, namespace: {namespace}}}\nspec:\n  \
         parentRefs: [{{group: '', kind: Service, name: shop, namespace: default, port: {PORT}}}]\n  rules: [{{backendRefs: [{{name: {to}, namespace: default, port: {PORT}}}]}}]\n"
    )
}

/// Sends a request from a source address.
pub async fn ask_from(from: IpAddr, to: SocketAddr) -> Response {
    connect_from(from, to).await.ask(&get("/")).await
}

/// Connects from a source address.
pub async fn connect_from(from: IpAddr, to: SocketAddr) -> Http1 {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind((from, 0).into()).expect("an address");
    let stream = crate::support::within("a connection", socket.connect(to))
        .await
        .expect("connected");
    Http1::over(stream)
}

#[tokio::test]
async fn a_consumer_route_replaces_the_producer_route_for_its_own_namespace() {
    let (cluster, other, consumer, stranger) = (
        Address::new(),
        Address::new(),
        Address::new(),
        Address::new(),
    );
    let (own, producers, consumers) = (
        Backend::http1("own").await,
        Backend::http1("producers").await,
        Backend::http1("consumers").await,
    );
    let more = (Address::new(), Address::new());
    let base = [
        mesh_service("shop", cluster.ip, &own),
        mesh_service("v1", more.0.ip, &producers),
        mesh_service("v2", more.1.ip, &consumers),
        pod("till", "checkout", consumer.ip),
        pod("page", "default", other.ip),
    ]
    .concat();
    let at = SocketAddr::new(cluster.ip, PORT);

    let gateway = Gateway::of(&base).await;
    assert_eq!(
        ask_from(consumer.ip, at).await.backend(),
        Some("own"),
        "no route applies to it"
    );

    gateway.write("producer.yaml", &mesh_route("producer", "default", "v1"));
    crate::support::eventually("the producer's route", || async {
        ask_from(consumer.ip, at).await.backend() == Some("producers")
    })
    .await;

    gateway.write("consumer.yaml", &mesh_route("consumer", "checkout", "v2"));
    crate::support::eventually("the consumer's route", || async {
        ask_from(consumer.ip, at).await.backend() == Some("consumers")
    })
    .await;
    for from in [&other, &stranger] {
        assert_eq!(ask_from(from.ip, at).await.backend(), Some("producers"));
    }
    gateway.remove("producer.yaml");
    crate::support::eventually("no producer's route", || async {
        ask_from(other.ip, at).await.backend() == Some("own")
    })
    .await;
    assert_eq!(ask_from(consumer.ip, at).await.backend(), Some("consumers"));
}

#[tokio::test]
async fn a_request_that_no_mesh_rule_matches_gets_404() {
    let cluster = Address::new();
    let own = Backend::http1("own").await;
    let route = mesh_route("shop", "default", "shop").replace(
        "[{backendRefs",
        "[{matches: [{path: {value: /only}}], backendRefs",
    );
    let _gateway = Gateway::of(&(mesh_service("shop", cluster.ip, &own) + &route)).await;
    let mut client = Http1::connect((cluster.ip, PORT).into()).await;
    assert_eq!(client.ask(&get("/only")).await.backend(), Some("own"));
    assert_eq!(client.ask(&get("/")).await.status, 404);
}

#[tokio::test]
async fn a_cluster_ip_of_another_machine_is_ignored() {
    let backend = Backend::http1("web").await;
    let foreign = "---\napiVersion: v1\nkind: Service\nmetadata: {name: far, namespace: default}\nspec: {clusterIP: 192.0.2.7, ports: [{port: 80}]}\n";
    let manifests = [
        plain(),
        service("web", &[&backend]),
        route("web", &[&to("web")]),
        foreign.to_owned(),
    ];
    let gateway = Gateway::of(&manifests.concat()).await;
    assert_eq!(gateway.ask(get("/")).await.status, 200);
}

#[tokio::test]
async fn a_service_import_gets_listeners_on_its_own_addresses() {
    let address = Address::new();
    let own = Backend::http1("own").await;
    let import = format!(
        "---\napiVersion: multicluster.x-k8s.io/v1alpha1\nkind: ServiceImport\nmetadata: {{name: shop, namespace: default}}\n\
         spec: {{type: ClusterSetIP, ips: [{}], ports: [{{name: main, port: {PORT}, protocol: TCP, appProtocol: http}}]}}\n",
        address.ip
    );
    let slices = slices("shop", &[own.address]).replace(
        "kubernetes.io/service-name",
        "multicluster.kubernetes.io/service-name",
    );
    let gateway = Gateway::of(&(import + &slices)).await;
    let at = SocketAddr::new(address.ip, PORT);
    assert_eq!(ask_from(address.ip, at).await.backend(), Some("own"));
    let route = mesh_route("shop", "default", "shop")
        .replace(
            "group: '', kind: Service",
            "group: multicluster.x-k8s.io, kind: ServiceImport",
        )
        .replace(
            "rules: [{backendRefs: [{name: shop, namespace: default, port: 8080}]}]",
            "rules: [{matches: [{path: {value: /only}}]}]",
        );
    gateway.write("route.yaml", &route);
    crate::support::eventually("the route", || async {
        ask_from(address.ip, at).await.status == 404
    })
    .await;
    let mut client = Http1::connect(at).await;
    assert_eq!(client.ask(&get("/only")).await.backend(), Some("own"));
}
