//! Tests of the entries' formats, of escaping, and of the writer thread.
#![allow(
    clippy::disallowed_methods,
    reason = "tests wait no longer than a deadline"
)]

use std::fs;
use std::net::SocketAddr;
use std::sync::atomic::AtomicU32;
use std::time::{SystemTime, UNIX_EPOCH};

use pointsman_binding::bound::{BackendId, FrontendId, Scope, Transport};
use pointsman_resources::{Kind, Name, ObjectKey};
use proptest::prelude::*;

use super::*;

/// A temporary directory for a test, deleted on drop.
struct TempDir(PathBuf);

impl TempDir {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!(
            "pointsman-access-log-{}-{}",
            std::process::id(),
            NEXT.fetch_add(1, Ordering::Relaxed)
        );
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        TempDir(path)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn options(path: &Path) -> AccessLogOptions {
    AccessLogOptions {
        format: AccessLogFormat::Text,
        file: Some(path.to_owned()),
    }
}

/// Waits until a file's content satisfies a condition; fails after half a minute.
fn eventually(path: &Path, wanted: impl Fn(&str) -> bool) -> String {
    let start = Instant::now();
    loop {
        let text = fs::read_to_string(path).unwrap_or_default();
        if wanted(&text) {
            return text;
        }
        assert!(start.elapsed() < Duration::from_secs(30), "{text}");
        thread::sleep(Duration::from_millis(5));
    }
}

fn line(format: AccessLogFormat, record: &LogRecord<'_>) -> String {
    let mut out = Vec::new();
    record.write(format, &mut out);
    String::from_utf8(out).unwrap()
}

fn service() -> ObjectKey {
    ObjectKey::new(Kind::Service, "shop", "cart")
}

/// Calls a function with an entry that has all fields.
fn full<T>(then: impl FnOnce(&LogRecord<'_>) -> T) -> T {
    let listener = FrontendId::Listener {
        gateway: Name::new("infra", "edge"),
        owner: ObjectKey::new(Kind::Gateway, "infra", "edge"),
        listener: "http".into(),
    };
    let route = ObjectKey::new(Kind::HTTPRoute, "shop", "shop");
    let backend = BackendId::new(service(), 8080, Transport::Tcp);
    then(&LogRecord {
        time: UNIX_EPOCH + Duration::from_millis(1_772_366_400_250),
        duration: Duration::from_micros(12_345),
        client: Some(SocketAddr::from(([127, 0, 0, 1], 50000))),
        listener: Some(&listener),
        protocol: "HTTP/1.1",
        method: Some(b"GET"),
        authority: Some(b"shop.example"),
        path: Some(b"/cart?id=1"),
        status: Some(200),
        grpc_status: Some(0),
        request_bytes: 3,
        response_bytes: 4096,
        rule: Some(LoggedRule {
            route: &route,
            index: 1,
            matched: 2,
        }),
        backend: Some(&backend),
        endpoint: Some(SocketAddr::from(([127, 0, 0, 2], 8080))),
        upstream_time: Some(Duration::from_micros(900)),
        retries: 1,
        reason: Some("Timeout"),
        request_id: Some(b"7f"),
    })
}

#[test]
fn the_text_format_has_columns_and_named_fields() {
    assert_eq!(
        full(|record| line(AccessLogFormat::Text, record)),
        "2026-03-01T12:00:00.250Z 127.0.0.1:50000 infra/edge/http HTTP/1.1 GET shop.example /cart?id=1 200 12.345 3 4096 \
         grpc_status=0 route=HTTPRoute/shop/shop rule=1 match=2 backend=Service/shop/cart:8080 endpoint=127.0.0.2:8080 \
         upstream_ms=0.900 retries=1 reason=Timeout request_id=7f\n"
    );
    let bare = LogRecord {
        protocol: "UDP",
        ..LogRecord::default()
    };
    assert_eq!(
        line(AccessLogFormat::Text, &bare),
        "1970-01-01T00:00:00.000Z - - UDP - - - - 0.000 0 0\n"
    );
}

#[test]
fn the_json_format_has_one_object_per_line() {
    assert_eq!(
        full(|record| line(AccessLogFormat::Json, record)),
        concat!(
            r#"{"time":"2026-03-01T12:00:00.250Z","client":"127.0.0.1:50000","listener":"infra/edge/http","protocol":"HTTP/1.1","#,
            r#""method":"GET","authority":"shop.example","path":"/cart?id=1","status":200,"duration_ms":12.345,"request_bytes":3,"#,
            r#""response_bytes":4096,"grpc_status":0,"route":"HTTPRoute/shop/shop","rule":1,"match":2,"backend":"Service/shop/cart:8080","#,
            r#""endpoint":"127.0.0.2:8080","upstream_ms":0.900,"retries":1,"reason":"Timeout","request_id":"7f"}"#,
            "\n"
        )
    );
    assert_eq!(
        line(AccessLogFormat::Json, &LogRecord::default()),
        "{\"time\":\"1970-01-01T00:00:00.000Z\",\"protocol\":\"\",\"duration_ms\":0.000,\"request_bytes\":0,\"response_bytes\":0}\n"
    );
}

#[test]
fn the_list_of_fields_matches_the_entries() {
    let text = full(|record| line(AccessLogFormat::Json, record));
    let value: serde_json::Map<String, serde_json::Value> = serde_json::from_str(&text).unwrap();
    let names: Vec<&str> = value.keys().map(String::as_str).collect();
    assert_eq!(names, record::FIELDS.map(|(name, _)| name));
}

#[test]
fn listeners_have_distinct_names() {
    let set = FrontendId::Listener {
        gateway: Name::new("infra", "edge"),
        owner: ObjectKey::new(Kind::ListenerSet, "team", "more"),
        listener: "http".into(),
    };
    let mesh = |scope| FrontendId::Mesh {
        parent: service(),
        port: 80,
        transport: Transport::Tcp,
        scope,
    };
    let everyone = mesh(Scope::Everyone);
    let consumer = mesh(Scope::Namespace("web".into()));
    let table = [
        (&set, "ListenerSet/team/more/http"),
        (&everyone, "Service/shop/cart:80"),
        (&consumer, "Service/shop/cart:80@web"),
    ];
    for (id, wanted) in table {
        let record = LogRecord {
            listener: Some(id),
            ..LogRecord::default()
        };
        let line = line(AccessLogFormat::Text, &record);
        assert_eq!(line.split(' ').nth(2), Some(wanted));
    }
}

#[test]
fn times_are_formatted_as_in_rfc_3339() {
    let table = [
        (0, "1970-01-01T00:00:00.000Z"),
        (951_782_399_999, "2000-02-28T23:59:59.999Z"),
        (951_782_400_000, "2000-02-29T00:00:00.000Z"),
        (951_868_800_000, "2000-03-01T00:00:00.000Z"),
        (1_709_164_800_001, "2024-02-29T00:00:00.001Z"),
        (1_735_689_599_000, "2024-12-31T23:59:59.000Z"),
        (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
    ];
    for (milliseconds, wanted) in table {
        let record = LogRecord {
            time: UNIX_EPOCH + Duration::from_millis(milliseconds),
            ..LogRecord::default()
        };
        assert!(
            line(AccessLogFormat::Text, &record).starts_with(wanted),
            "{wanted}"
        );
    }
}

#[test]
fn entries_can_not_be_forged() {
    let record = LogRecord {
        authority: Some(b""),
        path: Some(b"/ 200\r\n\"\\\x1b[2J\xff\xc2\x9b"),
        ..LogRecord::default()
    };
    let text = line(AccessLogFormat::Text, &record);
    assert!(
        text.contains(r#" "" /\x20200\x0d\x0a\x22\x5c\x1b[2J\xff\xc2\x9b - "#),
        "{text}"
    );
    let json = line(AccessLogFormat::Json, &record);
    assert!(
        json.contains(r#""path":"/ 200\u000d\u000a\"\\\u001b[2J"#),
        "{json}"
    );
    assert!(json.contains(r"\u009b"), "{json}");
}

proptest! {
    #[test]
    fn an_entry_is_always_a_single_line(path: Vec<u8>, authority: Vec<u8>, id: Vec<u8>, reason: String) {
        let record = LogRecord {
            path: Some(&path),
            authority: Some(&authority),
            request_id: Some(&id),
            reason: Some(&reason),
            ..LogRecord::default()
        };
        let text = line(AccessLogFormat::Text, &record);
        prop_assert_eq!(text.lines().count(), 1);
        prop_assert_eq!(text.split(' ').count(), 13);
        prop_assert!(text.trim_end().bytes().all(|byte| (b' '..=b'~').contains(&byte)));
        let json = line(AccessLogFormat::Json, &record);
        prop_assert_eq!(json.lines().count(), 1);
        let value: serde_json::Value = serde_json::from_str(&json).unwrap();
        prop_assert_eq!(value["path"].as_str().unwrap(), String::from_utf8_lossy(&path));
        prop_assert_eq!(value["reason"].as_str().unwrap(), reason);
    }
}

#[test]
fn entries_are_written_soon_and_completely_on_shutdown() {
    let folder = TempDir::new();
    let path = folder.file("log");
    let log = AccessLog::open(&options(&path)).unwrap();
    let worker = log.worker(&Arc::default());
    full(|record| worker.write(record));
    eventually(&path, |text| text.lines().count() == 1);
    let each = 2_000;
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let worker = log.worker(&Arc::default());
                for _ in 0..each {
                    full(|record| worker.write(record));
                }
            });
        }
    });
    full(|record| worker.write(record));
    drop(worker);
    drop(log);
    let text = fs::read_to_string(&path).unwrap();
    let wanted = full(|record| line(AccessLogFormat::Text, record));
    assert_eq!(text.lines().count(), 2 * each + 2);
    assert!(text.lines().all(|line| line == wanted.trim_end()));
}

