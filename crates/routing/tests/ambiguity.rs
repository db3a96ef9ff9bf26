//! Random requests as interpreted by lenient origins: they see the same path and headers that Pointsman has matched.

use std::collections::BTreeMap;

use pointsman_routing::filters::headers::{
    Edit, EditedNames, Field, TextField, apply, is_ambiguous,
};
use pointsman_routing::{PathPolicy, normalize_path};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

/// Interprets a path like an origin that decodes separators, drops parameters of segments and merges slashes.
fn leniently(path: &str) -> String {
    let mut decoded = path.to_owned();
    for (escape, byte) in [("%2f", "/"), ("%2F", "/"), ("%5c", "\\"), ("%5C", "\\")] {
        decoded = decoded.replace(escape, byte);
    }
    let segments = decoded.split('/');
    let segments = segments.map(|segment| segment.split(';').next().unwrap_or_default());
    let mut read = segments.collect::<Vec<_>>().join("/");
    while read.contains("//") {
        read = read.replace("//", "/");
    }
    read
}

fn a_path() -> impl Strategy<Value = String> {
    let piece = select(vec![
        "/", "/", "/", "a", "b", "..", ".", ";", ";x=1", "%2f", "%2F", "%5C", "%5c", "%2e", "%61",
        "%25", "%3B", "2f",
    ]);
    vec(piece, 0..10).prop_map(|pieces| format!("/{}", pieces.concat()))
}

/// Returns a header as a CGI program sees it: by its name in lower case with `-` for `_`, with joined values.
fn as_cgi(fields: &[TextField<'_>]) -> BTreeMap<String, Vec<String>> {
    let mut seen: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for field in fields {
        let name = field.name.to_ascii_lowercase().replace('_', "-");
        seen.entry(name).or_default().push(field.value.to_string());
    }
    seen
}

fn an_edit() -> impl Strategy<Value = Edit> {
    let name = select(vec!["x-a", "x-b", "x-a-b", "x-forwarded-for"]);
    (name, 0..3u8).prop_map(|(name, kind)| match kind {
        0 => Edit::Set(name.into(), "filter".into()),
        1 => Edit::Add(name.into(), "filter".into()),
        _ => Edit::Remove(name.into()),
    })
}

fn a_name() -> impl Strategy<Value = String> {
    vec(
        select(vec!["x", "X", "a", "A", "b", "-", "_", "-", "_"]),
        3..6,
    )
    .prop_map(|letters| letters.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_path_that_the_strict_policy_permits_is_the_same_to_lenient_origins(path in a_path()) {
        match PathPolicy::Strict.normalize(&path) {
            Ok(normal) => {
                prop_assert_eq!(leniently(&normal), normal.as_ref());
                prop_assert_eq!(Ok(normal), normalize_path(&path));
            }
            Err(_) if normalize_path(&path).is_ok() => prop_assert_ne!(leniently(&path), path),
            Err(_) => {}
        }
    }

    #[test]
    fn headers_that_filters_set_or_remove_can_not_be_spoofed_to_a_cgi_program(
        edits in vec(an_edit(), 0..5),
        names in vec(a_name(), 0..10),
    ) {
        let mut fields: Vec<TextField<'_>> =
            names.iter().map(|name| (&**name, "client").into()).collect();
        let before = as_cgi(&fields);
        let edited = EditedNames::of(&edits);
        fields.retain(|field| !is_ambiguous(field.name(), Some(&edited)));
        apply(&edits, &mut fields);
        let seen = as_cgi(&fields);
        let mut wanted: BTreeMap<String, Vec<String>> = BTreeMap::new();
        let mut decided: BTreeMap<&str, bool> = BTreeMap::new();
        for edit in &edits {
            match edit {
                Edit::Set(name, value) => {
                    wanted.insert(name.to_string(), vec![value.to_string()]);
                    decided.insert(name, true);
                }
                Edit::Add(name, value) => {
                    wanted.entry(name.to_string()).or_default().push(value.to_string());
                    decided.entry(name).or_default();
                }
                Edit::Remove(name) => {
                    wanted.remove(&**name);
                    decided.insert(name, true);
                }
            }
        }
        for (name, replaced) in &decided {
            let values = seen.get(*name).cloned().unwrap_or_default();
            if *replaced {
                prop_assert_eq!(&values, &wanted.get(*name).cloned().unwrap_or_default(), "{}", name);
            } else {
                let own = values.iter().filter(|value| *value == "filter").count();
                prop_assert_eq!(own, wanted[*name].len(), "{}", name);
            }
        }
        // Other escapes are kept.
        for (name, values) in &before {
            if !decided.contains_key(&**name) {
                prop_assert_eq!(seen.get(name), Some(values), "{}", name);
            }
        }
    }
}
