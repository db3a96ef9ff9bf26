//! Relays WebSockets: after the upgrade, bytes are copied in both directions like bodies delimited by the end of the connection.

use std::time::Instant;

use super::attempt::{Downstream, UpstreamStream};
use super::copy::{Progress, copy_data};
use super::report::ByteCountGuard;
use crate::worker::Worker;

/// Copies bytes in both directions. A half-close on one side is propagated to the other.
pub(crate) async fn relay(
    worker: &Worker,
    downstream: &mut Downstream<'_, '_, '_>,
    stream: &mut UpstreamStream<'_>,
) {
    let Downstream {
        source,
        client,
        timer,
        report,
        ..
    } = downstream;
    let (up, down) = (Progress::new(true), Progress::new(true));
    let started = Instant::now();
    let deadline = || {
        let idle = worker.limits().stream_idle_time?;
        let last = up
            .last_activity()
            .max(down.last_activity())
            .unwrap_or(started);
        Some(last + idle)
    };
    source.switch_to_websocket();
    stream.sink.switch_to_websocket();
    let mut back = stream
        .response
        .websocket_source(worker.limits().buffer_bytes);
    let (sink, progress) = (&mut stream.sink, &up);
    let upload = async {
        copy_data(worker, source, sink, None, progress).await?;
        // RFC 9113 §8.5: a tunnel has data and no trailers.
        sink.finish(None).await?;
        progress.end();
        sink.close().await
    };
    let download = async {
        let Some(mut sink) = client.websocket_sink() else {
            return Ok(());
        };
        copy_data(worker, &mut back, &mut sink, None, &down).await?;
        sink.finish(None).await?;
        down.end();
        sink.close().await
    };
    let result = {
        let _guard = ByteCountGuard::new(report, &up, &down);
        let both = async { tokio::try_join!(upload, download) };
        timer.run_until(deadline, both).await
    };
    match result {
        Ok(Ok(_)) => {}
        Ok(Err(_)) => report.abort("Broken"),
        Err(_) => report.abort("Idle"),
    }
}
