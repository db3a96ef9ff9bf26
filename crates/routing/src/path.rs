//! Normalization of paths, and their segments.

use std::borrow::Cow;

/// An invalid path; the request gets 400.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// `%` without two hexadecimal digits.
    #[error("the path has a `%` that is not followed by two hexadecimal digits")]
    Escape,
    /// A NUL, literally or as `%00`.
    #[error("the path has a NUL")]
    Nul,
    /// `%2F`, with [`PathPolicy::Strict`].
    #[error("the path has `%2F`, which --paths strict rejects")]
    EscapedSlash,
    /// `%5C`, with [`PathPolicy::Strict`].
    #[error("the path has `%5C`, which --paths strict rejects")]
    EscapedBackslash,
    /// `//`, with [`PathPolicy::Strict`].
    #[error("the path has `//`, which --paths strict rejects")]
    EmptySegment,
    /// `;`, with [`PathPolicy::Strict`].
    #[error("the path has `;`, which --paths strict rejects")]
    Parameter,
}

/// Policy for ambiguous paths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PathPolicy {
    /// Accepts all paths that can be normalized.
    #[default]
    Any,
    /// Rejects paths that some backends interpret differently: many decode `%2F` and `%5C`, some merge slashes, and some ignore the part of a segment after
    /// `;`.
    Strict,
}

impl PathPolicy {
    /// Normalizes a path with [`normalize_path`] if the policy accepts it.
    pub fn normalize(self, path: &str) -> Result<Cow<'_, str>, PathError> {
        match self {
            PathPolicy::Strict => ambiguity(path).map_or(Ok(()), Err)?,
            PathPolicy::Any => {}
        }
        normalize_path(path)
    }
}

/// Returns the first ambiguity of a path.
fn ambiguity(path: &str) -> Option<PathError> {
    let bytes = path.as_bytes();
    bytes.iter().enumerate().find_map(|(at, byte)| match byte {
        b';' => Some(PathError::Parameter),
        b'/' if bytes.get(at + 1) == Some(&b'/') => Some(PathError::EmptySegment),
        b'%' => match escape(&bytes[at..]) {
            Some(b'/') => Some(PathError::EscapedSlash),
            Some(b'\\') => Some(PathError::EscapedBackslash),
            _ => None,
        },
        _ => None,
    })
}

/// Normalizes a path for matching and forwarding (RFC 3986 §6.2.2): decodes unreserved characters, then removes dot segments.
///
/// Other escapes are unchanged; `%2F` and `%5C` do not separate segments. Slashes are not merged. A path that is already normalized is not copied.
pub fn normalize_path(path: &str) -> Result<Cow<'_, str>, PathError> {
    let decoded = decode_unreserved(path)?;
    if !has_dot_segment(&decoded) {
        return Ok(decoded);
    }
    Ok(Cow::Owned(remove_dot_segments(&decoded)))
}

/// Decodes `%XX` at the start of the bytes.
pub(crate) fn escape(bytes: &[u8]) -> Option<u8> {
    let digit = |byte: u8| (byte as char).to_digit(16);
    match *bytes {
        [b'%', high, low, ..] => Some((digit(high)? << 4 | digit(low)?) as u8),
        _ => None,
    }
}

fn decode_unreserved(path: &str) -> Result<Cow<'_, str>, PathError> {
    let bytes = path.as_bytes();
    if bytes.contains(&0) {
        return Err(PathError::Nul);
    }
    let mut decoded = String::new();
    // The path up to `copied` has been copied to `decoded`.
    let mut copied = 0;
    for (at, _) in path.match_indices('%') {
        let byte = escape(&bytes[at..]).ok_or(PathError::Escape)?;
        if byte == 0 {
            return Err(PathError::Nul);
        }
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            decoded.push_str(&path[copied..at]);
            decoded.push(char::from(byte));
            copied = at + 3;
        }
    }
    if copied == 0 {
        return Ok(Cow::Borrowed(path));
    }
    decoded.push_str(&path[copied..]);
    Ok(Cow::Owned(decoded))
}

fn has_dot_segment(path: &str) -> bool {
    path.contains("/.")
        && path
            .split('/')
            .any(|segment| segment == "." || segment == "..")
}

/// RFC 3986, 5.2.4.
fn remove_dot_segments(path: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    let mut segments = path.strip_prefix('/').unwrap_or(path).split('/').peekable();
    while let Some(segment) = segments.next() {
        match segment {
            "." | ".." => {
                if segment == ".." {
                    kept.pop();
                }
                // `/a/.` is `/a/`: the slash stays.
                if segments.peek().is_none() {
                    kept.push("");
                }
            }
            segment => kept.push(segment),
        }
    }
    let mut normal = String::with_capacity(path.len());
    for segment in kept {
        normal.push('/');
        normal.push_str(segment);
    }
    normal
}

