//! Files and environment variables that manifests may name, as the operator allows. By default there are none: the author of a manifest may be
//! somebody who has no access to this machine.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf, absolute};

use pointsman_binding::Content;
use rustix::fs::{Mode, OFlags, ResolveFlags, open, openat2};
use rustix::io::Errno;

use crate::bounded;

/// Largest file in bytes. Response bodies are kept in memory.
const CONTENT_SIZE: usize = 1024 * 1024;

/// Attempts to open a file while directories on the way to it are renamed.
const ATTEMPTS: usize = 16;

/// Directories and environment variables that manifests may read from.
#[derive(Clone, Debug, Default)]
pub struct ContentAccess {
    /// Absolute paths.
    directories: Vec<PathBuf>,
    variables: BTreeSet<String>,
}

impl ContentAccess {
    /// Allows the files below some directories, and some environment variables. Fails if a directory can't be opened.
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

    /// Reads a file. A relative name is looked up in each directory in turn.
    pub fn file(&self, name: &str) -> Content {
        if self.directories.is_empty() {
            return Err(format!(
                "file `{name}` is not read: --content-dir DIR allows the files of a directory"
            ));
        }
        let mut problem = format!("file `{name}` is in no directory that --content-dir allows");
        for directory in &self.directories {
            let Some(inner) = inside(directory, Path::new(name)) else {
                continue;
            };
            match open_beneath(directory, &inner)
                .and_then(|file| bounded::read_opened(file, CONTENT_SIZE))
            {
                Ok(bytes) => return Ok(bytes.into()),
                Err(error) if leaves(&error) => {
                    problem = format!(
                        "file `{name}` is not read: its path leads out of the directory that --content-dir allows"
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
                "environment variable `{name}` is not read: --content-env {name} allows it"
            ));
        }
        match std::env::var_os(OsStr::new(name)) {
            Some(value) => Ok(value.into_encoded_bytes().into()),
            None => Err(format!("environment variable `{name}` is not set")),
        }
    }
}

/// The part of a path below a directory, however the operator has written the directory. `None` if the path is elsewhere.
fn inside(directory: &Path, path: &Path) -> Option<PathBuf> {
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

/// Opens a file below a directory. The kernel resolves the path and refuses every step out of the directory, be it `..` or a link, also if somebody
/// changes the directory meanwhile.
fn open_beneath(directory: &Path, inner: &Path) -> io::Result<File> {
    let directory = open_directory(directory)?;
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | bounded::FLAGS;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    for _ in 0..ATTEMPTS {
        match openat2(&directory, inner, flags, Mode::empty(), resolve) {
            // Something was renamed meanwhile, so that the kernel can't tell.
            Err(Errno::AGAIN) => continue,
            opened => return Ok(opened?.into()),
        }
    }
    Err(Errno::AGAIN.into())
}

fn leaves(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::XDEV.raw_os_error())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    /// A folder with a secret beside an allowed directory.
    fn folder() -> (tempfile::TempDir, ContentAccess) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        std::fs::create_dir_all(path("allowed/deep")).expect("a folder");
        std::fs::write(path("allowed/body"), "body").expect("written");
        std::fs::write(path("allowed/deep/inner"), "inner").expect("written");
        std::fs::write(path("secret"), "secret").expect("written");
        let access = ContentAccess::new(&[path("allowed")], &[]).expect("it is there");
        (folder, access)
    }

    fn why(access: &ContentAccess, name: &str) -> String {
        access.file(name).expect_err(name)
    }

    #[test]
    fn without_a_flag_nothing_is_read() {
        let access = ContentAccess::default();
        assert!(why(&access, "/etc/hostname").contains("--content-dir"));
        let why = access.variable("PATH").expect_err("it is not allowed");
        assert!(why.contains("--content-env PATH"), "{why}");
    }

    #[test]
    fn files_below_the_directory_are_read_by_relative_and_absolute_names() {
        let (folder, access) = folder();
        symlink("deep/inner", folder.path().join("allowed/link")).expect("linked");
        let whole = folder.path().join("allowed/body");
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
        symlink("allowed", folder.path().join("alias")).expect("linked");
        let alias = folder.path().join("alias");
        let access = ContentAccess::new(&[alias], &[]).expect("it is there");
        assert!(access.file(whole).is_ok(), "{:?}", access.file(whole));
    }

    #[test]
    fn no_path_leads_out_of_the_directory() {
        let (folder, access) = folder();
        let path = |name: &str| folder.path().join(name);
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
            assert!(why(&access, name).contains("leads out"), "{name}");
        }
        let secret = path("secret");
        for name in ["/etc/passwd", secret.to_str().expect("text")] {
            let why = why(&access, name);
            assert!(why.contains("in no directory that --content-dir"), "{why}");
        }
        // A neighbour whose name begins the same.
        std::fs::create_dir(path("allowed-not")).expect("a folder");
        std::fs::write(path("allowed-not/x"), "x").expect("written");
        let neighbour = path("allowed-not/x");
        assert!(why(&access, neighbour.to_str().expect("text")).contains("in no directory"));
    }

    #[test]
    fn a_link_that_is_swapped_meanwhile_does_not_lead_out() {
        let (folder, access) = folder();
        let path = |name: &str| folder.path().join(name);
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
    fn only_regular_files_of_a_size_are_read_and_none_is_waited_for() {
        let (folder, access) = folder();
        let path = folder.path().join("allowed/pipe");
        let made = std::process::Command::new("mkfifo").arg(&path).status();
        assert!(made.expect("mkfifo").success());
        assert!(why(&access, "pipe").contains("this is a pipe"));
        assert!(why(&access, "deep").contains("this is a directory"));
        let large = File::create(folder.path().join("allowed/large")).expect("a file");
        large.set_len(1024 * 1024 + 1).expect("sparse");
        assert!(why(&access, "large").contains("larger than 1 MiB"));
        let devices = ContentAccess::new(&["/dev".into()], &[]).expect("it is there");
        assert!(why(&devices, "zero").contains("this is a device"));
    }

    #[test]
    fn a_directory_that_is_not_there_is_an_error_at_the_start() {
        let error = ContentAccess::new(&["/nonexistent".into()], &[]).expect_err("it is missing");
        assert!(error.starts_with("--content-dir /nonexistent: "), "{error}");
    }
}
