//! Other spellings than Kuma's usual ones, turned into these before a document is checked: those of MADR 011, and `connection_limit` for
//! `connectionLimit` in the kinds that are protocol buffers.
//!
//! | MADR 011 | Kuma |
//! | --- | --- |
//! | `path: {prefix: /v1}` | `path: {type: PathPrefix, value: /v1}` |
//! | path type `Prefix` | `PathPrefix` |
//! | a filter without `type` | the type of the one filter that is set |
//! | `requestRedirect: {path: /new}` | `path: {type: ReplaceFullPath, replaceFullPath: /new}` |
//! | `urlRewrite: {path: {replaceFullPath: /new}}` | the same with `type: ReplaceFullPath` |
//! | `matches: {path: …}` | a list of that one match |
//!
//! Every part keeps its place in the text, so that findings point at what was written.

use crate::document::{MapEntry, Node, Position, Value};
use crate::meta::{KUMA_GROUP, Kind};

/// The filters: a type and the field that holds its settings.
pub(crate) const FILTERS: &[(&str, &str)] = &[
    ("RequestHeaderModifier", "requestHeaderModifier"),
    ("ResponseHeaderModifier", "responseHeaderModifier"),
    ("RequestMirror", "requestMirror"),
    ("RequestRedirect", "requestRedirect"),
    ("URLRewrite", "urlRewrite"),
    ("DirectResponse", "directResponse"),
];

/// How a path is replaced: a type and its field.
pub(crate) const PATH_MODIFIERS: &[(&str, &str)] = &[
    ("ReplaceFullPath", "replaceFullPath"),
    ("ReplacePrefixMatch", "replacePrefixMatch"),
];

/// Respells an object of Kuma's.
pub(crate) fn settle(object: &mut Node, kind: Kind) {
    if kind.group() != KUMA_GROUP {
        return;
    }
    words(
        object,
        matches!(kind, Kind::Mesh | Kind::Dataplane | Kind::MeshGateway),
    );
    let Some(spec) = object.get_mut("spec").filter(|_| kind.is_mesh_route()) else {
        return;
    };
    each(spec, "rules", rule);
    each(spec, "to", |to| each(to, "rules", rule));
}

/// A tag without a value has an empty one, which is refused: were it left out, more would be selected than was meant. In protocol buffers the names
/// of fields may be written in two ways.
fn words(node: &mut Node, is_buffer: bool) {
    match &mut node.value {
        Value::List(items) => items.iter_mut().for_each(|item| words(item, is_buffer)),
        Value::Map(entries) => {
            for entry in entries {
                if is_buffer && entry.key.contains('_') {
                    entry.key = camel(&entry.key);
                }
                let own = ["metadata", "labels", "annotations"];
                let tags = entry.key == "tags" || is_buffer && entry.key == "match";
                match &mut entry.node.value {
                    Value::Map(tags_of) if tags => {
                        let empty = tags_of
                            .iter_mut()
                            .filter(|tag| tag.node.value == Value::Null);
                        empty.for_each(|tag| tag.node.value = Value::String(String::new()));
                    }
                    _ if own.contains(&entry.key.as_str()) => {}
                    _ => words(&mut entry.node, is_buffer),
                }
            }
        }
        _ => {}
    }
}

/// `connectionLimit` of `connection_limit`.
fn camel(name: &str) -> String {
    let mut parts = name.split('_');
    let mut word = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (first, rest) = part.split_at(part.chars().next().map_or(0, char::len_utf8));
        word.push_str(&first.to_ascii_uppercase());
        word.push_str(rest);
    }
    word
}

fn rule(rule: &mut Node) {
    if let Some(matches) = rule.get_mut("matches")
        && let Value::Map(_) = matches.value
    {
        let one = std::mem::replace(&mut matches.value, Value::Null);
        let at = matches.at;
        matches.value = Value::List(vec![Node { at, value: one }]);
    }
    each(rule, "matches", |matched| {
        if let Some(found) = matched.get_mut("path") {
            path(found);
        }
    });
    if let Some(default) = rule.get_mut("default") {
        each(default, "filters", filter);
    }
}

fn path(path: &mut Node) {
    let at = path.at;
    if let Some(kind) = path.get_mut("type")
        && kind.as_str() == Some("Prefix")
    {
        kind.value = Value::String("PathPrefix".to_owned());
    }
    let stands_alone = path.get("type").is_none() && path.get("value").is_none();
    if let Value::Map(entries) = &mut path.value
        && let Some(entry) = entries.iter_mut().find(|entry| entry.key == "prefix")
        && stands_alone
    {
        entry.key = "value".to_owned();
        entries.push(word("type", "PathPrefix", at));
    }
}

fn filter(filter: &mut Node) {
    infer_type(filter, FILTERS);
    for field in ["requestRedirect", "urlRewrite"] {
        let path = filter.get_mut(field).and_then(|body| body.get_mut("path"));
        let Some(path) = path else { continue };
        let at = path.at;
        if let Value::String(text) = &mut path.value
            && field == "requestRedirect"
        {
            let full = word("replaceFullPath", &std::mem::take(text), at);
            path.value = Value::Map(vec![full]);
        }
        infer_type(path, PATH_MODIFIERS);
    }
}

/// Adds the `type` that the one field of a union that is set has.
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
        entries.push(word("type", kind, node.at));
    }
}

fn word(key: &str, text: &str, at: Position) -> MapEntry {
    MapEntry {
        key: key.to_owned(),
        at,
        node: Node {
            at,
            value: Value::String(text.to_owned()),
        },
    }
}

fn each(node: &mut Node, field: &str, act: impl Fn(&mut Node)) {
    if let Some(Node {
        value: Value::List(items),
        ..
    }) = node.get_mut(field)
    {
        items.iter_mut().for_each(act);
    }
}
