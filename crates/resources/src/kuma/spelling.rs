//! Converts alternative syntax to Kuma's current syntax before a document is validated: the syntax of MADR 011, and field names in snake
//! case (`connection_limit`) in kinds that are defined as protocol buffers.
//!
//! | MADR 011 | Kuma |
//! | --- | --- |
//! | `path: {prefix: /v1}` | `path: {type: PathPrefix, value: /v1}` |
//! | path type `Prefix` | `PathPrefix` |
//! | a filter without `type` | the type of the only filter field that is set |
//! | `requestRedirect: {path: /new}` | `path: {type: ReplaceFullPath, replaceFullPath: /new}` |
//! | `urlRewrite: {path: {replaceFullPath: /new}}` | the same with `type: ReplaceFullPath` |
//! | `matches: {path: …}` | a list with that match |
//!
//! Nodes keep their positions, so that findings point to the original text.

use crate::document::{MapEntry, Node, Position, Value};
use crate::meta::{KUMA_GROUP, Kind};

/// Filter types and the fields that hold their settings.
pub(crate) const FILTERS: &[(&str, &str)] = &[
    ("RequestHeaderModifier", "requestHeaderModifier"),
    ("ResponseHeaderModifier", "responseHeaderModifier"),
    ("RequestMirror", "requestMirror"),
    ("RequestRedirect", "requestRedirect"),
    ("URLRewrite", "urlRewrite"),
    ("DirectResponse", "directResponse"),
];

/// Path modifier types and the fields that hold their values.
pub(crate) const PATH_MODIFIERS: &[(&str, &str)] = &[
    ("ReplaceFullPath", "replaceFullPath"),
    ("ReplacePrefixMatch", "replacePrefixMatch"),
];

/// Converts an object of Kuma's to the current syntax.
pub(crate) fn normalize(object: &mut Node, kind: Kind) {
    if kind.group() != KUMA_GROUP {
        return;
    }
    normalize_fields(
        object,
        matches!(kind, Kind::Mesh | Kind::Dataplane | Kind::MeshGateway),
    );
    let Some(spec) = object.get_mut("spec").filter(|_| kind.is_mesh_route()) else {
        return;
    };
    for_each_item(spec, "rules", normalize_rule);
    for_each_item(spec, "to", |to| for_each_item(to, "rules", normalize_rule));
}

/// Replaces null tag values with empty ones, which validation rejects: a dropped tag would make a selector match more than intended. Converts
/// field names of protocol buffers from snake case to camel case.
fn normalize_fields(node: &mut Node, is_protobuf: bool) {
    match &mut node.value {
        Value::List(items) => items
            .iter_mut()
            .for_each(|item| normalize_fields(item, is_protobuf)),
        Value::Map(entries) => {
            for entry in entries {
                if is_protobuf && entry.key.contains('_') {
                    entry.key = camel_case(&entry.key);
                }
                let has_user_keys = ["metadata", "labels", "annotations"];
                let is_tags = entry.key == "tags" || is_protobuf && entry.key == "match";
                match &mut entry.node.value {
                    Value::Map(tags) if is_tags => {
                        let nulls = tags.iter_mut().filter(|tag| tag.node.value == Value::Null);
                        nulls.for_each(|tag| tag.node.value = Value::String(String::new()));
                    }
                    _ if has_user_keys.contains(&entry.key.as_str()) => {}
                    _ => normalize_fields(&mut entry.node, is_protobuf),
                }
            }
        }
        _ => {}
    }
}

/// Converts `connection_limit` to `connectionLimit`.
fn camel_case(name: &str) -> String {
    let mut parts = name.split('_');
    let mut word = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (first, rest) = part.split_at(part.chars().next().map_or(0, char::len_utf8));
        word.push_str(&first.to_ascii_uppercase());
        word.push_str(rest);
    }
    word
}

fn normalize_rule(rule: &mut Node) {
    if let Some(matches) = rule.get_mut("matches")
        && let Value::Map(_) = matches.value
    {
        let one = std::mem::replace(&mut matches.value, Value::Null);
        let at = matches.at;
        matches.value = Value::List(vec![Node { at, value: one }]);
    }
    for_each_item(rule, "matches", |matched| {
        if let Some(path) = matched.get_mut("path") {
            normalize_path(path);
        }
    });
    if let Some(default) = rule.get_mut("default") {
        for_each_item(default, "filters", normalize_filter);
    }
}

fn normalize_path(path: &mut Node) {
    let at = path.at;
    if let Some(kind) = path.get_mut("type")
        && kind.as_str() == Some("Prefix")
    {
        kind.value = Value::String("PathPrefix".to_owned());
    }
    let is_shorthand = path.get("type").is_none() && path.get("value").is_none();
    if let Value::Map(entries) = &mut path.value
        && let Some(entry) = entries.iter_mut().find(|entry| entry.key == "prefix")
        && is_shorthand
    {
        entry.key = "value".to_owned();
        entries.push(string_entry("type", "PathPrefix", at));
    }
}

fn normalize_filter(filter: &mut Node) {
    infer_type(filter, FILTERS);
    for field in ["requestRedirect", "urlRewrite"] {
        let path = filter.get_mut(field).and_then(|body| body.get_mut("path"));
        let Some(path) = path else { continue };
        let at = path.at;
        if let Value::String(text) = &mut path.value
            && field == "requestRedirect"
        {
            let full = string_entry("replaceFullPath", &std::mem::take(text), at);
            path.value = Value::Map(vec![full]);
        }
        infer_type(path, PATH_MODIFIERS);
    }
}

/// Adds the `type` of a union whose only set field implies it.
fn infer_type(node: &mut Node, members: &[(&str, &str)]) {
    let mut set = members
        .iter()
        .filter(|(_, field)| node.get(field).is_some_and(|set| set.value != Value::Null));
    let (Some((kind, _)), None) = (set.next(), set.next()) else {
        return;
    };
    let untyped = node
        .get("type")
        .is_none_or(|kind| kind.value == Value::Null);
    if let Value::Map(entries) = &mut node.value
        && untyped
    {
        entries.retain(|entry| entry.key != "type");
        entries.push(string_entry("type", kind, node.at));
    }
}

fn string_entry(key: &str, text: &str, at: Position) -> MapEntry {
    MapEntry {
        key: key.to_owned(),
        at,
        node: Node {
            at,
            value: Value::String(text.to_owned()),
        },
    }
}

fn for_each_item(node: &mut Node, field: &str, act: impl Fn(&mut Node)) {
    if let Some(Node {
        value: Value::List(items),
        ..
    }) = node.get_mut(field)
    {
        items.iter_mut().for_each(act);
    }
}
