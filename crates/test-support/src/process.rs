//! Processes that end with their test.

use std::fs::File;
use std::ops::{Deref, DerefMut};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A process that is killed on drop.
#[derive(Debug)]
pub struct KilledOnDrop(pub Child);

impl KilledOnDrop {
    /// Starts a process without input, whose output is appended to a file.
    pub fn with_log(command: &mut Command, log: &Path) -> Self {
        let log = File::options().create(true).append(true).open(log);
        let log = log.expect("a file");
        let child = command
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a second handle"))
            .stderr(log)
            .spawn();
        KilledOnDrop(child.expect("the program runs"))
    }

    /// Sends a signal, such as `TERM`.
    pub fn signal(&self, name: &str) {
        let id = self.0.id().to_string();
        let status = Command::new("kill").args(["-s", name, &id]).status();
        assert!(status.expect("kill runs").success(), "kill -s {name} {id}");
    }
}

impl Deref for KilledOnDrop {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.0
    }
}

impl DerefMut for KilledOnDrop {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.0
    }
}

impl Drop for KilledOnDrop {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
