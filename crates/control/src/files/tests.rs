//! Files that change between two looks.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use pointsman_resources::{Kind, ObjectKey};

use super::{Changed, Files};

struct Folder(tempfile::TempDir);

impl Folder {
    fn new(files: &[(&str, &[&str])]) -> (Folder, Files) {
        let folder = Folder(tempfile::tempdir().expect("a folder"));
        for (name, services) in files {
            folder.write(name, services);
        }
        let mut files = Files::new(&[folder.0.path().to_owned()], None);
        files.scan(true);
        (folder, files)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes a file with a Service of each name.
    fn write(&self, name: &str, services: &[&str]) {
        let document = |name: &&str| {
            format!(
                "---\n{{apiVersion: v1, kind: Service, metadata: {{name: {name}}}, spec: {{ports: [{{port: 80}}]}}}}\n"
            )
        };
        let text: String = services.iter().map(document).collect();
        std::fs::write(self.path(name), text).expect("written");
    }

    fn touch(&self, files: &mut Files, names: &[&str]) -> Changed {
        files.touch(&names.iter().map(|name| self.path(name)).collect())
    }
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::new(Kind::Service, "default", name)
}

fn names(changed: &Changed) -> Vec<&str> {
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
fn objects_are_ordered_by_their_files_whenever_these_come() {
    let (folder, mut files) = Folder::new(&[("b.yaml", &["x", "w"]), ("d.yaml", &["z"])]);
    for name in ["c", "a", "bb", "cc"] {
        folder.write(&format!("{name}.yaml"), &[name]);
        let changed = folder.touch(&mut files, &[&format!("{name}.yaml")]);
        assert_eq!(names(&changed), [name], "nothing else has changed");
    }
    let wanted = [
        "a.yaml a",
        "b.yaml x",
        "b.yaml w",
        "bb.yaml bb",
        "c.yaml c",
        "cc.yaml cc",
        "d.yaml z",
    ];
    assert_eq!(order(&files), wanted);
    let mut anew = Files::new(&[folder.0.path().to_owned()], None);
    anew.scan(true);
    assert_eq!(order(&anew), wanted);
}

#[test]
fn an_object_that_moves_within_one_burst_is_there_all_the_time() {
    let (folder, mut files) = Folder::new(&[("a.yaml", &["x", "moving"]), ("b.yaml", &["w"])]);
    folder.write("a.yaml", &["x"]);
    folder.write("b.yaml", &["w", "moving"]);
    let changed = folder.touch(&mut files, &["a.yaml", "b.yaml"]);
    assert_eq!(names(&changed), ["moving"]);
    let document = files.document(&key("moving")).expect("it is there");
    assert!(document.file.ends_with("b.yaml"));
}

#[test]
fn what_is_written_anew_but_the_same_is_no_change() {
    let (folder, mut files) = Folder::new(&[("a.yaml", &["x", "w"])]);
    folder.write("a.yaml", &["x", "w"]);
    assert!(folder.touch(&mut files, &["a.yaml"]).is_empty());
    folder.write("a.yaml", &["x", "z"]);
    let changed = folder.touch(&mut files, &["a.yaml"]);
    assert_eq!(names(&changed), ["w", "z"]);
    assert!(files.document(&key("w")).is_none());
}

#[test]
fn of_two_files_that_name_an_object_the_first_has_it() {
    let (folder, mut files) = Folder::new(&[("b.yaml", &["x"]), ("c.yaml", &["x"])]);
    let file = |files: &Files| {
        let document = files.document(&key("x")).expect("it is there");
        document.file.rsplit('/').next().map(str::to_owned)
    };
    assert_eq!(
        (file(&files).as_deref(), files.findings().len()),
        (Some("b.yaml"), 1)
    );
    folder.write("a.yaml", &["x"]);
    folder.touch(&mut files, &["a.yaml"]);
    assert_eq!(
        (file(&files).as_deref(), files.findings().len()),
        (Some("a.yaml"), 2)
    );
    for gone in ["a.yaml", "b.yaml"] {
        std::fs::remove_file(folder.path(gone)).expect("removed");
        folder.touch(&mut files, &[gone]);
    }
    assert_eq!(
        (file(&files).as_deref(), files.findings().len()),
        (Some("c.yaml"), 0)
    );
}

#[test]
fn a_file_that_two_names_lead_to_is_the_first_ones() {
    let (folder, mut files) = Folder::new(&[("b.yaml", &["x"])]);
    std::os::unix::fs::symlink("b.yaml", folder.path("a.yaml")).expect("linked");
    folder.touch(&mut files, &["a.yaml"]);
    assert_eq!(order(&files), ["a.yaml x"]);
    assert!(files.findings().is_empty());
    // Of the link the file behind it is heard of only.
    folder.write("b.yaml", &["w"]);
    folder.touch(&mut files, &["b.yaml"]);
    assert_eq!(order(&files), ["a.yaml w"]);
    std::fs::remove_file(folder.path("a.yaml")).expect("removed");
    folder.touch(&mut files, &["a.yaml"]);
    assert_eq!(order(&files), ["b.yaml w"]);
}

#[test]
fn folders_are_told_of_before_they_are_looked_into_and_links_where_they_lead() {
    let folder = Folder(tempfile::tempdir().expect("a folder"));
    std::fs::create_dir_all(folder.path("m/deep")).expect("a folder");
    std::fs::create_dir_all(folder.path("far")).expect("a folder");
    folder.write("far/x.yaml", &["x"]);
    std::os::unix::fs::symlink("../far/x.yaml", folder.path("m/x.yaml")).expect("linked");
    let heard = std::sync::Arc::new(std::sync::Mutex::new(BTreeSet::new()));
    let told = heard.clone();
    let watcher = move |path: &Path| {
        told.lock().expect("a lock").insert(path.to_owned());
    };
    let mut files = Files::new(&[folder.path("m")], Some(Box::new(watcher)));
    files.scan(true);
    let heard = heard.lock().expect("a lock");
    for wanted in ["m", "m/deep", "far", ""] {
        let path = folder.0.path().join(wanted);
        assert!(
            heard
                .iter()
                .any(|known| known.canonicalize().ok() == path.canonicalize().ok()),
            "{wanted}: {heard:?}"
        );
    }
    drop(heard);
    folder.write("far/x.yaml", &["w"]);
    let far = folder
        .0
        .path()
        .canonicalize()
        .expect("a path")
        .join("far/x.yaml");
    let paths = [far, folder.path("far/x.yaml")].into();
    assert_eq!(names(&files.touch(&paths)), ["w", "x"]);
}
