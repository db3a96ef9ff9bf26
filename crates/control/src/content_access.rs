//! Files and environment variables that the operator allows manifests to use. By default there are none, because the author of a manifest may have no access to
//! this machine.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf, absolute};

use pointsman_binding::Content;
use rustix::fs::{Mode, OFlags, ResolveFlags, open, openat2};
use rustix::io::Errno;

use crate::safe_read;

/// Largest file in bytes. Response bodies are kept in memory.
const CONTENT_SIZE: usize = 1024 * 1024;

/// Attempts to open a file while directories along its path are being renamed.
const ATTEMPTS: usize = 16;

/// Directories and environment variables whose content manifests may use.
#[derive(Clone, Debug, Default)]
pub struct ContentAccess {
    /// Absolute paths.
    directories: Vec<PathBuf>,
    variables: BTreeSet<String>,
}

impl ContentAccess {
    /// Allows the files below these directories and these environment variables. Fails if a directory can't be opened.
    pub fn new(directories: &[PathBuf], variables: &[String]) -> Result<Self, String> {
        let check = |path: &PathBuf| {
            let found = open_directory(path).and_then(|_| absolute(path));
            found.map_err(|error| format!("--content-dir {}: {error}", path.display()))
        };
        Ok(ContentAccess {
            directories: directories.iter().map(check).collect::<Result<_, _>>()?,
            variables: variables.iter().cloned().collect(),
        })
    }

    /// Reads a file. A relative name is looked up in each allowed directory in turn.
    pub fn file(&self, name: &str) -> Content {
        if self.directories.is_empty() {
            return Err(format!(
                "file `{name}` can't be read: no directory is allowed (--content-dir DIR)"
            ));
        }
        let mut problem = format!("file `{name}` is not in a directory allowed by --content-dir");
        for directory in &self.directories {
            let Some(inner) = relative_to(directory, Path::new(name)) else {
                continue;
            };
            match open_beneath(directory, &inner)
                .and_then(|file| safe_read::read_opened(file, CONTENT_SIZE))
            {
                Ok(bytes) => return Ok(bytes.into()),
                Err(error) if escapes(&error) => {
                    problem = format!(
                        "file `{name}` can't be read: its path leaves the directory allowed by --content-dir"
                    );
                }
                Err(error) => problem = format!("file `{name}` can't be read: {error}"),
            }
        }
        Err(problem)
    }

    /// Reads an environment variable.
    pub fn variable(&self, name: &str) -> Content {
        if !self.variables.contains(name) {
            return Err(format!(
                "environment variable `{name}` is not allowed (--content-env {name})"
            ));
        }
        match std::env::var_os(OsStr::new(name)) {
            Some(value) => Ok(value.into_encoded_bytes().into()),
            None => Err(format!("environment variable `{name}` is not set")),
        }
    }
}

/// Returns the part of a path below a directory, which the operator may have given as a link. `None` if the path is elsewhere.
fn relative_to(directory: &Path, path: &Path) -> Option<PathBuf> {
    if path.is_relative() {
        return Some(path.to_owned());
    }
    let below = |directory: &Path| path.strip_prefix(directory).ok().map(Path::to_owned);
    below(directory).or_else(|| below(&directory.canonicalize().ok()?))
}

fn open_directory(path: &Path) -> io::Result<rustix::fd::OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(open(path, flags, Mode::empty())?)
}

/// Opens a file below a directory. The kernel resolves the path and rejects every step out of the directory, by `..` or by a link, even if the directory
/// changes at the same time.
fn open_beneath(directory: &Path, inner: &Path) -> io::Result<File> {
    let directory = open_directory(directory)?;
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | safe_read::OPEN_FLAGS;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    for _ in 0..ATTEMPTS {
        match openat2(&directory, inner, flags, Mode::empty(), resolve) {
            // The kernel could not rule out an escape because of a concurrent rename.
            Err(Errno::AGAIN) => continue,
            opened => return Ok(opened?.into()),
        }
    }
    Err(Errno::AGAIN.into())
}

