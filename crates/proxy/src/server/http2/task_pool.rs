//! Reuse of tasks on a busy connection. Starting a task moves a future of several kilobytes more than once; waking a waiting one moves nothing.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

/// Maximum number of waiting tasks.
const MAX_WAITING: usize = 64;

/// Tasks waiting for work.
#[derive(Debug)]
pub(super) struct TaskPool<W> {
    waiting: RefCell<Vec<Rc<PooledTask<W>>>>,
    closed: Cell<bool>,
}

/// Passes work to a task. It is allocated once per task, because work passed as an argument would be stored twice in the task's future.
#[derive(Debug)]
pub(super) struct PooledTask<W> {
    work: RefCell<Option<W>>,
    /// No more work will follow.
    ended: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

impl<W> Default for TaskPool<W> {
    fn default() -> Self {
        TaskPool {
            waiting: RefCell::default(),
            closed: Cell::new(false),
        }
    }
}

impl<W> TaskPool<W> {
    /// Passes work to a waiting task. Returns it if there is none.
    pub(super) fn dispatch(&self, work: W) -> Option<W> {
        let Some(task) = self.waiting.borrow_mut().pop() else {
            return Some(work);
        };
        *task.work.borrow_mut() = Some(work);
        task.wake();
        None
    }

    /// Waits for work. Returns false if there will be none.
    pub(super) async fn wait(&self, task: &Rc<PooledTask<W>>) -> bool {
        {
            let mut waiting = self.waiting.borrow_mut();
            if self.closed.get() || waiting.len() == MAX_WAITING {
                return false;
            }
            waiting.push(task.clone());
        }
        poll_fn(|cx| {
            if task.work.borrow().is_some() {
                return Poll::Ready(true);
            }
            if task.ended.get() {
                return Poll::Ready(false);
            }
            *task.waker.borrow_mut() = Some(cx.waker().clone());
            Poll::Pending
        })
        .await
    }

    /// Returns whether no task is waiting.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.borrow().is_empty()
    }

    /// Ends all waiting tasks.
    pub(super) fn clear(&self) {
        for task in self.waiting.borrow_mut().drain(..) {
            task.ended.set(true);
            task.wake();
        }
    }

    /// Ends all waiting tasks and those that would wait later.
    pub(super) fn close(&self) {
        self.closed.set(true);
        self.clear();
    }
}

impl<W> PooledTask<W> {
    /// Creates the slot of a new task, with its first work.
    pub(super) fn new(work: W) -> Rc<Self> {
        Rc::new(PooledTask {
            work: RefCell::new(Some(work)),
            ended: Cell::new(false),
            waker: RefCell::new(None),
        })
    }

    /// Takes the work.
    pub(super) fn take(&self) -> Option<W> {
        self.work.borrow_mut().take()
    }

    fn wake(&self) {
        if let Some(waker) = self.waker.borrow_mut().take() {
            waker.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "current_thread")]
    async fn work_goes_to_waiting_tasks_and_close_ends_all_waits() {
        let pool = Rc::new(TaskPool::default());
        assert_eq!(pool.dispatch(1), Some(1), "no task is waiting");
        let local = tokio::task::LocalSet::new();
        local
            .run_until(async {
                let waiting: Vec<_> = (0..3)
                    .map(|_| {
                        let pool = pool.clone();
                        let task = PooledTask::new(0);
                        tokio::task::spawn_local(async move {
                            assert_eq!(task.take(), Some(0));
                            pool.wait(&task).await.then(|| task.take()).flatten()
                        })
                    })
                    .collect();
                tokio::task::yield_now().await;
                assert_eq!(pool.dispatch(2), None);
                assert_eq!(pool.dispatch(3), None);
                pool.close();
                let mut got = Vec::new();
                for task in waiting {
                    got.push(task.await.expect("it ends"));
                }
                got.sort();
                assert_eq!(got, [None, Some(2), Some(3)]);
                assert!(!pool.wait(&PooledTask::new(0)).await, "it is closed");
            })
            .await;
    }
}