#[test]
fn a_file_that_was_moved_away_is_created_again_on_reopen() {
    let folder = TempDir::new();
    let (path, old) = (folder.file("log"), folder.file("log.1"));
    let log = AccessLog::open(&options(&path)).unwrap();
    let worker = log.worker(&Arc::default());
    let write = |reason: &str| {
        worker.write(&LogRecord {
            reason: Some(reason),
            ..LogRecord::default()
        });
    };
    write("first");
    eventually(&path, |text| text.contains("first"));
    fs::rename(&path, &old).unwrap();
    write("second");
    eventually(&old, |text| text.contains("second"));
    log.reopen().unwrap();
    write("third");
    let text = eventually(&path, |text| text.contains("third"));
    assert!(!text.contains("second"), "{text}");
    assert!(!fs::read_to_string(&old).unwrap().contains("third"));
    // A failed reopen changes nothing.
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    assert!(log.reopen().is_err());
}

#[test]
fn the_error_for_a_file_that_can_not_be_opened_names_it() {
    let folder = TempDir::new();
    let path = folder.file("missing").join("log");
    let error = AccessLog::open(&options(&path)).unwrap_err().to_string();
    assert!(error.contains(&path.display().to_string()), "{error}");
}

#[test]
fn a_blocked_log_does_not_block_workers_and_dropped_entries_are_counted() {
    let folder = TempDir::new();
    let path = folder.file("pipe");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &path,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        0,
    )
    .unwrap();
    // A pipe that nobody reads holds 64 KiB; further writes block.
    let mut reader = OpenOptions::new()
        .read(true)
        .write(true)
        .open(&path)
        .unwrap();
    let log = AccessLog::open(&options(&path)).unwrap();
    let series: Arc<WorkerSeries> = Arc::default();
    let worker = log.worker(&series);
    let mut written = 0;
    let start = Instant::now();
    while series.dropped_log_lines.get() == 0 {
        full(|record| worker.write(record));
        written += 1;
        assert!(start.elapsed() < Duration::from_secs(30), "{written} lines");
    }
    // Once the pipe is read, all entries that were not dropped arrive.
    drop(worker);
    let dropped = series.dropped_log_lines.get();
    let length = full(|record| line(AccessLogFormat::Text, record)).len() as u64;
    let wanted = (written - dropped) * length;
    let reader = thread::spawn(move || {
        let mut seen = 0;
        let mut buffer = vec![0; 64 * 1024];
        while seen < wanted {
            seen += io::Read::read(&mut reader, &mut buffer).unwrap() as u64;
        }
        seen
    });
    drop(log);
    assert_eq!(series.dropped_log_lines.get(), dropped);
    assert_eq!(reader.join().unwrap(), wanted);
}

