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

pub(crate) use record::{Record, Rule};

use crate::metrics::WorkerSeries;
use crate::options::{AccessLogFormat, AccessLogOptions};

/// From so many bytes on that wait for the writer, of each worker, lines are dropped.
const MOST: usize = 1024 * 1024;
/// From so many on, the writer is woken.
const MUCH: usize = 128 * 1024;
/// How long a line waits at most.
const WAIT: Duration = Duration::from_millis(100);
/// How often it is said that lines are lost.
const WARN: Duration = Duration::from_secs(60);

/// The access log. Dropping it writes what is there and ends its thread.
#[derive(Debug)]
pub(crate) struct AccessLog {
    format: AccessLogFormat,
    file: Option<PathBuf>,
    shared: Arc<Shared>,
    writer: Thread,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    lanes: Mutex<Vec<Arc<Lane>>>,
    /// A file to go on in.
    next: Mutex<Option<File>>,
    end: AtomicBool,
}

/// What waits between a worker and the writer.
#[derive(Debug)]
struct Lane {
    lines: Mutex<Lines>,
    series: Arc<WorkerSeries>,
}

/// Whole lines.
#[derive(Debug, Default)]
struct Lines {
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
            Some(path) => Sink::File(append(path)?),
            None => Sink::Stdout,
        };
        let shared = Arc::new(Shared::default());
        let writer = Writer {
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
        let lane = Arc::new(Lane {
            lines: Mutex::default(),
            series: series.clone(),
        });
        lock(&self.shared.lanes).push(lane.clone());
        WorkerLog {
            format: self.format,
            lane,
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
    lane: Arc<Lane>,
    writer: Thread,
}

impl WorkerLog {
    /// Writes a line, or counts that it was dropped.
    pub(crate) fn write(&self, record: &Record<'_>) {
        let mut lines = lock(&self.lane.lines);
        let before = lines.bytes.len();
        if before >= MOST {
            drop(lines);
            self.lane.series.dropped_log_lines.add_shared(1);
            return;
        }
        record.write(self.format, &mut lines.bytes);
        lines.count += 1;
        let now = lines.bytes.len();
        drop(lines);
        if before < MUCH && now >= MUCH {
            self.writer.unpark();
        }
    }
}

#[derive(Debug)]
enum Sink {
    File(File),
    Stdout,
}

/// The thread that writes.
#[derive(Debug)]
struct Writer {
    sink: Sink,
    shared: Arc<Shared>,
    /// How many dropped lines it knows of.
    dropped: u64,
    warned: Option<Instant>,
}

impl Writer {
    fn run(mut self) {
        let mut lines = Lines::default();
        loop {
            // Asked before the lanes are emptied: what was there when the end was said is written.
            let end = self.shared.end.load(Ordering::Acquire);
            self.pass(&mut lines);
            if end {
                return;
            }
            thread::park_timeout(WAIT);
        }
    }

    /// Empties every lane once.
    fn pass(&mut self, lines: &mut Lines) {
        let lanes = {
            let mut lanes = lock(&self.shared.lanes);
            let all = lanes.clone();
            // A lane that its worker has left is emptied for the last time. Here and in `all` it is held too.
            lanes.retain(|lane| Arc::strong_count(lane) > 2);
            all
        };
        let mut dropped = 0;
        for lane in &lanes {
            mem::swap(&mut *lock(&lane.lines), lines);
            // The file is changed between the lines that were there when it was opened anew and those that came later, or a little sooner.
            if let Some(file) = lock(&self.shared.next).take() {
                self.sink = Sink::File(file);
            }
            if let Err(error) = self.put(&lines.bytes) {
                lane.series.dropped_log_lines.add_shared(lines.count);
                self.warn(&format!("can't write the access log: {error}"));
            }
            lines.bytes.clear();
            lines.count = 0;
            dropped += lane.series.dropped_log_lines.get();
        }
        if dropped > self.dropped {
            self.warn("the access log can't keep up: lines are dropped");
        }
        self.dropped = dropped;
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        match &mut self.sink {
            Sink::File(file) => file.write_all(bytes),
            Sink::Stdout => {
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
        if self.warned.is_none_or(|when| when.elapsed() >= WARN) {
            self.warned = Some(Instant::now());
            tracing::warn!("{what}");
        }
    }
}
