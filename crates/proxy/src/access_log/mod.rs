//! One line for each request, stream or UDP session, written by a thread of its own.
//!
//! A worker writes its lines into its [`Lane`]; ten times a second, or sooner if much has come together, the writer takes what is in every
//! lane and puts it where it belongs. A lane holds so much and no more: what comes while it is full is dropped and counted, for a disk must
//! not slow traffic. A lane's lock is held by the writer only to exchange it for an empty one, so a worker does not wait for the disk.

mod escape;
mod record;
#[cfg(test)]
mod tests;

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::mem;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle, Thread};
use std::time::{Duration, Instant};

pub(crate) use record::{LogRecord, LoggedRule};

use crate::metrics::WorkerSeries;
use crate::options::{AccessLogFormat, AccessLogOptions};

/// From so many bytes on that wait for the writer, of each worker, lines are dropped.
const MAX_QUEUE_BYTES: usize = 1024 * 1024;
/// From so many on, the writer is woken.
const WAKE_BYTES: usize = 128 * 1024;
/// How long a line waits at most.
const FLUSH_INTERVAL: Duration = Duration::from_millis(100);
/// How often it is said that lines are lost.
const WARN_INTERVAL: Duration = Duration::from_secs(60);

/// The access log. Dropping it writes what is there and ends its thread.
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
    /// A file to go on in.
    next: Mutex<Option<File>>,
    end: AtomicBool,
}

/// What waits between a worker and the writer.
#[derive(Debug)]
struct LogQueue {
    lines: Mutex<Batch>,
    series: Arc<WorkerSeries>,
}

/// Whole lines.
#[derive(Debug, Default)]
struct Batch {
    bytes: Vec<u8>,
    count: u64,
}

/// Lines are whole between any two steps, so a panic elsewhere does not spoil them.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl AccessLog {
    /// Opens the file and starts the writer.
    pub(crate) fn open(options: &AccessLogOptions) -> io::Result<AccessLog> {
        let sink = match &options.file {
            Some(path) => LogOutput::File(append(path)?),
            None => LogOutput::Stdout,
        };
        let shared = Arc::new(LogQueues::default());
        let writer = LogWriter {
            sink,
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

    /// What a worker writes to. Lines that are dropped are counted there.
    pub(crate) fn worker(&self, series: &Arc<WorkerSeries>) -> WorkerLog {
        let queue = Arc::new(LogQueue {
            lines: Mutex::default(),
            series: series.clone(),
        });
        lock(&self.shared.queues).push(queue.clone());
        WorkerLog {
            format: self.format,
            queue,
            writer: self.writer.clone(),
        }
    }

    /// Opens the file anew, by its name: lines that come from now on go there. Nothing changes if that fails.
    pub(crate) fn reopen(&self) -> io::Result<()> {
        if let Some(path) = &self.file {
            *lock(&self.shared.next) = Some(append(path)?);
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
        self.shared.end.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            self.writer.unpark();
            // It has no way to panic that is worth telling here.
            let _ = thread.join();
        }
    }
}

/// What a worker writes to.
#[derive(Debug)]
pub(crate) struct WorkerLog {
    format: AccessLogFormat,
    queue: Arc<LogQueue>,
    writer: Thread,
}

impl WorkerLog {
    /// Writes a line, or counts that it was dropped.
    pub(crate) fn write(&self, record: &LogRecord<'_>) {
        let mut lines = lock(&self.queue.lines);
        let before = lines.bytes.len();
        if before >= MAX_QUEUE_BYTES {
            drop(lines);
            self.queue.series.dropped_log_lines.add_shared(1);
            return;
        }
        record.write(self.format, &mut lines.bytes);
        lines.count += 1;
        let now = lines.bytes.len();
        drop(lines);
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

/// The thread that writes.
#[derive(Debug)]
struct LogWriter {
    sink: LogOutput,
    shared: Arc<LogQueues>,
    /// How many dropped lines it knows of.
    dropped: u64,
    warned: Option<Instant>,
}

impl LogWriter {
    fn run(mut self) {
        let mut lines = Batch::default();
        loop {
            // Asked before the lanes are emptied: what was there when the end was said is written.
            let end = self.shared.end.load(Ordering::Acquire);
            self.flush_queues(&mut lines);
            if end {
                return;
            }
            thread::park_timeout(FLUSH_INTERVAL);
        }
    }

    /// Empties every lane once.
    fn flush_queues(&mut self, lines: &mut Batch) {
        let queues = {
            let mut queues = lock(&self.shared.queues);
            let all = queues.clone();
            // A lane that its worker has left is emptied for the last time. Here and in `all` it is held too.
            queues.retain(|queue| Arc::strong_count(queue) > 2);
            all
        };
        let mut dropped = 0;
        for queue in &queues {
            mem::swap(&mut *lock(&queue.lines), lines);
            // The file is changed between the lines that were there when it was opened anew and those that came later, or a little sooner.
            if let Some(file) = lock(&self.shared.next).take() {
                self.sink = LogOutput::File(file);
            }
            if let Err(error) = self.write(&lines.bytes) {
                queue.series.dropped_log_lines.add_shared(lines.count);
                self.warn(&format!("can't write the access log: {error}"));
            }
            lines.bytes.clear();
            lines.count = 0;
            dropped += queue.series.dropped_log_lines.get();
        }
        if dropped > self.dropped {
            self.warn("the access log can't keep up: lines are dropped");
        }
        self.dropped = dropped;
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        match &mut self.sink {
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
        reason = "the writer is a thread of its own"
    )]
    fn warn(&mut self, what: &str) {
        if self
            .warned
            .is_none_or(|when| when.elapsed() >= WARN_INTERVAL)
        {
            self.warned = Some(Instant::now());
            tracing::warn!("{what}");
        }
    }
}