#[test]
fn entries_that_can_not_be_written_are_counted() {
    let full_device = Path::new("/dev/full");
    if !full_device.exists() {
        return;
    }
    let log = AccessLog::open(&options(full_device)).unwrap();
    let series: Arc<WorkerSeries> = Arc::default();
    let worker = log.worker(&series);
    full(|record| worker.write(record));
    full(|record| worker.write(record));
    drop(worker);
    drop(log);
    assert_eq!(series.dropped_log_lines.get(), 2);
}

#[test]
fn a_clock_before_1970_is_harmless() {
    let record = LogRecord {
        time: SystemTime::UNIX_EPOCH - Duration::from_secs(1),
        ..LogRecord::default()
    };
    assert!(line(AccessLogFormat::Text, &record).starts_with("1970-01-01T00:00:00.000Z"));
}

#[test]
fn docs_observing_md_lists_every_field() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/observing.md");
    let text = fs::read_to_string(path).unwrap();
    let section = text
        .split("\n## ")
        .find(|section| section.starts_with("Access log"));
    let rows: Vec<&str> = section
        .unwrap()
        .lines()
        .filter(|line| line.starts_with("| `"))
        .collect();
    let wanted = record::FIELDS.map(|(name, description)| format!("| `{name}` | {description} |"));
    assert_eq!(rows, wanted, "the rows should be:\n{}", wanted.join("\n"));
}
