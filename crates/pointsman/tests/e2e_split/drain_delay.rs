//! The time between SIGTERM and the drain period of a proxy.

use crate::effect::version;
use crate::plane::Plane;
use crate::support::http1::{Http1, closes};
use crate::support::message::*;
use crate::support::{eventually, within};

#[tokio::test]
async fn a_proxy_announces_the_end_of_connections_and_still_accepts_new_ones() {
    let plane = Plane::start(&version(1)).await;
    let proxy = plane.proxy("edge-1", &["--drain-delay", "10m"]).await;
    let at = proxy.at(8080);
    let ask = async || Http1::connect(at).await.ask(&get("/")).await;
    let mut client = Http1::connect(at).await;
    assert!(!closes(&client.ask(&get("/")).await));
    proxy.signal("TERM");
    eventually("new connections are told", || async {
        closes(&ask().await)
    })
    .await;
    let response = client.ask(&get("/")).await;
    assert!(response.status == 302 && closes(&response), "{response:?}");
    client.ended().await;
    // Load balancers keep it until they learn that it ends.
    assert_eq!(proxy.page("/readyz").await.0, 200);
    // It follows the control plane.
    plane.write(&version(2));
    let location = async || ask().await.header("location").map(str::to_owned);
    let expected = Some("http://example.com:2/".to_owned());
    within("a change", async {
        while location().await != expected {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    })
    .await;
}
