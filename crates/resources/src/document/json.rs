//! JSON with places. Several values may follow one another in a text, as kubectl reads them.

use std::collections::HashSet;

use super::{MAX_DEPTH, MapEntry, Node, Position, SyntaxError, Value, scalar};

type Result<T> = std::result::Result<T, SyntaxError>;

/// All values of a text.
pub(super) fn parse(text: &str, first_line: u32) -> Result<Vec<Node>> {
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
    Ok(nodes)
}

struct Cursor<'a> {
    rest: &'a str,
    at: Position,
}

impl<'a> Cursor<'a> {
    fn fail<T>(&self, message: &str) -> Result<T> {
        Err(SyntaxError::new(self.at, message))
    }

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

    /// Takes a character if it is the next one.
    fn take(&mut self, wanted: char) -> bool {
        let found = self.peek() == Some(wanted);
        if found {
            self.next();
        }
        found
    }

    fn value(&mut self, depth: usize) -> Result<Node> {
        if depth >= MAX_DEPTH {
            return self.fail("the document is nested too deeply");
        }
        let at = self.at;
        let value = match self.peek() {
            Some('{') => self.object(depth)?,
            Some('[') => self.array(depth)?,
            Some('"') => Value::String(self.string()?),
            _ => self.word()?,
        };
        Ok(Node { at, value })
    }

    fn object(&mut self, depth: usize) -> Result<Value> {
        self.next();
        let mut entries = Vec::new();
        let mut seen = HashSet::new();
        self.skip_space();
        if self.take('}') {
            return Ok(Value::Map(entries));
        }
        loop {
            self.skip_space();
            let at = self.at;
            let key = self.string()?;
            if !seen.insert(key.clone()) {
                return Err(SyntaxError::new(
                    at,
                    format!("the key `{key}` stands here twice"),
                ));
            }
            self.skip_space();
            if !self.take(':') {
                return self.fail("a `:` is missing after the key");
            }
            self.skip_space();
            let node = self.value(depth + 1)?;
            entries.push(MapEntry { key, at, node });
            self.skip_space();
            if self.take('}') {
                return Ok(Value::Map(entries));
            }
            if !self.take(',') {
                return self.fail("a `,` or `}` is missing");
            }
        }
    }

    fn array(&mut self, depth: usize) -> Result<Value> {
        self.next();
        let mut items = Vec::new();
        self.skip_space();
        if self.take(']') {
            return Ok(Value::List(items));
        }
        loop {
            self.skip_space();
            items.push(self.value(depth + 1)?);
            self.skip_space();
            if self.take(']') {
                return Ok(Value::List(items));
            }
            if !self.take(',') {
                return self.fail("a `,` or `]` is missing");
            }
        }
    }

    fn string(&mut self) -> Result<String> {
        if !self.take('"') {
            return self.fail("a string is missing");
        }
        let mut text = String::new();
        loop {
            match self.next() {
                Some('"') => return Ok(text),
                Some('\\') => text.push(self.escape()?),
                Some(c) if c >= ' ' => text.push(c),
                _ => return self.fail("the string has no end"),
            }
        }
    }

    fn escape(&mut self) -> Result<char> {
        Ok(match self.next() {
            Some(c @ ('"' | '\\' | '/')) => c,
            Some('b') => '\u{8}',
            Some('f') => '\u{c}',
            Some('n') => '\n',
            Some('r') => '\r',
            Some('t') => '\t',
            Some('u') => self.unicode()?,
            _ => return self.fail("an unknown escape"),
        })
    }

    /// A character as `\u` and four digits, or as a surrogate pair of two such.
    fn unicode(&mut self) -> Result<char> {
        let first = self.four_digits()?;
        if !(0xd800..0xdc00).contains(&first) {
            // A lone surrogate is replaced, as Go's decoder does.
            return Ok(char::from_u32(first).unwrap_or(char::REPLACEMENT_CHARACTER));
        }
        let Some(rest) = self.rest.strip_prefix("\\u") else {
            return Ok(char::REPLACEMENT_CHARACTER);
        };
        let second = rest
            .get(..4)
            .and_then(|digits| u32::from_str_radix(digits, 16).ok());
        let Some(low) = second.filter(|low| (0xdc00..0xe000).contains(low)) else {
            return Ok(char::REPLACEMENT_CHARACTER);
        };
        for _ in 0..6 {
            self.next();
        }
        let code = 0x10000 + ((first - 0xd800) << 10) + (low - 0xdc00);
        Ok(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER))
    }

    fn four_digits(&mut self) -> Result<u32> {
        let mut code = 0;
        for _ in 0..4 {
            match self.next().and_then(|c| c.to_digit(16)) {
                Some(digit) => code = code * 16 + digit,
                None => return self.fail("`\\u` needs four hexadecimal digits"),
            }
        }
        Ok(code)
    }

    /// `null`, `true`, `false` or a number.
    fn word(&mut self) -> Result<Value> {
        let end = self
            .rest
            .find(|c: char| !c.is_ascii_alphanumeric() && !matches!(c, '-' | '+' | '.'))
            .unwrap_or(self.rest.len());
        let word = &self.rest[..end];
        let value = match word {
            "null" => Value::Null,
            "true" => Value::Bool(true),
            "false" => Value::Bool(false),
            _ => match serde_json::from_str::<serde_json::Number>(word) {
                Ok(number) => scalar::number(&number),
                Err(_) => return self.fail("this is no JSON value"),
            },
        };
        for _ in 0..word.len() {
            self.next();
        }
        Ok(value)
    }
}
