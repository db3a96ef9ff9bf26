//! Metrics of the client.

use pointsman_control::Exposition;
use tokio::time::Instant;

use super::ClientState;

impl ClientState {
    /// Adds the metrics of the connection to the control plane.
    pub fn add_metrics(&self, metrics: &mut Exposition) {
        let disconnected = self.disconnected.map(|since| Instant::now() - since);
        metrics.gauge(
            "pointsman_control_plane_connected",
            "1 while the proxy is connected to a control plane.",
            u8::from(self.connected.is_some()),
        );
        metrics.gauge(
            "pointsman_control_plane_disconnected_seconds",
            "Time since the control plane was lost; 0 while connected.",
            disconnected.unwrap_or_default().as_secs_f64(),
        );
        metrics.gauge(
            "pointsman_control_plane_cached",
            "1 if the configuration in effect was read from the cache.",
            u8::from(self.is_cached),
        );
        metrics.gauge(
            "pointsman_control_plane_resources",
            "Resources received.",
            self.resources,
        );
        metrics.gauge(
            "pointsman_control_plane_rejected_resources",
            "Resources whose newest version can't be used.",
            self.rejected.len(),
        );
        metrics.counter(
            "pointsman_control_plane_failures_total",
            "Failed connection attempts and lost connections.",
            self.failures,
        );
    }
}
