//! WebSocket: once both sides have agreed, bytes go both ways until both are done. They are carried like bodies that only the end of the connection ends.

use std::time::Instant;

use super::attempt::{Far, Near};
use super::flow::{Progress, carry_data};
use super::report::Tally;
use crate::worker::Worker;

/// Carries bytes both ways. When one side has said all, so is the other told; it may still answer.
pub(crate) async fn relay(worker: &Worker, near: &mut Near<'_, '_, '_>, far: &mut Far<'_>) {
    let Near {
        source,
        client,
        alarm,
        report,
        ..
    } = near;
    let (up, down) = (Progress::new(true), Progress::new(true));
    let begun = Instant::now();
    let watched = || {
        let idle = worker.limits().stream_idle_time?;
        let last = up.last().max(down.last()).unwrap_or(begun);
        Some(last + idle)
    };
    source.switch();
    far.sink.switch();
    let mut back = far.returning.stream(worker.limits().buffer_bytes);
    let (sink, progress) = (&mut far.sink, &up);
    let upload = async {
        carry_data(worker, source, sink, None, progress).await?;
        // RFC 9113 §8.5: a tunnel has data and no trailers.
        sink.finish(None).await?;
        progress.end();
        sink.close().await
    };
    let download = async {
        let Some(mut sink) = client.stream() else {
            return Ok(());
        };
        carry_data(worker, &mut back, &mut sink, None, &down).await?;
        sink.finish(None).await?;
        down.end();
        sink.close().await
    };
    let carried = {
        let _tally = Tally::new(report, &up, &down);
        let both = async { tokio::try_join!(upload, download) };
        alarm.run_until(watched, both).await
    };
    match carried {
        Ok(Ok(_)) => {}
        Ok(Err(_)) => report.cut("Broken"),
        Err(_) => report.cut("Idle"),
    }
}
