//! Access log: one entry per request, stream or UDP session, written by a dedicated thread.
//!
//! Each worker appends entries to a [`LogQueue`]. The writer thread empties all queues ten times a second, or sooner if one is filling up. Queues are bounded:
//! entries that do not fit are dropped and counted, because a slow disk must not slow down traffic. The writer holds a queue's lock only to exchange its
//! contents for an empty batch, so workers never wait for the disk.

mod escape;
mod record;
#[cfg(test)]
mod tests;

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::mem;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle, Thread};
use std::time::{Duration, Instant};

pub use record::logged_listener;
pub(crate) use record::{LogRecord, LoggedRule};

use crate::metrics::WorkerSeries;
use crate::options::{AccessLogFormat, AccessLogOptions};
use crate::sync::lock;

/// Number of bytes in a worker's queue at which further entries are dropped.
const MAX_QUEUE_BYTES: usize = 1024 * 1024;
/// Number of bytes in a queue at which the writer is woken.
const WAKE_BYTES: usize = 128 * 1024;
/// Interval at which the writer empties the queues.
const FLUSH_INTERVAL: Duration = Duration::from_millis(100);
/// Interval between warnings about lost entries.
const WARN_INTERVAL: Duration = Duration::from_secs(60);

/// The access log. Dropping it writes all queued entries and stops the writer.
#[derive(Debug)]
pub(crate) struct AccessLog {
    format: AccessLogFormat,
    file: Option<PathBuf>,
    shared: Arc<LogQueues>,
    writer: Thread,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct LogQueues {
    queues: Mutex<Vec<Arc<LogQueue>>>,
    /// The reopened file, until the writer takes it.
    reopened: Mutex<Option<File>>,
    shutdown: AtomicBool,
}

/// Entries of a worker that have not been written yet.
#[derive(Debug)]
struct LogQueue {
    batch: Mutex<EntryBatch>,
    series: Arc<WorkerSeries>,
}

/// Complete entries.
#[derive(Debug, Default)]
struct EntryBatch {
    bytes: Vec<u8>,
    count: u64,
}

impl AccessLog {
    /// Opens the file and starts the writer.
    pub(crate) fn open(options: &AccessLogOptions) -> io::Result<AccessLog> {
        let output = match &options.file {
            Some(path) => LogOutput::File(append(path)?),
            None => LogOutput::Stdout,
        };
        let shared = Arc::new(LogQueues::default());
        let writer = LogWriter {
            output,
            shared: shared.clone(),
            dropped: 0,
            warned: None,
        };
        let thread = thread::Builder::new()
            .name("access-log".to_owned())
            .spawn(move || writer.run())?;
        Ok(AccessLog {
            format: options.format,
            file: options.file.clone(),
            shared,
            writer: thread.thread().clone(),
            thread: Some(thread),
        })
    }

    /// Creates the queue of a worker. Dropped entries are counted in `series`.
    pub(crate) fn worker(&self, series: &Arc<WorkerSeries>) -> WorkerLog {
        let queue = Arc::new(LogQueue {
            batch: Mutex::default(),
            series: series.clone(),
        });
        lock(&self.shared.queues).push(queue.clone());
        WorkerLog {
            format: self.format,
            queue,
            writer: self.writer.clone(),
        }
    }

    /// Reopens the file by its name, for entries from now on. If that fails, the old file stays in use.
    pub(crate) fn reopen(&self) -> io::Result<()> {
        if let Some(path) = &self.file {
            *lock(&self.shared.reopened) = Some(append(path)?);
        }
        Ok(())
    }
}

fn append(path: &Path) -> io::Result<File> {
    let opened = OpenOptions::new().append(true).create(true).open(path);
    opened.map_err(|error| {
        let text = format!("can't open the access log {}: {error}", path.display());
        io::Error::new(error.kind(), text)
    })
}

impl Drop for AccessLog {
    fn drop(&mut self) {
        self.shared.shutdown.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            self.writer.unpark();
            // The writer does not panic.
            let _ = thread.join();
        }
    }
}

/// A worker's end of its queue.
#[derive(Debug)]
pub(crate) struct WorkerLog {
    format: AccessLogFormat,
    queue: Arc<LogQueue>,
    writer: Thread,
}

impl WorkerLog {
    /// Appends an entry, or counts it as dropped.
    pub(crate) fn write(&self, record: &LogRecord<'_>) {
        let mut batch = lock(&self.queue.batch);
        let before = batch.bytes.len();
        if before >= MAX_QUEUE_BYTES {
            drop(batch);
            self.queue.series.dropped_log_lines.add_shared(1);
            return;
        }
        record.write(self.format, &mut batch.bytes);
        batch.count += 1;
        let now = batch.bytes.len();
        drop(batch);
        if before < WAKE_BYTES && now >= WAKE_BYTES {
            self.writer.unpark();
        }
    }
}

#[derive(Debug)]
enum LogOutput {
    File(File),
    Stdout,
}

/// The writer thread.
#[derive(Debug)]
struct LogWriter {
    output: LogOutput,
    shared: Arc<LogQueues>,
    /// Dropped entries up to the last flush.
    dropped: u64,
    warned: Option<Instant>,
}

impl LogWriter {
    fn run(mut self) {
        let mut batch = EntryBatch::default();
        loop {
            // Read before the queues are emptied: entries from before the shutdown are still written.
            let shutdown = self.shared.shutdown.load(Ordering::Acquire);
            self.flush_queues(&mut batch);
            if shutdown {
                return;
            }
            thread::park_timeout(FLUSH_INTERVAL);
        }
    }

    /// Empties every queue once.
    fn flush_queues(&mut self, batch: &mut EntryBatch) {
        let queues = {
            let mut queues = lock(&self.shared.queues);
            let all = queues.clone();
            // After this flush, forgets queues whose workers are gone: only `queues` and `all` refer to them.
            queues.retain(|queue| Arc::strong_count(queue) > 2);
            all
        };
        let mut dropped = 0;
        for queue in &queues {
            mem::swap(&mut *lock(&queue.batch), batch);
            // Entries that were queued before the file was reopened may go to either file.
            if let Some(file) = lock(&self.shared.reopened).take() {
                self.output = LogOutput::File(file);
            }
            if let Err(error) = self.write(&batch.bytes) {
                queue.series.dropped_log_lines.add_shared(batch.count);
                self.warn(&format!("can't write the access log: {error}"));
            }
            batch.bytes.clear();
            batch.count = 0;
            dropped += queue.series.dropped_log_lines.get();
        }
        if dropped > self.dropped {
            self.warn("the access log can't keep up; entries are dropped");
        }
        self.dropped = dropped;
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        match &mut self.output {
            LogOutput::File(file) => file.write_all(bytes),
            LogOutput::Stdout => {
                let mut out = io::stdout().lock();
                out.write_all(bytes)?;
                out.flush()
            }
        }
    }

    #[allow(
        clippy::disallowed_methods,
        reason = "the writer runs on a dedicated thread"
    )]
    fn warn(&mut self, message: &str) {
        if self.warned.is_none_or(|at| at.elapsed() >= WARN_INTERVAL) {
            self.warned = Some(Instant::now());
            tracing::warn!("{message}");
        }
    }
}
