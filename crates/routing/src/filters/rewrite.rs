//! Path rewrites: replacement of the full path or of the matched prefix.

use std::borrow::Cow;
use std::sync::Arc;

use pointsman_binding::bound::Dialect;
use pointsman_resources::route::PathModifier;

/// A compiled path rewrite, of a request or a redirect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathRewrite {
    /// Replaces the whole path.
    Full(Arc<str>),
    /// Replaces the matched prefix. Both are without a trailing slash.
    Prefix {
        /// The matched prefix.
        from: Arc<str>,
        /// Its replacement.
        to: Arc<str>,
        /// A request for `/` under the prefix `/` becomes `to` itself, without a trailing slash. Only for Kuma's kinds.
        bare_root: bool,
    },
}

impl PathRewrite {
    /// Compiles a filter. `prefix` is that of the rule's only match. Returns `None` if there is nothing to replace.
    pub fn compile(
        modifier: &PathModifier,
        prefix: Option<&str>,
        dialect: Dialect,
    ) -> Option<Self> {
        if let Some(path) = &modifier.replace_full_path {
            return Some(PathRewrite::Full(absolute(path).into()));
        }
        let trimmed = |path: &str| path.strip_suffix('/').unwrap_or(path).into();
        let to = modifier.replace_prefix_match.as_deref()?;
        Some(PathRewrite::Prefix {
            from: trimmed(prefix?),
            to: trimmed(&absolute(to)),
            bare_root: dialect == Dialect::Kuma && prefix == Some("/"),
        })
    }

    /// Returns the new path.
    pub fn apply<'p>(&'p self, path: &str) -> Cow<'p, str> {
        match self {
            PathRewrite::Full(full) => Cow::Borrowed(full),
            PathRewrite::Prefix {
                to,
                bare_root: true,
                ..
            } if path == "/" && !to.is_empty() => Cow::Borrowed(to),
            PathRewrite::Prefix { from, to, .. } => {
                // The rest after a matched prefix is empty or starts with a slash.
                let rest = path.strip_prefix(&**from).unwrap_or(path);
                match (&**to, rest) {
                    ("", "") => Cow::Borrowed("/"),
                    (to, "") => Cow::Borrowed(to),
                    (to, rest) => Cow::Owned(format!("{to}{rest}")),
                }
            }
        }
    }
}

/// Converts arbitrary text, which the API allows, to a valid path: prepends a missing slash, so that it can't extend a host, and percent-encodes invalid
/// characters.
fn absolute(text: &str) -> String {
    let mut path = String::from(if text.starts_with('/') { "" } else { "/" });
    for byte in text.bytes() {
        match byte {
            b'!'..=b'~' if byte != b'?' && byte != b'#' => path.push(char::from(byte)),
            _ => path.push_str(&format!("%{byte:02X}")),
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replaced(path: &str, prefix: &str, with: &str) -> String {
        replaced_in(Dialect::GatewayApi, path, prefix, with)
    }

    fn replaced_in(dialect: Dialect, path: &str, prefix: &str, with: &str) -> String {
        let modifier = PathModifier {
            kind: "ReplacePrefixMatch".into(),
            replace_full_path: None,
            replace_prefix_match: Some(with.into()),
        };
        PathRewrite::compile(&modifier, Some(prefix), dialect)
            .expect("a rewrite")
            .apply(path)
            .into_owned()
    }

    #[test]
    fn invalid_paths_are_corrected() {
        for (written, path) in [
            ("/a/b", "/a/b"),
            ("", "/"),
            ("nope", "/nope"),
            (".evil.example", "/.evil.example"),
            ("/a b", "/a%20b"),
            ("/a\r\nx: y", "/a%0D%0Ax:%20y"),
            ("/a?b#c", "/a%3Fb%23c"),
            ("/ü%41", "/%C3%BC%41"),
        ] {
            let modifier = PathModifier {
                kind: "ReplaceFullPath".into(),
                replace_full_path: Some(written.into()),
                replace_prefix_match: None,
            };
            let rewrite =
                PathRewrite::compile(&modifier, None, Dialect::GatewayApi).expect("a rewrite");
            assert_eq!(rewrite.apply("/x"), path, "{written:?}");
        }
        assert_eq!(replaced("/foo/bar", "/foo", "x y"), "/x%20y/bar");
    }

    #[test]
    fn a_prefix_is_replaced_as_the_specifications_table_has_it() {
        let table = [
            ("/foo/bar", "/foo", "/xyz", "/xyz/bar"),
            ("/foo/bar", "/foo", "/xyz/", "/xyz/bar"),
            ("/foo/bar", "/foo/", "/xyz", "/xyz/bar"),
            ("/foo/bar", "/foo/", "/xyz/", "/xyz/bar"),
            ("/foo", "/foo", "/xyz", "/xyz"),
            ("/foo/", "/foo", "/xyz", "/xyz/"),
            ("/foo/bar", "/foo", "", "/bar"),
            ("/foo/", "/foo", "", "/"),
            ("/foo", "/foo", "", "/"),
            ("/foo/", "/foo", "/", "/"),
            ("/foo", "/foo", "/", "/"),
            ("/x", "/", "/v2", "/v2/x"),
            ("/", "/", "/v2", "/v2/"),
            ("/prefix/one/two", "/prefix/one", "/one", "/one/two"),
            ("/strip-prefix/three", "/strip-prefix", "/", "/three"),
        ];
        for (path, prefix, with, wanted) in table {
            assert_eq!(
                replaced(path, prefix, with),
                wanted,
                "{path} {prefix} {with}"
            );
        }
    }

    /// "gateway handles slashes right (`/prefix/middle/tail` -> `/middle/tail`; `/` -> `/tail`)": no slash is added that the configuration does not contain.
    #[test]
    fn for_kuma_the_root_becomes_the_replacement_itself() {
        let table = [
            ("/", "/", "/a/b", "/a/b"),
            ("/", "/", "/a/b/", "/a/b"),
            ("/x", "/", "/a/b", "/a/b/x"),
            ("/x/", "/", "/a/b", "/a/b/x/"),
            ("/", "/", "/", "/"),
            ("/foo/", "/foo", "/xyz", "/xyz/"),
            ("/foo", "/foo", "/xyz", "/xyz"),
        ];
        for (path, prefix, with, wanted) in table {
            let found = replaced_in(Dialect::Kuma, path, prefix, with);
            assert_eq!(found, wanted, "{path} {prefix} {with}");
        }
    }
}