fn escapes(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::XDEV.raw_os_error())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    /// Creates a directory that contains an allowed directory and, beside it, a secret.
    fn setup() -> (tempfile::TempDir, ContentAccess) {
        let root = tempfile::tempdir().expect("a directory");
        let path = |name: &str| root.path().join(name);
        std::fs::create_dir_all(path("allowed/deep")).expect("a directory");
        std::fs::write(path("allowed/body"), "body").expect("written");
        std::fs::write(path("allowed/deep/inner"), "inner").expect("written");
        std::fs::write(path("secret"), "secret").expect("written");
        let access = ContentAccess::new(&[path("allowed")], &[]).expect("it exists");
        (root, access)
    }

    fn denial(access: &ContentAccess, name: &str) -> String {
        access.file(name).expect_err(name)
    }

    #[test]
    fn nothing_is_read_by_default() {
        let access = ContentAccess::default();
        assert!(denial(&access, "/etc/hostname").contains("--content-dir"));
        let denial = access.variable("PATH").expect_err("it is not allowed");
        assert!(denial.contains("--content-env PATH"), "{denial}");
    }

    #[test]
    fn files_below_the_directory_are_read_by_relative_and_absolute_names() {
        let (root, access) = setup();
        symlink("deep/inner", root.path().join("allowed/link")).expect("linked");
        let whole = root.path().join("allowed/body");
        let whole = whole.to_str().expect("text");
        for (name, text) in [
            ("body", "body"),
            (whole, "body"),
            ("deep/inner", "inner"),
            ("deep/../body", "body"),
            ("link", "inner"),
        ] {
            assert_eq!(access.file(name).as_deref(), Ok(text.as_bytes()), "{name}");
        }
        // The operator may have written the directory as a link.
        symlink("allowed", root.path().join("alias")).expect("linked");
        let alias = root.path().join("alias");
        let access = ContentAccess::new(&[alias], &[]).expect("it exists");
        assert!(access.file(whole).is_ok(), "{:?}", access.file(whole));
    }

    #[test]
    fn no_path_leads_out_of_the_directory() {
        let (root, access) = setup();
        let path = |name: &str| root.path().join(name);
        symlink("../secret", path("allowed/up")).expect("linked");
        symlink(path("secret"), path("allowed/away")).expect("linked");
        symlink("..", path("allowed/folder")).expect("linked");
        let above = path("allowed/../secret");
        for name in [
            "../secret",
            "deep/../../secret",
            "up",
            "away",
            "folder/secret",
            above.to_str().expect("text"),
        ] {
            assert!(
                denial(&access, name).contains("leaves the directory"),
                "{name}"
            );
        }
        let secret = path("secret");
        for name in ["/etc/passwd", secret.to_str().expect("text")] {
            let denial = denial(&access, name);
            assert!(
                denial.contains("not in a directory allowed by --content-dir"),
                "{denial}"
            );
        }
        // A directory whose name begins with that of the allowed one.
        std::fs::create_dir(path("allowed-not")).expect("a directory");
        std::fs::write(path("allowed-not/x"), "x").expect("written");
        let neighbour = path("allowed-not/x");
        assert!(denial(&access, neighbour.to_str().expect("text")).contains("not in a directory"));
    }

    #[test]
    fn a_link_that_changes_during_a_read_does_not_lead_out() {
        let (root, access) = setup();
        let path = |name: &str| root.path().join(name);
        symlink("body", path("allowed/swapped")).expect("linked");
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut outside = false;
                while !done.load(Ordering::Relaxed) {
                    outside = !outside;
                    let target = if outside { "../secret" } else { "body" };
                    symlink(target, path("allowed/new")).expect("linked");
                    std::fs::rename(path("allowed/new"), path("allowed/swapped")).expect("moved");
                }
            });
            let mut read = 0;
            for _ in 0..5000 {
                if let Ok(bytes) = access.file("swapped") {
                    read += 1;
                    assert_eq!(&*bytes, b"body");
                }
            }
            done.store(true, Ordering::Relaxed);
            assert!(read > 0, "it was never read");
        });
    }

    #[test]
    fn only_regular_files_up_to_the_size_limit_are_read_without_blocking() {
        let (root, access) = setup();
        let path = root.path().join("allowed/pipe");
        let made = std::process::Command::new("mkfifo").arg(&path).status();
        assert!(made.expect("mkfifo").success());
        assert!(denial(&access, "pipe").contains("this is a pipe"));
        assert!(denial(&access, "deep").contains("this is a directory"));
        let large = File::create(root.path().join("allowed/large")).expect("a file");
        large.set_len(1024 * 1024 + 1).expect("sparse");
        assert!(denial(&access, "large").contains("larger than 1 MiB"));
        let devices = ContentAccess::new(&["/dev".into()], &[]).expect("it exists");
        assert!(denial(&devices, "zero").contains("this is a device"));
    }

    #[test]
    fn a_missing_directory_is_an_error_at_startup() {
        let error = ContentAccess::new(&["/nonexistent".into()], &[]).expect_err("it is missing");
        assert!(error.starts_with("--content-dir /nonexistent: "), "{error}");
    }
}
