//! JSON parser that records positions. A text may contain several values in succession, as kubectl accepts them.

use std::collections::HashSet;

use super::{MAX_DEPTH, MapEntry, Node, Position, Value, scalar};

/// Parses all values of a text. Returns `None` if it is not valid JSON; the caller then parses it as YAML, which reports the error.
pub(super) fn parse(text: &str, first_line: u32) -> Option<Vec<Node>> {
    let mut cursor = Cursor {
        rest: text,
        at: Position {
            line: first_line,
            column: 1,
        },
    };
    let mut nodes = Vec::new();
    cursor.skip_space();
    while !cursor.rest.is_empty() {
        nodes.push(cursor.value(0)?);
        cursor.skip_space();
    }
    Some(nodes)
}

struct Cursor<'a> {
    rest: &'a str,
    at: Position,
}

impl<'a> Cursor<'a> {
    fn peek(&self) -> Option<char> {
        self.rest.chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.rest = &self.rest[c.len_utf8()..];
        if c == '\n' {
            self.at = Position {
                line: self.at.line.saturating_add(1),
                column: 1,
            };
        } else {
            self.at.column = self.at.column.saturating_add(1);
        }
        Some(c)
    }

    fn skip_space(&mut self) {
        while self
            .peek()
            .is_some_and(|c| matches!(c, ' ' | '\t' | '\n' | '\r'))
        {
            self.next();
        }
    }

    /// Consumes the next character if it is the expected one.
    fn eat(&mut self, expected: char) -> bool {
        let found = self.peek() == Some(expected);
        if found {
            self.next();
        }
        found
    }

    fn value(&mut self, depth: usize) -> Option<Node> {
        if depth >= MAX_DEPTH {
            return None;
        }
        let at = self.at;
        let value = match self.peek() {
            Some('{') => self.object(depth)?,
            Some('[') => self.array(depth)?,
            Some('"') => Value::String(self.string()?),
            _ => self.literal()?,
        };
        Some(Node { at, value })
    }

    fn object(&mut self, depth: usize) -> Option<Value> {
        self.next();
        let mut entries = Vec::new();
        let mut seen = HashSet::new();
        self.skip_space();
        if self.eat('}') {
            return Some(Value::Map(entries));
        }
        loop {
            self.skip_space();
            let at = self.at;
            let key = self.string()?;
            if !seen.insert(key.clone()) {
                return None;
            }
            self.skip_space();
            if !self.eat(':') {
                return None;
            }
            self.skip_space();
            let node = self.value(depth + 1)?;
            entries.push(MapEntry { key, at, node });
            self.skip_space();
            if self.eat('}') {
                return Some(Value::Map(entries));
            }
            if !self.eat(',') {
                return None;
            }
        }
    }

    fn array(&mut self, depth: usize) -> Option<Value> {
        self.next();
        let mut items = Vec::new();
        self.skip_space();
        if self.eat(']') {
            return Some(Value::List(items));
        }
        loop {
            self.skip_space();
            items.push(self.value(depth + 1)?);
            self.skip_space();
            if self.eat(']') {
                return Some(Value::List(items));
            }
            if !self.eat(',') {
                return None;
            }
        }
    }

    fn string(&mut self) -> Option<String> {
        if !self.eat('"') {
            return None;
        }
        let mut text = String::new();
        loop {
            match self.next()? {
                '"' => return Some(text),
                '\\' => text.push(self.escape()?),
                c if c >= ' ' => text.push(c),
                _ => return None,
            }
        }
    }

    fn escape(&mut self) -> Option<char> {
        Some(match self.next()? {
            c @ ('"' | '\\' | '/') => c,
            'b' => '\u{8}',
            'f' => '\u{c}',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'u' => self.unicode()?,
            _ => return None,
        })
    }

    /// Parses the digits of a `\u` escape, and the escape of the low surrogate that completes a pair.
    fn unicode(&mut self) -> Option<char> {
        let first = self.four_digits()?;
        if !(0xd800..0xdc00).contains(&first) {
            // Lone surrogates are replaced, as by Go's decoder.
            return Some(char::from_u32(first).unwrap_or(char::REPLACEMENT_CHARACTER));
        }
        let Some(rest) = self.rest.strip_prefix("\\u") else {
            return Some(char::REPLACEMENT_CHARACTER);
        };
        let second = rest
            .get(..4)
            .and_then(|digits| u32::from_str_radix(digits, 16).ok());
        let Some(low) = second.filter(|low| (0xdc00..0xe000).contains(low)) else {
            return Some(char::REPLACEMENT_CHARACTER);
        };
        for _ in 0..6 {
            self.next();
        }
        let code = 0x10000 + ((first - 0xd800) << 10) + (low - 0xdc00);
        Some(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER))
    }

    fn four_digits(&mut self) -> Option<u32> {
        let mut code = 0;
        for _ in 0..4 {
            code = code * 16 + self.next()?.to_digit(16)?;
        }
        Some(code)
    }

    /// Parses `null`, `true`, `false` or a number.
    fn literal(&mut self) -> Option<Value> {
        let end = self
            .rest
            .find(|c: char| !c.is_ascii_alphanumeric() && !matches!(c, '-' | '+' | '.'))
            .unwrap_or(self.rest.len());
        let literal = &self.rest[..end];
        let value = match literal {
            "null" => Value::Null,
            "true" => Value::Bool(true),
            "false" => Value::Bool(false),
            _ => scalar::number(&serde_json::from_str(literal).ok()?),
        };
        for _ in 0..literal.len() {
            self.next();
        }
        Some(value)
    }
}