/// Returns the segments of a path: `a` and `b` for `/a/b`, `a` and an empty one for `/a/`, an empty one for `/`. `None` if the path does not start with `/`.
pub(crate) fn segments(path: &str) -> Option<std::str::Split<'_, char>> {
    path.strip_prefix('/').map(|rest| rest.split('/'))
}

/// Returns the segments of a prefix: none for `/`. A trailing slash is ignored.
pub(crate) fn prefix_segments(prefix: &str) -> impl Iterator<Item = &str> {
    let prefix = prefix.strip_suffix('/').unwrap_or(prefix);
    prefix
        .strip_prefix('/')
        .into_iter()
        .flat_map(|rest| rest.split('/'))
}

/// Returns whether a prefix matches a path, by whole segments.
pub(crate) fn has_prefix(path: &str, prefix: &str) -> bool {
    let prefix = prefix.strip_suffix('/').unwrap_or(prefix);
    path.strip_prefix(prefix)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        && path.starts_with('/')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dot_segments_go_and_unreserved_characters_are_decoded() {
        let table = [
            ("/", "/"),
            ("/a/b", "/a/b"),
            ("/a/./b", "/a/b"),
            ("/a/../b", "/b"),
            ("/a/b/..", "/a/"),
            ("/a/.", "/a/"),
            ("/..", "/"),
            ("/../../a", "/a"),
            ("/%61%2e%2E/x", "/a../x"),
            ("/a/%2e%2e/b", "/b"),
            ("/a%2Fb%5cc", "/a%2Fb%5cc"),
            ("/a//b", "/a//b"),
            ("/a//../b", "/a/b"),
            ("/.hidden/..x", "/.hidden/..x"),
            ("/%7Euser/%C3%A4", "/~user/%C3%A4"),
            ("/%25%36%31", "/%2561"),
            ("*", "*"),
        ];
        for (path, wanted) in table {
            assert_eq!(normalize_path(path).as_deref(), Ok(wanted), "{path}");
        }
    }

    #[test]
    fn a_normal_path_is_not_copied() {
        assert!(matches!(normalize_path("/a%2Fb/.c"), Ok(Cow::Borrowed(_))));
    }

    #[test]
    fn a_broken_escape_and_a_nul_are_errors() {
        let table = [
            ("/%", PathError::Escape),
            ("/%4", PathError::Escape),
            ("/%zz", PathError::Escape),
            ("/%é", PathError::Escape),
            ("/%00", PathError::Nul),
            ("/\0", PathError::Nul),
        ];
        for (path, wanted) in table {
            assert_eq!(normalize_path(path), Err(wanted), "{path}");
        }
    }

    #[test]
    fn the_strict_policy_rejects_paths_that_origins_read_differently() {
        let table = [
            ("/a%2Fb", Err(PathError::EscapedSlash)),
            ("/a%2fb", Err(PathError::EscapedSlash)),
            ("/a%5Cb", Err(PathError::EscapedBackslash)),
            ("/%5c", Err(PathError::EscapedBackslash)),
            ("//a", Err(PathError::EmptySegment)),
            // Before dot segments are removed: the result is /a/b.
            ("/a//../b", Err(PathError::EmptySegment)),
            ("/a/..//", Err(PathError::EmptySegment)),
            ("/a;x=1/b", Err(PathError::Parameter)),
            ("/..;/a", Err(PathError::Parameter)),
            ("/a/%zz", Err(PathError::Escape)),
            ("/a/../b/", Ok("/b/")),
            ("/a%20b%3B/%252F", Ok("/a%20b%3B/%252F")),
            ("/", Ok("/")),
            ("*", Ok("*")),
        ];
        for (path, wanted) in table {
            let strict = PathPolicy::Strict.normalize(path);
            assert_eq!(strict.as_deref(), wanted.as_ref().copied(), "{path}");
            let any = PathPolicy::Any.normalize(path);
            assert_eq!(any, normalize_path(path), "{path}");
        }
    }

    #[test]
    fn a_prefix_matches_by_whole_segments() {
        let table = [
            ("/abc", "/abc", true),
            ("/abc", "/abc/", true),
            ("/abc", "/abc/def", true),
            ("/abc", "/abc//", true),
            ("/abc", "/abcd", false),
            ("/abc/", "/abc", true),
            ("/", "/", true),
            ("/", "/x", true),
            ("/abc", "/ab", false),
            ("/", "*", false),
        ];
        for (prefix, path, wanted) in table {
            assert_eq!(has_prefix(path, prefix), wanted, "{prefix} {path}");
        }
    }
}
