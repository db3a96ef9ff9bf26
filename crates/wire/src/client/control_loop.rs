//! The control loop of a proxy: puts received changes into effect in a sink, as the reconciler does in a process with its own configuration, and reports back.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Instant;

use pointsman_control::{RetrySchedule, Sink, Snapshots, clock};
use pointsman_routing::Tables;

use super::{Commit, ReportQueue};

/// An event for the control loop.
#[derive(Debug)]
pub enum Event {
    /// The control plane has sent changes.
    Commit(Box<Commit>),
    /// The sink has something to report.
    Report,
    /// An operator has replaced files.
    Reload,
    /// The process has to exit.
    Stop,
}

/// State of the thread that owns the sink.
pub struct ControlLoop {
    sinks: [Box<dyn Sink>; 1],
    tables: Tables,
    reports: Arc<ReportQueue>,
    snapshots: Arc<Snapshots>,
}

impl ControlLoop {
    /// Creates a control loop. The sink's reports are added to `reports`, and the routing tables are published in `snapshots`.
    pub fn new(sink: Box<dyn Sink>, reports: Arc<ReportQueue>, snapshots: Arc<Snapshots>) -> Self {
        ControlLoop {
            sinks: [sink],
            tables: Tables::default(),
            reports,
            snapshots,
        }
    }

    /// Handles events until the process has to exit, or until `end`. Calls `on_commit` whenever changes have been put into effect, and ends if it fails.
    pub fn run<E>(
        &mut self,
        events: &Receiver<Event>,
        end: Option<Instant>,
        mut on_commit: impl FnMut() -> Result<(), E>,
    ) -> Result<(), E> {
        let mut retries = RetrySchedule::new(clock::instant());
        loop {
            if end.is_some_and(|end| clock::instant() >= end) {
                return Ok(());
            }
            let retry = retries.next(&self.sinks);
            match next_event(events, end.into_iter().chain(retry).min()) {
                Some(Event::Commit(commit)) => {
                    self.commit(*commit);
                    on_commit()?;
                }
                Some(Event::Report) => self.retry(),
                Some(Event::Reload) => {
                    self.sink().reload();
                    self.retry();
                }
                Some(Event::Stop) => return Ok(()),
                None => {}
            }
            if retries.is_due(&self.sinks, clock::instant()) {
                self.retry();
            }
        }
    }

    fn sink(&mut self) -> &mut dyn Sink {
        &mut *self.sinks[0]
    }

    /// Puts received changes into effect.
    fn commit(&mut self, commit: Commit) {
        let Commit { delta, applied, .. } = commit;
        self.tables.apply(&delta);
        let [sink] = &mut self.sinks;
        let mut reports = sink.stage(&delta, &self.tables);
        reports.extend(sink.commit(&self.tables));
        self.reports.put(reports);
        self.snapshots.publish_tables(self.tables.clone());
        // The connection may have been lost meanwhile.
        let _ = applied.send(());
    }

    /// Retries operations that failed in the sink, and reports changes.
    fn retry(&mut self) {
        let [sink] = &mut self.sinks;
        let mut reports = sink.retry();
        reports.extend(sink.commit(&self.tables));
        self.reports.put(reports);
    }
}

/// Waits for an event until a time.
fn next_event(events: &Receiver<Event>, until: Option<Instant>) -> Option<Event> {
    let event = match until {
        Some(until) => events.recv_timeout(until.saturating_duration_since(clock::instant())),
        None => events.recv().map_err(|_| RecvTimeoutError::Disconnected),
    };
    match event {
        Ok(event) => Some(event),
        Err(RecvTimeoutError::Timeout) => None,
        Err(RecvTimeoutError::Disconnected) => Some(Event::Stop),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use pointsman_binding::{Change, Delta};
    use pointsman_resources::Name;
    use tokio::sync::oneshot;

    use super::*;

    /// A sink that reports a Gateway at each step.
    struct TestSink;

    fn report(name: &str) -> Vec<Change> {
        vec![Change::Observe(
            Name::new("a", name),
            Some(Default::default()),
        )]
    }

    impl Sink for TestSink {
        fn stage(&mut self, _: &Delta, _: &Tables) -> Vec<Change> {
            report("staged")
        }

        fn commit(&mut self, _: &Tables) -> Vec<Change> {
            report("committed")
        }

        fn retry(&mut self) -> Vec<Change> {
            report("retried")
        }
    }

    /// Returns the Gateways that are reported after some events, and the number of commits.
    fn reported(events: Vec<Event>) -> (Vec<String>, usize) {
        let (sender, inbox) = channel();
        for event in events.into_iter().chain([Event::Stop]) {
            sender.send(event).expect("the receiver is open");
        }
        let reports: Arc<ReportQueue> = Arc::default();
        let mut control = ControlLoop::new(Box::new(TestSink), reports.clone(), Arc::default());
        let mut commits = 0;
        let done: Result<(), ()> = control.run(&inbox, None, || {
            commits += 1;
            Ok(())
        });
        assert_eq!(done, Ok(()));
        let reports = reports.all().into_iter().map(|change| match change {
            Change::Observe(gateway, _) => gateway.name.to_string(),
            other => panic!("{other:?}"),
        });
        (reports.collect(), commits)
    }

    #[test]
    fn the_reports_of_each_step_of_a_commit_are_queued_before_it_counts_as_applied() {
        let (applied, mut is_applied) = oneshot::channel();
        let commit = Commit {
            delta: Delta::default(),
            version: 1,
            applied,
        };
        let (names, commits) = reported(vec![Event::Commit(Box::new(commit))]);
        assert_eq!(names, ["committed", "staged"]);
        assert_eq!(commits, 1);
        assert_eq!(is_applied.try_recv(), Ok(()));
    }

    #[test]
    fn a_reload_and_a_report_retry_what_failed() {
        for event in [Event::Reload, Event::Report] {
            assert_eq!(
                reported(vec![event]),
                (vec!["committed".to_owned(), "retried".to_owned()], 0)
            );
        }
    }

    #[test]
    fn the_loop_ends_at_its_time_limit() {
        let (_sender, inbox) = channel();
        let mut control = ControlLoop::new(Box::new(TestSink), Arc::default(), Arc::default());
        let done: Result<(), ()> = control.run(&inbox, Some(clock::instant()), || Ok(()));
        assert_eq!(done, Ok(()));
    }
}
