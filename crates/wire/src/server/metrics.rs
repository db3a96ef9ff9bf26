//! Metrics of the server.

use pointsman_control::Exposition;

use super::service::{ProxyStatus, Server};
use super::store::EFFECT_BUCKETS;

impl Server {
    /// Adds the metrics of this controller and its proxies. Those of other controllers are in the metrics of these.
    pub fn add_metrics(&self, metrics: &mut Exposition) {
        let proxies = self.local_proxies();
        self.add_proxies(&proxies, metrics);
        let controllers = self.controllers();
        let controllers = controllers.iter().filter(|other| other.is_connected);
        metrics.gauge(
            "pointsman_xds_controllers",
            "Other replicas that report their proxies to this one.",
            controllers.count(),
        );
        metrics.gauge(
            "pointsman_xds_pending_routes",
            "Routes and policies not yet confirmed in effect on all proxies that serve them.",
            self.pending_routes(),
        );
        let effects = self.effect_histogram();
        metrics.histogram(
            "pointsman_xds_effect_seconds",
            "Time from a change of a route or policy to its effect on all proxies that serve it.",
            EFFECT_BUCKETS.into_iter().zip(effects.counts),
            (effects.counts.iter().sum(), effects.sum.as_secs_f64()),
        );
        metrics.counter(
            "pointsman_xds_refused_subscriptions_total",
            "Subscriptions to resources that the proxy is not authorized for.",
            self.refusals(),
        );
        metrics.counter(
            "pointsman_xds_rejected_credentials_total",
            "Proxy streams rejected because their token is missing or invalid.",
            self.rejected_credentials(),
        );
        metrics.counter(
            "pointsman_xds_handshake_failures_total",
            "Failed TLS handshakes with proxies.",
            self.handshake_failures(),
        );
    }

    fn add_proxies(&self, proxies: &[ProxyStatus], metrics: &mut Exposition) {
        metrics.gauge("pointsman_xds_proxies", "Connected proxies.", proxies.len());
        let lags = || proxies.iter().filter_map(|proxy| proxy.lag);
        metrics.gauge(
            "pointsman_xds_lagging_proxies",
            "Connected proxies on which the newest configuration is not in effect yet.",
            lags().count(),
        );
        metrics.gauge(
            "pointsman_xds_max_lag_seconds",
            "Longest time for which a connected proxy has lagged behind the newest configuration.",
            lags().max().unwrap_or_default().as_secs_f64(),
        );
        let rejected = proxies.iter().map(|proxy| proxy.rejected_count);
        metrics.gauge(
            "pointsman_xds_rejected_resources",
            "Resources that connected proxies can't use, counted once per proxy.",
            rejected.sum::<usize>(),
        );
    }
}
