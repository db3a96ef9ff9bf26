//! Tests of setting limits by name, and of their documentation.

use super::*;

#[test]
fn every_limit_accepts_its_own_default() {
    for limit in Limits::all() {
        let mut limits = Limits::default();
        limits.set(limit.name, &limit.default_text()).unwrap();
        assert_eq!(limits, Limits::default(), "{}", limit.name);
    }
}

#[test]
fn the_http1_codec_has_the_same_defaults() {
    assert_eq!(
        Limits::default().for_requests(),
        crate::http1::Limits::default()
    );
}

#[test]
fn values_are_parsed_with_their_units() {
    let mut limits = Limits::default();
    let table = [
        ("header-bytes", "128KiB"),
        ("headers", "200"),
        ("body-bytes", "10MiB"),
        ("connections", "1000"),
        ("head-time", "1m30s"),
        ("connect-time", "500ms"),
        ("stream-idle-time", "1h"),
        ("uri-bytes", "8000"),
    ];
    for (name, value) in table {
        limits.set(name, value).unwrap();
    }
    let wanted = Limits {
        header_bytes: 128 * 1024,
        headers: 200,
        body_bytes: Some(10 * 1024 * 1024),
        connections: Some(1000),
        head_time: Duration::from_secs(90),
        connect_time: Duration::from_millis(500),
        stream_idle_time: Some(Duration::from_secs(3600)),
        uri_bytes: 8000,
        ..Limits::default()
    };
    assert_eq!(limits, wanted);
    for name in ["body-bytes", "connections", "stream-idle-time"] {
        limits.set(name, "none").unwrap();
    }
    assert_eq!(
        (
            limits.body_bytes,
            limits.connections,
            limits.stream_idle_time
        ),
        (None, None, None)
    );
}

#[test]
fn an_error_names_the_limit_the_value_and_the_allowed_values() {
    let table = [
        (
            "headers",
            "many",
            "invalid value `many` for limit `headers`: write a number from 1 to 256",
        ),
        (
            "headers",
            "0",
            "invalid value `0` for limit `headers`: write a number from 1 to 256",
        ),
        (
            "headers",
            "257",
            "invalid value `257` for limit `headers`: write a number from 1 to 256",
        ),
        (
            "headers",
            "+5",
            "invalid value `+5` for limit `headers`: write a number from 1 to 256",
        ),
        (
            "headers",
            "",
            "invalid value `` for limit `headers`: write a number from 1 to 256",
        ),
        (
            "headers",
            "none",
            "invalid value `none` for limit `headers`: write a number from 1 to 256",
        ),
        (
            "header-bytes",
            "64kb",
            "invalid value `64kb` for limit `header-bytes`: write a number of bytes (such as 65536 or 64KiB) from 1KiB to 1MiB",
        ),
        (
            "header-bytes",
            "99999999999999999999GiB",
            "invalid value `99999999999999999999GiB` for limit `header-bytes`: write a number of bytes (such as 65536 or 64KiB) from 1KiB to 1MiB",
        ),
        (
            "head-time",
            "10",
            "invalid value `10` for limit `head-time`: write a time (such as 10s or 500ms) from 10ms to 1h",
        ),
        (
            "head-time",
            "0s",
            "invalid value `0s` for limit `head-time`: write a time (such as 10s or 500ms) from 10ms to 1h",
        ),
        (
            "body-bytes",
            "-1",
            "invalid value `-1` for limit `body-bytes`: write a number of bytes (such as 65536 or 64KiB) from 0, or `none`",
        ),
    ];
    for (name, value, wanted) in table {
        let mut limits = Limits::default();
        assert_eq!(limits.set(name, value).unwrap_err(), wanted);
        assert_eq!(limits, Limits::default());
    }
    let long = "9".repeat(1000) + "h";
    assert!(Limits::default().set("head-time", &long).is_err());
}

#[test]
fn the_error_for_an_unknown_limit_lists_the_known_ones() {
    let error = |name| Limits::default().set(name, "1").unwrap_err();
    let near = error("header_byte");
    assert!(
        near.starts_with("unknown limit `header_byte`; did you mean `header-bytes`? known limits: header-bytes, headers, uri-bytes, "),
        "{near}"
    );
    let far = error("memory");
    assert!(
        far.starts_with("unknown limit `memory`; known limits: header-bytes, "),
        "{far}"
    );
    assert!(error(&"x".repeat(1000)).contains("known limits"));
}

#[test]
fn values_are_formatted_as_they_are_parsed() {
    let table = [
        (LimitUnit::Bytes, 0, "0"),
        (LimitUnit::Bytes, 1023, "1023"),
        (LimitUnit::Bytes, 64 * KIB, "64KiB"),
        (LimitUnit::Bytes, 3 * MIB, "3MiB"),
        (LimitUnit::Bytes, 1024 * MIB, "1GiB"),
        (LimitUnit::Time, 0, "0s"),
        (LimitUnit::Time, 90_500, "1m30s500ms"),
        (LimitUnit::Number, 7, "7"),
    ];
    for (unit, amount, text) in table {
        assert_eq!(unit.format(amount), text);
        assert_eq!(unit.parse(text), Some(amount));
    }
}

#[test]
fn docs_limits_md_has_exactly_these_rows() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/limits.md");
    let text = std::fs::read_to_string(path).unwrap();
    let rows: Vec<&str> = text
        .lines()
        .filter(|line| line.starts_with("| `"))
        .collect();
    let wanted: Vec<String> = Limits::all()
        .map(|limit| {
            let Limit {
                name,
                description,
                effect,
                ..
            } = limit;
            let default = limit.default_text();
            format!("| `{name}` | {default} | {description} | {effect} |")
        })
        .collect();
    assert_eq!(rows, wanted, "the table should be:\n{}", wanted.join("\n"));
}
