//! Detection of pseudo-header fields in HTTP/2 trailers. RFC 9113 §8.1: "Trailers MUST NOT include pseudo-header fields"; `h2` drops such fields silently.
//! It rejects those that follow a regular field, so checking the first field is enough.
//!
//! The dynamic table is not tracked: a first field that refers to it is accepted.

/// Checks the first bytes of a trailer section.
#[derive(Debug)]
pub(crate) struct TrailerInspector {
    bytes: [u8; MAX_PREFIX],
    len: usize,
    /// Bytes before the field block that are left to skip: the padding length and the priority.
    skip: usize,
}

/// More than the bytes that decide: table size updates, the first field's representation, and the length and first letter of its name.
const MAX_PREFIX: usize = 32;

/// RFC 9113 §6.2.
const PADDED: u8 = 8;
const PRIORITY: u8 = 32;

impl TrailerInspector {
    /// Creates an inspector for the block of a HEADERS frame with these flags.
    pub(crate) fn new(flags: u8) -> Self {
        let mut skip = 0;
        if flags & PADDED != 0 {
            skip += 1;
        }
        if flags & PRIORITY != 0 {
            skip += 5;
        }
        TrailerInspector {
            bytes: [0; MAX_PREFIX],
            len: 0,
            skip,
        }
    }

    /// Adds bytes of the section. Returns whether it is valid, once that is known.
    pub(crate) fn feed(&mut self, bytes: &[u8]) -> Option<bool> {
        let skipped = self.skip.min(bytes.len());
        self.skip -= skipped;
        let bytes = &bytes[skipped..];
        let count = bytes.len().min(MAX_PREFIX - self.len);
        self.bytes[self.len..self.len + count].copy_from_slice(&bytes[..count]);
        self.len += count;
        match is_regular(&self.bytes[..self.len]) {
            None if self.len == MAX_PREFIX => Some(true),
            known => known,
        }
    }
}

/// Returns whether a field block (RFC 7541 §6) begins with a regular field; `None` if more bytes are needed.
fn is_regular(mut block: &[u8]) -> Option<bool> {
    loop {
        let (first, rest) = block.split_first()?;
        let name = match first {
            0x80.. => integer(first & 0x7f, 0x7f, rest)?.0,
            0x40..=0x7f => integer(first & 0x3f, 0x3f, rest)?.0,
            // A dynamic table size update.
            0x20..=0x3f => {
                block = integer(first & 0x1f, 0x1f, rest)?.1;
                continue;
            }
            0x00..=0x1f => integer(first & 0x0f, 0x0f, rest)?.0,
        };
        if name != 0 || *first >= 0x80 {
            // RFC 7541, Appendix A: the static table begins with the pseudo-header fields.
            return Some(name > 14);
        }
        let (length, name) = rest.split_first()?;
        let letter = name.first()?;
        return Some(match length & 0x80 {
            0 => *letter != b':',
            // RFC 7541, Appendix B: the code of `:` is 1011100, seven bits.
            _ => letter >> 1 != 0b101_1100,
        });
    }
}

/// Decodes an integer (RFC 7541 §5.1) whose prefix has this value and this maximum.
fn integer(prefix: u8, max: u8, rest: &[u8]) -> Option<(usize, &[u8])> {
    let mut value = usize::from(prefix);
    if prefix < max {
        return Some((value, rest));
    }
    for (at, byte) in rest.iter().enumerate().take(4) {
        value += usize::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            return Some((value, &rest[at + 1..]));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_bytes_of_a_block_classify_its_first_field() {
        let blocks: [(&[u8], Option<bool>); 14] = [
            (b"", None),
            (&[0x84], Some(false)),
            (&[0x8e], Some(false)),
            (&[0x8f], Some(true)),
            (&[0xbe], Some(true)),
            (&[0x44, 1, b'/'], Some(false)),
            (&[0x04, 1, b'/'], Some(false)),
            (&[0x14, 1, b'/'], Some(false)),
            (&[0x0f, 0x02, 1, b'x'], Some(true)),
            (b"\x40\x05:path", Some(false)),
            (b"\x10\x05x-sum", Some(true)),
            // After a dynamic table size update.
            (b"\x20\x00\x05:path", Some(false)),
            // `:path`, Huffman-coded: 1011100 1010110 ...
            (&[0x00, 0x84, 0xb9, 0x58, 0xd3, 0x3f], Some(false)),
            (&[0x00, 0x05], None),
        ];
        for (block, regular) in blocks {
            assert_eq!(is_regular(block), regular, "{block:?}");
        }
        let mut inspector = TrailerInspector::new(PADDED | PRIORITY);
        assert_eq!(inspector.feed(&[1, 0, 0, 0]), None);
        assert_eq!(inspector.feed(&[0, 0, 0x84]), Some(false));
    }
}
