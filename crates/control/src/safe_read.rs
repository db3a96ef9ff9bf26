//! Safe reads of untrusted files: only regular files, up to a maximum size, without blocking on open.

use std::fs::{File, FileType, OpenOptions};
use std::io::{self, Error, ErrorKind, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;

/// Flags for opening a path that may not be a regular file: opening a FIFO does not block, and a terminal does not become the controlling terminal.
pub const OPEN_FLAGS: OFlags = OFlags::NONBLOCK.union(OFlags::NOCTTY);

/// Reads the regular file at a path. Follows links.
pub fn read_file(path: &Path, limit: usize) -> io::Result<Vec<u8>> {
    // Opening some devices has side effects, so the type is checked before.
    require_regular(path.metadata()?.file_type())?;
    let mut options = OpenOptions::new();
    let file = options.read(true).custom_flags(OPEN_FLAGS.bits() as i32);
    read_opened(file.open(path)?, limit)
}

/// Reads an opened file, which must be a regular one.
pub fn read_opened(file: File, limit: usize) -> io::Result<Vec<u8>> {
    let metadata = file.metadata()?;
    require_regular(metadata.file_type())?;
    if metadata.len() > limit as u64 {
        return Err(too_large(limit));
    }
    read_stream(file, limit)
}

/// Reads a stream to its end. Fails once it exceeds the limit.
pub fn read_stream(stream: impl Read, limit: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    stream.take(limit as u64 + 1).read_to_end(&mut bytes)?;
    match bytes.len() > limit {
        true => Err(too_large(limit)),
        false => Ok(bytes),
    }
}

fn require_regular(kind: FileType) -> io::Result<()> {
    let found = match kind {
        kind if kind.is_file() => return Ok(()),
        kind if kind.is_dir() => "a directory",
        kind if kind.is_fifo() => "a pipe",
        kind if kind.is_socket() => "a socket",
        _ => "a device",
    };
    let message = format!("this is {found}; only regular files are read");
    Err(Error::new(ErrorKind::InvalidInput, message))
}

/// Returns whether a read failed because the file is not a regular one.
pub fn is_not_regular_file(error: &Error) -> bool {
    error.kind() == ErrorKind::InvalidInput
}

fn too_large(limit: usize) -> Error {
    let limit = limit / (1024 * 1024);
    let message = format!("larger than {limit} MiB, the maximum size");
    Error::new(ErrorKind::FileTooLarge, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_larger_than_the_limit_is_not_read() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("file");
        std::fs::write(&path, [b'x'; 8]).expect("written");
        assert_eq!(read_file(&path, 8).expect("read").len(), 8);
        let error = read_file(&path, 7).expect_err("it is larger");
        assert_eq!(error.kind(), ErrorKind::FileTooLarge);
        // Files in /proc have no size in their metadata.
        assert_eq!(
            read_file(Path::new("/proc/self/maps"), 8)
                .expect_err("it is larger")
                .kind(),
            ErrorKind::FileTooLarge
        );
    }
}
