//! Files that change between two scans.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use pointsman_resources::{Kind, ObjectKey};

use super::{ChangedObjects, Files};

struct ManifestDir(tempfile::TempDir);

impl ManifestDir {
    fn new(files: &[(&str, &[&str])]) -> (ManifestDir, Files) {
        let directory = ManifestDir(tempfile::tempdir().expect("a directory"));
        for (name, services) in files {
            directory.write(name, services);
        }
        let mut files = Files::new(&[directory.0.path().to_owned()], None);
        files.scan_all(true);
        (directory, files)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes a file with one Service for each name.
    fn write(&self, name: &str, services: &[&str]) {
        let document = |name: &&str| {
            format!(
                "---\n{{apiVersion: v1, kind: Service, metadata: {{name: {name}}}, spec: {{ports: [{{port: 80}}]}}}}\n"
            )
        };
        let text: String = services.iter().map(document).collect();
        std::fs::write(self.path(name), text).expect("written");
    }

    fn refresh(&self, files: &mut Files, names: &[&str]) -> ChangedObjects {
        files.reread_changed(&names.iter().map(|name| self.path(name)).collect())
    }
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::new(Kind::Service, "default", name)
}

fn names(changed: &ChangedObjects) -> Vec<&str> {
    changed.iter().map(|key| &*key.name.name).collect()
}

fn order(files: &Files) -> Vec<String> {
    let name = |path: &str| {
        let file = Path::new(path).file_name();
        file.map(|name| name.to_string_lossy().into_owned())
    };
    files
        .documents()
        .iter()
        .map(|document| {
            let meta = document.resource.meta();
            format!("{} {}", name(&document.file).unwrap_or_default(), meta.name)
        })
        .collect()
}

#[test]
fn objects_are_ordered_by_file_regardless_of_when_files_appear() {
    let (directory, mut files) = ManifestDir::new(&[("b.yaml", &["x", "w"]), ("d.yaml", &["z"])]);
    for name in ["c", "a", "bb", "cc"] {
        directory.write(&format!("{name}.yaml"), &[name]);
        let changed = directory.refresh(&mut files, &[&format!("{name}.yaml")]);
        assert_eq!(names(&changed), [name], "nothing else has changed");
    }
    let expected = [
        "a.yaml a",
        "b.yaml x",
        "b.yaml w",
        "bb.yaml bb",
        "c.yaml c",
        "cc.yaml cc",
        "d.yaml z",
    ];
    assert_eq!(order(&files), expected);
    let mut rescanned = Files::new(&[directory.0.path().to_owned()], None);
    rescanned.scan_all(true);
    assert_eq!(order(&rescanned), expected);
}

#[test]
fn an_object_that_moves_to_another_file_in_one_burst_is_never_deleted() {
    let (directory, mut files) =
        ManifestDir::new(&[("a.yaml", &["x", "moving"]), ("b.yaml", &["w"])]);
    directory.write("a.yaml", &["x"]);
    directory.write("b.yaml", &["w", "moving"]);
    let changed = directory.refresh(&mut files, &["a.yaml", "b.yaml"]);
    assert_eq!(names(&changed), ["moving"]);
    let document = files.document(&key("moving")).expect("it is declared");
    assert!(document.file.ends_with("b.yaml"));
}

#[test]
fn rewriting_a_file_with_the_same_content_changes_nothing() {
    let (directory, mut files) = ManifestDir::new(&[("a.yaml", &["x", "w"])]);
    directory.write("a.yaml", &["x", "w"]);
    assert!(directory.refresh(&mut files, &["a.yaml"]).is_empty());
    directory.write("a.yaml", &["x", "z"]);
    let changed = directory.refresh(&mut files, &["a.yaml"]);
    assert_eq!(names(&changed), ["w", "z"]);
    assert!(files.document(&key("w")).is_none());
}

#[test]
fn an_object_in_two_files_belongs_to_the_first_file() {
    let (directory, mut files) = ManifestDir::new(&[("b.yaml", &["x"]), ("c.yaml", &["x"])]);
    let file = |files: &Files| {
        let document = files.document(&key("x")).expect("it is declared");
        document.file.rsplit('/').next().map(str::to_owned)
    };
    assert_eq!(
        (file(&files).as_deref(), files.findings().len()),
        (Some("b.yaml"), 1)
    );
    directory.write("a.yaml", &["x"]);
    directory.refresh(&mut files, &["a.yaml"]);
    assert_eq!(
        (file(&files).as_deref(), files.findings().len()),
        (Some("a.yaml"), 2)
    );
    for gone in ["a.yaml", "b.yaml"] {
        std::fs::remove_file(directory.path(gone)).expect("removed");
        directory.refresh(&mut files, &[gone]);
    }
    assert_eq!(
        (file(&files).as_deref(), files.findings().len()),
        (Some("c.yaml"), 0)
    );
}

#[test]
fn a_file_with_two_paths_is_read_through_the_first_path() {
    let (directory, mut files) = ManifestDir::new(&[("b.yaml", &["x"])]);
    std::os::unix::fs::symlink("b.yaml", directory.path("a.yaml")).expect("linked");
    directory.refresh(&mut files, &["a.yaml"]);
    assert_eq!(order(&files), ["a.yaml x"]);
    assert!(files.findings().is_empty());
    // The event names the target; the link depends on it.
    directory.write("b.yaml", &["w"]);
    directory.refresh(&mut files, &["b.yaml"]);
    assert_eq!(order(&files), ["a.yaml w"]);
    std::fs::remove_file(directory.path("a.yaml")).expect("removed");
    directory.refresh(&mut files, &["a.yaml"]);
    assert_eq!(order(&files), ["b.yaml w"]);
}

#[test]
fn directories_and_the_targets_of_links_are_watched() {
    let directory = ManifestDir(tempfile::tempdir().expect("a directory"));
    std::fs::create_dir_all(directory.path("m/deep")).expect("a directory");
    std::fs::create_dir_all(directory.path("far")).expect("a directory");
    directory.write("far/x.yaml", &["x"]);
    std::os::unix::fs::symlink("../far/x.yaml", directory.path("m/x.yaml")).expect("linked");
    let watched = std::sync::Arc::new(std::sync::Mutex::new(BTreeSet::new()));
    let sender = watched.clone();
    let watch = move |path: &Path| {
        sender.lock().expect("a lock").insert(path.to_owned());
    };
    let mut files = Files::new(&[directory.path("m")], Some(Box::new(watch)));
    files.scan_all(true);
    let watched = watched.lock().expect("a lock");
    for expected in ["m", "m/deep", "far", ""] {
        let path = directory.0.path().join(expected);
        assert!(
            watched
                .iter()
                .any(|known| known.canonicalize().ok() == path.canonicalize().ok()),
            "{expected}: {watched:?}"
        );
    }
    drop(watched);
    directory.write("far/x.yaml", &["w"]);
    let far = directory
        .0
        .path()
        .canonicalize()
        .expect("a path")
        .join("far/x.yaml");
    let paths = [far, directory.path("far/x.yaml")].into();
    assert_eq!(names(&files.reread_changed(&paths)), ["w", "x"]);
}
