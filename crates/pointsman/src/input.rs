//! Files, folders and standard input, read and bound.

use std::ffi::OsStr;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use pointsman_binding::{Binder, Change};
use pointsman_resources::read::{Input, Reader};
use pointsman_routing::Tables;

/// What was read, and what came of it.
pub struct World {
    /// The documents and what is wrong with them.
    pub input: Input,
    /// The documents, bound.
    pub binder: Binder,
    /// The tables made of that.
    pub tables: Tables,
}

/// Reads everything that the paths name, and binds it.
pub fn load(paths: &[PathBuf]) -> Result<World> {
    let mut reader = Reader::new();
    for path in paths {
        read(&mut reader, path)?;
    }
    let input = reader.finish();
    let mut binder = Binder::new();
    let mut tables = Tables::default();
    let changes = input
        .documents
        .iter()
        .map(|document| Change::Put(document.resource.clone()));
    tables.apply(&binder.apply(changes));
    Ok(World {
        input,
        binder,
        tables,
    })
}

fn read(reader: &mut Reader, path: &Path) -> Result<()> {
    if path.as_os_str() == "-" {
        let mut bytes = Vec::new();
        std::io::stdin()
            .read_to_end(&mut bytes)
            .context("standard input")?;
        reader.read("-", &bytes);
        return Ok(());
    }
    if !path.is_dir() {
        return read_file(reader, path);
    }
    let mut files = Vec::new();
    collect(path, &mut files, 0)?;
    if files.is_empty() {
        bail!(
            "{}: this folder holds no *.yaml, *.yml or *.json",
            path.display()
        );
    }
    // A file's path stands for the age of what is in it.
    files.sort();
    files.iter().try_for_each(|file| read_file(reader, file))
}

fn read_file(reader: &mut Reader, path: &Path) -> Result<()> {
    let bytes = std::fs::read(path).with_context(|| path.display().to_string())?;
    reader.read(&path.display().to_string(), &bytes);
    Ok(())
}

/// A folder that is linked into itself ends here.
const DEEPEST: usize = 32;

fn collect(folder: &Path, files: &mut Vec<PathBuf>, depth: usize) -> Result<()> {
    if depth > DEEPEST {
        bail!(
            "{}: folders are nested more than {DEEPEST} deep",
            folder.display()
        );
    }
    let entries = std::fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    for entry in entries {
        let path = entry.with_context(|| folder.display().to_string())?.path();
        // Hidden files are editors' and mounts' own: a mounted ConfigMap holds everything twice, once under `..data`.
        if path
            .file_name()
            .and_then(OsStr::to_str)
            .is_some_and(|name| name.starts_with('.'))
        {
            continue;
        }
        if path.is_dir() {
            collect(&path, files, depth + 1)?;
        } else if path
            .extension()
            .is_some_and(|end| ["yaml", "yml", "json"].iter().any(|known| end == *known))
        {
            files.push(path);
        }
    }
    Ok(())
}
